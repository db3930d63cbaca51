//! Verdicts on recorded, hand-made and broken files.

use linktax_trace::{Answered, GraphMode, Inspection, Severity, inspect};

use crate::exports::{BASE, KERNEL, Made, RUNTIME, call, capture, global, kernel, unpacked};

fn verdicts(inspection: &Inspection) -> Vec<&str> {
    inspection
        .verdicts
        .iter()
        .map(|v| v.code.as_str())
        .collect()
}

fn answered(inspection: &Inspection) -> Vec<(&str, Answered)> {
    let answers = inspection.answers.iter();
    answers.map(|a| (a.question.as_str(), a.answered)).collect()
}

#[test]
fn a_sound_capture_is_ok_and_says_what_it_holds() {
    let seen = inspect(&capture("vllm-qwen3-4b-decode-c16")).unwrap();
    assert_eq!(verdicts(&seen), ["ok"]);
    assert_eq!(seen.severity(), Severity::Ok);
    assert_eq!(seen.export.tool_version.as_deref(), Some("2025.3.2.0"));
    assert_eq!(seen.export.schema_version.as_deref(), Some("3.20.3"));
    assert_eq!((seen.kernels, seen.kernel_names), (31_496, 35));
    assert_eq!(seen.graphs.mode, GraphMode::Node);
    assert_eq!((seen.graphs.launches, seen.graphs.invisible), (60, 0));
    assert_eq!(
        seen.step_marks[0].form,
        "execute_context_N(N)_generation_N(N)"
    );
    assert_eq!(seen.step_marks[0].count, 60);
    assert_eq!(seen.lanes.len(), 1);
    assert_eq!(seen.lanes[0].gpu.as_deref(), Some("NVIDIA H200"));
    assert_eq!(
        (seen.first_ns, seen.last_ns),
        (
            Some(seen.lanes[0].first_ns),
            Some(501_899_427.min(seen.lanes[0].last_ns))
        )
    );
    assert_eq!(
        answered(&seen),
        [
            ("steps", Answered::Yes),
            ("batch", Answered::Yes),
            ("split", Answered::Yes),
            ("wait_service", Answered::No),
            ("what_if", Answered::Partly),
        ]
    );
}

#[test]
fn two_ranks_answer_every_question() {
    let seen = inspect(&capture("vllm-qwen3-4b-tp2-two-ranks-one-gpu")).unwrap();
    assert_eq!(seen.lanes.len(), 2);
    assert!(
        answered(&seen).iter().all(|(_, yes)| *yes == Answered::Yes),
        "{:?}",
        seen.answers
    );
}

#[test]
fn fr_14_graph_level_is_refused_with_the_share_and_the_command() {
    let rows: String = (0..80)
        .map(|i| {
            let start = i * 40_000_000;
            format!(
                "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES ({start}, {}, 0, 1, 7, {}, {}, 5, 6); {}{}",
                start + 30_000_000,
                i + 1,
                global(9),
                kernel(start + 30_000_000, start + 30_050_000, 9, 1_000 + i, "NULL"),
                kernel(start + 31_000_000, start + 31_050_000, 9, 2_000 + i, "NULL"),
            )
        })
        .collect();
    let made = Made::new(&format!(
        "BEGIN; {BASE}{KERNEL}
         CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
            streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER, graphExecId INTEGER); {rows} COMMIT;"
    ));
    let seen = inspect(&made.path).unwrap();
    let verdict = &seen.verdicts[0];
    assert_eq!(verdict.code, "graph_level");
    assert_eq!(
        verdict.message,
        "99.7 % of GPU busy time (2400 of 2408 ms) is inside opaque graphs; re-record with --cuda-graph-trace=node"
    );
    assert!(
        verdict
            .fix
            .as_ref()
            .unwrap()
            .contains("--cuda-graph-trace=node")
    );
    assert_eq!(seen.severity(), Severity::Problem);
    assert!(answered(&seen).contains(&("split", Answered::No)));
}

#[test]
fn a_recorded_graph_level_capture_is_seen_from_its_rows() {
    let seen = inspect(&capture("vllm-qwen3-4b-decode-c16-graph-level")).unwrap();
    assert_eq!(seen.graphs.mode, GraphMode::Graph);
    assert_eq!(seen.graphs.opaque_rows, 60);
    assert_eq!(verdicts(&seen), ["graph_level"]);
    assert!(seen.graphs.opaque_share() > 0.9);
}

#[test]
fn graphs_that_left_no_rows_are_a_problem_never_idle_time() {
    let seen = inspect(&capture("torch-graph-level-nsys2023.4")).unwrap();
    assert_eq!(seen.graphs.mode, GraphMode::Invisible);
    assert_eq!((seen.graphs.launches, seen.graphs.invisible), (20, 20));
    assert_eq!(verdicts(&seen)[0], "invisible_graphs");
    assert!(answered(&seen).contains(&("split", Answered::No)));
}

#[test]
fn a_replay_cut_off_by_the_end_of_the_capture_is_no_problem() {
    let rows: String = (0..30)
        .map(|i| {
            let launched = call(i * 100, i * 100 + 10, 9, i + 1, 4);
            let ran = kernel(i * 100 + 20, i * 100 + 60, 9, i + 1, "77");
            if i < 29 { launched + &ran } else { launched }
        })
        .collect();
    let made = Made::new(&format!("{BASE}{KERNEL}{RUNTIME}{rows}"));
    let seen = inspect(&made.path).unwrap();
    assert_eq!(
        (seen.graphs.mode, seen.graphs.invisible),
        (GraphMode::Node, 1)
    );
    assert!(verdicts(&seen).contains(&"unseen_replays"));
    assert!(answered(&seen).contains(&("split", Answered::Yes)));
    assert!(seen.severity() < Severity::Problem);
}

