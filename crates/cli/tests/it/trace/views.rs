//! Comparison, picture, viewer file and tables of a capture.

use serde_json::Value;
use snapbox::{assert_data_eq, file};

use super::{
    AFTER, BEFORE, DECODE_C16, GRAPH_LEVEL, INVISIBLE, MIXED, TP2, json, stable, take_capture,
    trace, with_capture, with_spec,
};
use crate::rig::Rig;

fn two(a: &str, b: &str) -> (Rig, String, String) {
    let rig = Rig::bare();
    let (a, b) = (take_capture(&rig, a), take_capture(&rig, b));
    (rig, a, b)
}

fn names(rig: &Rig) -> Vec<String> {
    let entries = std::fs::read_dir(rig.path(".")).unwrap();
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Without the hash of the rules, which stands there twice.
fn both_stable(text: &str) -> String {
    let (_, rest) = text.split_once("; rules ").unwrap();
    let hash = &rest[..16];
    stable(text).replace(hash, "HASH")
}

#[test]
fn diff_of_two_batch_sizes_by_kind() {
    let (rig, a, b) = two(DECODE_C16, MIXED);
    let ran = trace(&rig, &["diff", &a, &b, "--match", "kind", "--steady", "1"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_data_eq!(
        both_stable(&ran.out),
        file!["../../data/trace/diff-kind.txt"].raw()
    );
}

#[test]
fn diff_of_two_captures_with_two_ranks() {
    let (rig, a, b) = two(BEFORE, AFTER);
    let ran = trace(&rig, &["diff", &a, &b]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_data_eq!(
        both_stable(&ran.out),
        file!["../../data/trace/diff-pair.txt"].raw()
    );
}

#[test]
fn diff_of_batches_that_do_not_match_is_not_clean_and_lists_them() {
    let (rig, a, b) = two(DECODE_C16, MIXED);
    let ran = trace(&rig, &["diff", &a, &b]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.out.contains("! nothing_matched: "), "{}", ran.out);
    assert!(
        ran.out
            .contains("only in A, not compared: decode, 16 requests, 16 tokens (60 steps)\n"),
        "{}",
        ran.out
    );
    assert!(
        ran.out
            .contains("decode, 4 requests, 4 tokens (54 steps); decode, 5 requests, "),
        "{}",
        ran.out
    );
    let scripts = trace(&rig, &["diff", &a, &b, "--json"]);
    let found: Value = serde_json::from_str(&scripts.out).unwrap();
    assert_eq!(
        (scripts.code, &found["compared"]),
        (Some(1), &Value::Array(Vec::new()))
    );
}

#[test]
fn diff_for_scripts_has_service_and_wait() {
    let rig = Rig::bare();
    let file = take_capture(&rig, TP2);
    let found = json(&rig, &["diff", &file, &file, "--steps", "decode"]);
    let kind = &found["compared"][0];
    assert_eq!(
        (&kind["kind"], kind["a"]["gpus"].as_u64()),
        (&"decode".into(), Some(2))
    );
    let rows = kind["rows"].as_array().unwrap();
    for part in [
        "step",
        "linear",
        "communication",
        "comm_service",
        "comm_wait",
        "idle",
    ] {
        let row = rows.iter().find(|r| r["part"] == part).unwrap();
        assert!(row["a"]["mean_ns"].as_f64() > Some(0.0), "{row}");
        assert_eq!(row["change"]["mean_ns"], 0.0, "{row}");
    }
    assert_eq!(found["a"]["ranks"], serde_json::json!([2]));
}

#[test]
fn fr_14_diff_with_a_graph_level_capture_is_refused() {
    let (rig, a, b) = two(DECODE_C16, GRAPH_LEVEL);
    let ran = trace(&rig, &["diff", &a, &b]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    for word in ["capture B", "UNSPLITTABLE", "--cuda-graph-trace=node"] {
        assert!(ran.err.contains(word), "{}", ran.err);
    }
}

#[test]
fn diff_says_which_capture_cannot_be_read() {
    let (rig, file) = with_capture(MIXED);
    let ran = trace(&rig, &["diff", &file, "absent.sqlite"]);
    ran.refused(&["capture B", "absent.sqlite"]);
}

#[test]
fn export_writes_a_range_for_viewers() {
    let (rig, file) = with_capture(TP2);
    let ran = trace(
        &rig,
        &["export", &file, "--steps", "5..6", "-o", "steps.json"],
    );
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.starts_with("steps.json: "), "{}", ran.out);
    let text = std::fs::read_to_string(rig.path("steps.json")).unwrap();
    let written: Value = serde_json::from_str(&text).unwrap();
    let events = written["traceEvents"].as_array().unwrap();
    let steps = events.iter().filter(|e| e["cat"] == "step").count();
    assert_eq!(steps, 4);
    assert_eq!(names(&rig), ["steps.json", file.as_str()]);
}

#[test]
fn export_refuses_what_is_not_there_and_never_writes_over_the_capture() {
    let (rig, file) = with_capture(MIXED);
    let before = std::fs::read(rig.path(&file)).unwrap();
    trace(
        &rig,
        &["export", &file, "--steps", "70..71", "-o", "x.json"],
    )
    .refused(&["no step 70..71", "steps are 0 to 59"]);
    trace(&rig, &["export", &file, "--steps", "3..1", "-o", "x.json"]).refused(&["such as 10..12"]);
    trace(&rig, &["export", &file, "--steps", "1", "-o", &file]).refused(&["is the input"]);
    trace(
        &rig,
        &["export", &file, "--steps", "1", "-o", "no/where.json"],
    )
    .refused(&["no/where.json: cannot create"]);
    assert_eq!(names(&rig), [file.as_str()]);
    assert_eq!(std::fs::read(rig.path(&file)).unwrap(), before);
}

#[test]
fn timeline_draws_the_usual_decode_step_unless_told_which() {
    let (rig, file) = with_capture(MIXED);
    let ran = trace(&rig, &["timeline", &file, "-o", "step.svg"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let svg = std::fs::read_to_string(rig.path("step.svg")).unwrap();
    assert!(svg.contains(" (decode, 4 requests, 4 tokens) of "), "{svg}");
    let mixed = json(&rig, &["steps", &file, "--steps", "mixed"]);
    let number = mixed[0]["step"].to_string();
    let ran = trace(
        &rig,
        &["timeline", &file, "--step", &number, "-o", "mixed.svg"],
    );
    assert_eq!(ran.out, format!("mixed.svg: step {number}\n"));
    let svg = std::fs::read_to_string(rig.path("mixed.svg")).unwrap();
    assert!(
        svg.contains(&format!(">Step {number} (mixed, 5 requests, ")),
        "{svg}"
    );
    trace(&rig, &["timeline", &file, "--step", "99", "-o", "x.svg"])
        .refused(&["no step 99", "steps are 0 to 59"]);
}

#[test]
fn fr_14_replays_without_rows_are_no_picture_of_idle_time() {
    let (rig, file) = with_capture(INVISIBLE);
    for words in [
        &["timeline", file.as_str(), "-o", "x.svg"][..],
        &["export", file.as_str(), "--steps", "0", "-o", "x.json"],
    ] {
        let ran = trace(&rig, words);
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        assert!(
            ran.err.contains("20 of 20 graph launches left no GPU row"),
            "{}",
            ran.err
        );
        assert_eq!(names(&rig), [file.as_str()]);
    }
}

#[cfg(feature = "report")]
const TABLES: [&str; 3] = ["collectives", "kernel_classes", "steps"];

#[cfg(feature = "report")]
#[test]
fn tables_are_written_beside_the_text() {
    let (rig, file) = with_capture(TP2);
    for command in ["split", "steps", "comm"] {
        let plain = trace(&rig, &[command, &file]);
        let ran = trace(&rig, &[command, &file, "--parquet", "out/tables"]);
        assert_eq!((ran.code, ran.out), (plain.code, plain.out), "{}", ran.err);
        for name in TABLES {
            let path = rig.path(&format!("out/tables/{name}.parquet"));
            let bytes = std::fs::read(&path).unwrap();
            assert!(
                bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"),
                "{name}"
            );
            assert!(
                ran.err.contains(&format!("out/tables/{name}.parquet\n")),
                "{}",
                ran.err
            );
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[cfg(not(feature = "report"))]
#[test]
fn a_build_without_tables_says_so_before_it_reads() {
    let rig = Rig::bare();
    trace(&rig, &["split", "absent.sqlite", "--parquet", "out"]).refused(&[
        "--parquet",
        "feature `report`",
        "--json",
    ]);
}

#[test]
fn secrets_reach_none_of_the_files() {
    let (rig, file) = with_spec("secrets");
    let planted = super::nothing_leaks::planted();
    let mut all: Vec<u8> = Vec::new();
    let mut run = |words: &[&str]| {
        let ran = trace(&rig, words);
        assert_eq!(ran.code, Some(0), "{words:?}: {}", ran.err);
        all.extend(ran.out.bytes().chain(ran.err.bytes()));
    };
    run(&["diff", &file, &file]);
    run(&["diff", &file, &file, "--json"]);
    run(&["export", &file, "--steps", "0..2", "-o", "steps.json"]);
    run(&["timeline", &file, "-o", "step.svg"]);
    #[cfg(feature = "report")]
    run(&["split", &file, "--parquet", "."]);
    for name in names(&rig) {
        let made = ["json", "svg", "parquet"]
            .iter()
            .any(|end| name.ends_with(end));
        if made && !name.ends_with(".truth.json") {
            all.extend(std::fs::read(rig.path(&name)).unwrap());
        }
    }
    for secret in planted {
        let found = all.windows(secret.len()).any(|w| w == secret.as_bytes());
        assert!(!found, "{secret}");
    }
}

#[test]
fn strict_holds_for_files_that_show_no_shares() {
    let rig = super::made::Made::with_names(&["void lab::new_kernel<(int)4>(float *)", "nvjet_x"]);
    for words in [
        &["timeline", "made.sqlite", "-o", "x.svg"][..],
        &["export", "made.sqlite", "--steps", "0", "-o", "x.json"],
        &["diff", "made.sqlite", "made.sqlite"],
    ] {
        assert_eq!(trace(&rig, words).code, Some(0), "{words:?}");
        let strict = trace(&rig, &[words, &["--strict"]].concat());
        assert_eq!(strict.code, Some(1), "{words:?}");
        assert!(
            strict.err.contains("error: --strict: 50.0 %"),
            "{}",
            strict.err
        );
    }
}