#[test]
fn a_capture_asked_for_graph_mode_without_graphs_is_no_problem() {
    let seen = inspect(&capture("nsys-ai-h100_2gpu_1s")).unwrap();
    assert_eq!(seen.export.graph_mode_asked.as_deref(), Some("Graph"));
    assert_eq!(seen.graphs.mode, GraphMode::None);
    assert!(!verdicts(&seen).contains(&"graph_level"));
    assert!(verdicts(&seen).contains(&"no_step_marks"));
}

#[test]
fn fr_13_broken_files_have_verdicts_of_their_own() {
    let (dir, path) = unpacked("torch-graph-node-nsys2025.3");
    let whole = std::fs::read(&path).unwrap();
    let code = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let seen = inspect(&path).unwrap();
        assert_eq!(seen.severity(), Severity::Problem);
        assert!(
            answered(&seen)
                .iter()
                .all(|(_, answered)| *answered == Answered::No)
        );
        verdicts(&seen)[0].to_owned()
    };
    assert_eq!(code("a.sqlite", b""), "empty");
    assert_eq!(code("b.sqlite", &whole[..whole.len() / 2]), "truncated");
    assert_eq!(code("c.sqlite", b"no database"), "not_sqlite");
    std::fs::write(dir.path().join("d.sqlite-wal"), b"x").unwrap();
    assert_eq!(code("d.sqlite", &whole), "wal_pending");
    let no_kernels = Made::new(&format!("{BASE}{RUNTIME}{}", call(1, 2, 9, 1, 7)));
    assert_eq!(
        verdicts(&inspect(&no_kernels.path).unwrap()),
        ["no_kernels"]
    );
    assert!(inspect(&dir.path().join("absent.sqlite")).is_err());
}

#[test]
fn pages_overwritten_with_noise_are_damage_and_no_panic() {
    let (dir, path) = unpacked("torch-graph-node-nsys2023.4");
    let whole = std::fs::read(&path).unwrap();
    for (at, seed) in [(0, 7u8), (1, 31), (3, 77), (9, 5), (20, 99), (50, 201)] {
        let mut bytes = whole.clone();
        let noise = bytes[4096 * at..].iter_mut().skip(100).take(3_900);
        noise
            .enumerate()
            .for_each(|(i, byte)| *byte = seed.wrapping_mul(i as u8).wrapping_add(at as u8));
        let path = dir.path().join(format!("noise{at}.sqlite"));
        std::fs::write(&path, &bytes).unwrap();
        let seen = inspect(&path).unwrap();
        assert!(!seen.verdicts.is_empty(), "page {at}");
    }
}

fn small_export() -> Vec<u8> {
    let rows: String = (0..40)
        .map(|i| kernel(10 * i, 10 * i + 5, 9, i, "NULL") + &call(10 * i - 5, 10 * i - 2, 9, i, 3))
        .collect();
    let made = Made::new(&format!("BEGIN; {BASE}{KERNEL}{RUNTIME}{rows} COMMIT;"));
    std::fs::read(&made.path).unwrap()
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(96))]
    #[test]
    fn any_damage_is_a_verdict_and_never_a_panic(
        hits in proptest::collection::vec((proptest::num::usize::ANY, proptest::num::u8::ANY), 1..40),
        cut in proptest::option::of(proptest::num::usize::ANY),
    ) {
        static WHOLE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(small_export);
        let mut bytes = WHOLE.clone();
        for (at, byte) in hits {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut % bytes.len());
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("damaged.sqlite");
        std::fs::write(&path, &bytes).unwrap();
        let seen = inspect(&path).unwrap();
        proptest::prop_assert!(!seen.verdicts.is_empty());
        for verdict in &seen.verdicts {
            proptest::prop_assert!(!verdict.message.contains("panicked"), "{}", verdict.message);
        }
    }
}

#[test]
fn fr_20_one_rank_of_several_is_a_warning() {
    let allreduce = kernel(10, 20, 9, 1, "NULL").replace(", 1, 2, NULL", ", 5, 5, NULL");
    let made = Made::new(&format!("{BASE}{KERNEL}{allreduce}"));
    let seen = inspect(&made.path).unwrap();
    assert!(
        verdicts(&seen).contains(&"partial_ranks"),
        "{:?}",
        verdicts(&seen)
    );
    assert!(answered(&seen).contains(&("wait_service", Answered::No)));
}

#[test]
fn an_absent_table_is_put_down_to_the_export_filter() {
    let made = Made::new(&format!(
        "{BASE}{KERNEL}{} INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PARAM_TABLES_TO_EXPORT', 'CUPTI_ACTIVITY_KIND_KERNEL,StringIds');",
        kernel(10, 20, 9, 1, "NULL")
    ));
    let seen = inspect(&made.path).unwrap();
    let nvtx = seen
        .tables
        .iter()
        .find(|table| table.name == "NVTX_EVENTS")
        .unwrap();
    assert!(!nvtx.present);
    assert_eq!(
        nvtx.why_absent.as_deref(),
        Some("exported with --tables CUPTI_ACTIVITY_KIND_KERNEL,StringIds")
    );
}

#[test]
fn nothing_of_the_environment_is_in_an_inspection() {
    for name in [
        "nsys-ai-mfu_2gpu_before",
        "vllm-qwen3-4b-tp2-two-ranks-one-gpu",
    ] {
        let json = serde_json::to_string(&inspect(&capture(name)).unwrap()).unwrap();
        let path = capture(name);
        let json = json.replace(path.to_str().unwrap(), "");
        for word in ["modal", "/root", "/tmp", "torchrun", "Hostname", "HOME"] {
            assert!(!json.contains(word), "{name}: {word}");
        }
    }
}
