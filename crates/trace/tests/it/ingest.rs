//! Reading exports: recorded ones and hand-made ones of every shape that the field reports name.

use std::collections::BTreeMap;
use std::path::Path;

use linktax_trace::{
    Classes, LaunchKind, Op, OpKind, ReadOptions, Rules, Trace, TraceError, coverage_notes,
    parse_step_mark, read,
};

use crate::exports::{
    BASE, KERNEL, Made, RUNTIME, call, capture, codes, global, kernel, sql, unpacked,
};

const MS: i64 = 1_000_000;

fn read_capture(name: &str) -> Trace {
    read(&[capture(name)], &ReadOptions::default()).unwrap()
}

/// (name, launches, total ns) of every kernel, by name.
fn kernel_sums(trace: &Trace) -> BTreeMap<String, (u64, u64)> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for lane in &trace.lanes {
        for op in lane.ops.iter().filter(|op| op.kind == OpKind::Kernel) {
            let sum = sums
                .entry(trace.names.full(op.name).to_owned())
                .or_default();
            sum.0 += 1;
            sum.1 += op.dur;
        }
    }
    sums
}

/// The columns `Instances`, `Total Time (ns)` and `Name` of an `nsys stats` table; the name comes last and is quoted
/// where it holds commas.
fn nsys_stats(name: &str) -> BTreeMap<String, (u64, u64)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/nsys")
        .join(format!("{name}.nsys-stats-kern-sum.csv"));
    let text = std::fs::read_to_string(path).unwrap();
    let mut rows = text
        .lines()
        .skip_while(|line| !line.starts_with("Time (%)"));
    let header: Vec<&str> = rows.next().unwrap().split(',').collect();
    let at = |column: &str| header.iter().position(|name| *name == column).unwrap();
    let (total, count) = (at("Total Time (ns)"), at("Instances"));
    rows.filter(|row| !row.trim().is_empty())
        .map(|row| {
            let fields: Vec<&str> = row.splitn(header.len(), ',').collect();
            let name = fields[header.len() - 1]
                .trim_matches('"')
                .replace("\"\"", "\"");
            (
                name,
                (
                    fields[count].parse().unwrap(),
                    fields[total].parse().unwrap(),
                ),
            )
        })
        .collect()
}

#[test]
fn kernel_counts_and_sums_are_those_of_nsys_stats() {
    for name in ["vllm-qwen3-4b-decode-c16", "vllm-qwen3-4b-mixed-prefill"] {
        assert_eq!(kernel_sums(&read_capture(name)), nsys_stats(name), "{name}");
    }
}

#[test]
fn recorded_captures_have_the_lanes_they_should() {
    // (capture, kernels of each lane, step marks)
    let expected: [(&str, &[usize], usize); 7] = [
        ("vllm-qwen3-4b-decode-c16", &[31_496], 60),
        ("vllm-qwen3-4b-mixed-prefill", &[31_312], 60),
        ("vllm-qwen3-next-gdn-decode-c16", &[26_580], 60),
        ("vllm-qwen3-4b-tp2-two-ranks-one-gpu", &[4_891, 4_891], 48),
        ("torch-graph-node-nsys2023.4", &[2_400], 25),
        ("torch-graph-node-nsys2025.3", &[2_400], 25),
        ("nsys-ai-mfu_2gpu_before", &[1_993, 2_017], 0),
    ];
    for (name, kernels, marks) in expected {
        let trace = read_capture(name);
        let counts: Vec<usize> = trace
            .lanes
            .iter()
            .map(|lane| {
                lane.ops
                    .iter()
                    .filter(|op| op.kind == OpKind::Kernel)
                    .count()
            })
            .collect();
        assert_eq!(counts, kernels, "{name}");
        assert!(
            trace.lanes.iter().all(|lane| lane.ops.is_sorted()),
            "{name}"
        );
        let steps = trace
            .marks
            .iter()
            .filter(|mark| parse_step_mark(&mark.text).is_some());
        assert_eq!(steps.count(), marks, "{name}");
    }
}

#[test]
fn a_replay_keeps_its_launch_and_its_nodes() {
    let trace = read_capture("vllm-qwen3-4b-decode-c16");
    let lane = &trace.lanes[0];
    assert_eq!(lane.gpu.name.as_deref(), Some("NVIDIA H200"));
    assert_eq!(lane.gpu.memory_bandwidth, Some(4_814_304_000_000));
    let process = trace.process(&lane.id).unwrap();
    let graphs: Vec<_> = process
        .launches
        .iter()
        .filter(|call| call.kind == LaunchKind::Graph)
        .collect();
    assert_eq!(graphs.len(), 60);
    for launch in graphs {
        let ops = lane
            .ops
            .iter()
            .filter(|op| op.corr == launch.corr && op.kind == OpKind::Kernel);
        let nodes: Vec<u64> = ops.map(|op| op.node).collect();
        assert_eq!(nodes.len(), 505);
        assert!(nodes.iter().all(|node| node >> 32 == 1229));
    }
}

#[test]
fn a_graph_level_capture_has_opaque_graphs() {
    let trace = read_capture("vllm-qwen3-4b-decode-c16-graph-level");
    let graphs: Vec<Op> = trace.lanes[0]
        .ops
        .iter()
        .filter(|op| op.kind == OpKind::Graph)
        .collect();
    assert_eq!(graphs.len(), 60);
    assert!(
        graphs
            .iter()
            .all(|op| op.bytes == 1229 && op.dur > 7 * MS as u64)
    );
    assert!(!codes(&trace).contains(&"invisible_graphs"));
}

#[test]
fn graphs_without_any_gpu_row_are_found_from_their_launches() {
    let trace = read_capture("torch-graph-level-nsys2023.4");
    let note = trace
        .notes
        .iter()
        .find(|note| note.code == "invisible_graphs")
        .unwrap();
    assert!(
        note.message.starts_with("20 of 20 CUDA graph launches"),
        "{}",
        note.message
    );
}

#[test]
fn fr_13_no_kernel_table_is_an_error_with_hints() {
    let no_table = Made::new(&format!("{BASE}{RUNTIME}{}", call(1, 2, 9, 1, 7)));
    let no_rows = Made::new(&format!("{BASE}{RUNTIME}{KERNEL}{}", call(1, 2, 9, 1, 7)));
    for made in [no_table, no_rows] {
        let error = made.read().unwrap_err();
        assert!(matches!(error, TraceError::NoGpuRows { .. }));
        let text = error.to_string();
        for part in [
            "no GPU kernel rows in this export",
            "--trace=cuda",
            "profiler range",
            "worker processes",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[test]
fn fr_13_an_absent_nvtx_table_is_no_error() {
    let made = Made::new(&format!("{BASE}{KERNEL}{}", kernel(10, 20, 9, 1, "NULL")));
    let trace = made.read().unwrap();
    assert_eq!((trace.lanes.len(), trace.marks.len()), (1, 0));
    assert_eq!(trace.names.short(trace.lanes[0].ops.name(0)), "gemm");
}

#[test]
fn fr_13_what_is_not_sqlite_is_told_from_what_is_cut_off() {
    let (dir, path) = unpacked("torch-graph-node-nsys2025.3");
    let whole = std::fs::read(&path).unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        read(&[path], &ReadOptions::default()).unwrap_err()
    };
    assert!(matches!(
        file("empty.sqlite", b""),
        TraceError::Empty { .. }
    ));
    let text = file("text.sqlite", b"start,end\n1,2\n");
    assert!(
        text.to_string()
            .contains("not an Nsight SQLite export (text)"),
        "{text}"
    );
    let cut = file("cut.sqlite", &whole[..whole.len() - 4096]);
    assert!(
        matches!(cut, TraceError::Truncated { expected, actual, .. } if expected == actual + 4096),
        "{cut}"
    );
    assert!(matches!(
        file("stub.sqlite", &whole[..50]),
        TraceError::Truncated { .. }
    ));
    let mut packed = zstd::encode_all(&whole[..], 1).unwrap();
    packed.truncate(packed.len() / 2);
    assert!(
        file("cut.sqlite.zst", &packed)
            .to_string()
            .contains("cannot be decompressed")
    );
    let other = Made::new("CREATE TABLE songs (title TEXT)");
    assert!(matches!(other.read(), Err(TraceError::NotAnExport { .. })));
}

#[test]
fn fr_13_a_pending_log_beside_the_file_is_refused() {
    for suffix in ["-wal", "-journal"] {
        let made = Made::new(&format!("{BASE}{KERNEL}{}", kernel(10, 20, 9, 1, "NULL")));
        let sibling = made.dir().join(format!("made.sqlite{suffix}"));
        std::fs::write(&sibling, b"").unwrap();
        assert!(made.read().is_ok(), "an empty log holds nothing back");
        std::fs::write(&sibling, b"pages").unwrap();
        let error = made.read().unwrap_err();
        assert!(
            error
                .to_string()
                .contains(&format!("made.sqlite{suffix} lies beside it")),
            "{error}"
        );
    }
}

#[test]
fn a_report_needs_nsys_and_says_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.nsys-rep");
    std::fs::write(&path, b"not really a report").unwrap();
    let error = read(&[path], &ReadOptions::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("nsys export --type sqlite --output"),
        "{error}"
    );
}

#[test]
fn gzip_and_plain_files_read_as_the_zstd_one() {
    let name = "torch-graph-node-nsys2025.3";
    let (dir, path) = unpacked(name);
    let packed = dir.path().join("renamed.bin");
    let mut encoder = flate2::write::GzEncoder::new(
        std::fs::File::create(&packed).unwrap(),
        flate2::Compression::fast(),
    );
    std::io::copy(&mut std::fs::File::open(&path).unwrap(), &mut encoder).unwrap();
    encoder.finish().unwrap();
    let expected = read_capture(name);
    for path in [path, packed] {
        let trace = read(&[path], &ReadOptions::default()).unwrap();
        assert!(trace.lanes == expected.lanes);
        assert_eq!(trace.names, expected.names);
    }
}

#[test]
fn fr_17_correlation_ids_repeat_across_processes() {
    let rows = [
        call(0, 4_000, 101, 7, 3),
        call(0, 4_000, 102, 7, 3),
        call(10 * MS, 10 * MS + 4_000, 101, 9, 4),
        kernel(MS, 6 * MS, 101, 7, "NULL"),
        kernel(MS, 6 * MS, 102, 7, "NULL"),
        kernel(11 * MS, 12 * MS, 101, 9, "1"),
        kernel(12 * MS, 13 * MS, 101, 9, "2"),
        kernel(13 * MS, 14 * MS, 101, 9, "3"),
        kernel(20 * MS, 21 * MS, 101, 555, "NULL"),
    ]
    .concat();
    let trace = Made::new(&format!("{BASE}{KERNEL}{RUNTIME}{rows}"))
        .read()
        .unwrap();
    let sevens = trace
        .lanes
        .iter()
        .flat_map(|lane| lane.ops.iter())
        .filter(|op| op.corr == 7);
    let (count, sum) = sevens.fold((0, 0), |(n, sum), op| (n + 1, sum + op.dur));
    assert_eq!((count, sum), (2, 10 * MS as u64));
    let launch: Vec<_> = trace.processes[0]
        .launches
        .iter()
        .filter(|call| call.corr == 9)
        .collect();
    assert_eq!((launch.len(), launch[0].dur, launch[0].tid), (1, 4_000, 5));
    let total: u64 = trace
        .lanes
        .iter()
        .flat_map(|lane| lane.ops.iter())
        .map(|op| op.dur)
        .sum();
    assert_eq!(
        total,
        14 * MS as u64,
        "the kernel without a call counts too"
    );
}

#[test]
fn a_driver_call_inside_a_runtime_call_is_one_launch() {
    let rows = [
        call(100, 200, 9, 1, 3),
        call(110, 190, 9, 1, 6),
        kernel(300, 400, 9, 1, "NULL"),
    ]
    .concat();
    let trace = Made::new(&format!("{BASE}{KERNEL}{RUNTIME}{rows}"))
        .read()
        .unwrap();
    let launches = &trace.processes[0].launches;
    assert_eq!(
        launches
            .iter()
            .map(|call| (call.start, call.dur))
            .collect::<Vec<_>>(),
        [(100, 100)]
    );
}

/// The same four kernels in the schema of different years.
fn four_kernels(table: &str, insert: impl Fn(i64) -> String) -> String {
    let rows: String = (0..4).map(insert).collect();
    format!("{table}{rows}")
}

#[test]
fn fr_18_one_report_from_every_schema() {
    let pid = global(9);
    let (s, e) = (|i: i64| 10 * i, |i: i64| 10 * i + 5);
    let old = four_kernels(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL,
            contextId INT NOT NULL, streamId INT NOT NULL, correlationId INT NOT NULL, globalPid INT NOT NULL,
            demangledName INT NOT NULL, shortName INT NOT NULL);",
        |i| format!("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({}, {}, 0, 1, 7, {i}, {pid}, 1, 2);", s(i) + 1, e(i)),
    );
    let new = four_kernels(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (graphId INTEGER, tensor TEXT, graphNodeId INTEGER, shortName INTEGER,
            demangledName INTEGER, globalPid INTEGER, correlationId INTEGER, streamId INTEGER, deviceId INTEGER,
            end INTEGER, start INTEGER);",
        |i| format!("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (NULL, '[]', NULL, 2, 1, {pid}, {i}, 7, 0, {}, {});", e(i), s(i) + 1),
    );
    let text = four_kernels(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, globalPid INTEGER, demangledName TEXT);",
        |i| format!("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({}, {}, 0, 7, {i}, {pid}, 'void gemm<float>(float *)');", s(i) + 1, e(i)),
    );
    let future = format!(
        "UPDATE META_DATA_EXPORT SET value = '99.0' WHERE name = 'EXPORT_SCHEMA_VERSION'; {new}"
    );
    let mark =
        "INSERT INTO NVTX VALUES (0, 50, 59, 'execute_context_0(0)_generation_16(16)', NULL, 5);";
    let nvtx = |name: &str| {
        format!(
            "CREATE TABLE {name} (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER); {}",
            mark.replace("NVTX", name)
        )
    };
    let forms = [
        (old, nvtx("NVTX_EVENTS")),
        (new, nvtx("NVTX_EVENTS_V2")),
        (text, nvtx("NVTX_EVENTS_V3")),
        (future, nvtx("NVTX_EVENTS")),
    ];
    let traces: Vec<Trace> = forms
        .iter()
        .map(|(kernels, nvtx)| Made::new(&format!("{BASE}{kernels}{nvtx}")).read().unwrap())
        .collect();
    for trace in &traces {
        assert_eq!(trace.lanes, traces[0].lanes);
        assert_eq!(trace.names, traces[0].names);
        assert_eq!(trace.marks, traces[0].marks);
    }
    assert_eq!(traces[0].marks.len(), 1);
    assert_eq!(traces[0].lanes[0].ops.len(), 4);
    assert_eq!(codes(&traces[3]), ["unknown_schema"]);
    assert!(codes(&traces[0]).is_empty());
}

#[test]
fn fr_18_an_unknown_schema_without_the_columns_names_them() {
    let made = Made::new(&format!(
        "{BASE} UPDATE META_DATA_EXPORT SET value = '99.0' WHERE name = 'EXPORT_SCHEMA_VERSION';
         CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (begin INTEGER, end INTEGER, deviceId INTEGER, demangledName INTEGER);"
    ));
    let text = made.read().unwrap_err().to_string();
    assert!(
        text.contains("schema 99.0") && text.contains("lacks start, streamId"),
        "{text}"
    );
}

#[test]
fn fr_19_a_window_is_cut_to_the_capture_and_noted() {
    // Six seconds of capture, half of it busy.
    let rows: String = (0..6)
        .map(|i| kernel(i * 1000 * MS, i * 1000 * MS + 500 * MS, 9, i, "NULL"))
        .chain([kernel(5_999 * MS, 6_000 * MS, 9, 99, "NULL")])
        .collect();
    let made = Made::new(&format!("{BASE}{KERNEL}{rows}"));
    let window = |from: i64, to: i64| ReadOptions {
        window: Some((from, to)),
        ..ReadOptions::default()
    };
    let trace = made.read_with(&window(0, 60_000 * MS)).unwrap();
    let cut = trace.window.unwrap();
    assert_eq!((cut.start, cut.end), (0, 6_000 * MS));
    assert_eq!(codes(&trace), ["window_cut"]);

    let trace = made.read_with(&window(1_200 * MS, 2_300 * MS)).unwrap();
    let ops: Vec<(i64, i64)> = trace.lanes[0]
        .ops
        .iter()
        .map(|op| (op.start, op.end()))
        .collect();
    assert_eq!(ops, [(1_200 * MS, 1_500 * MS), (2_000 * MS, 2_300 * MS)]);
    assert_eq!(codes(&trace), ["clipped_rows"]);
}

#[test]
fn fr_19_a_window_outside_the_capture_is_an_error_with_its_range() {
    let rows = [
        kernel(155_000 * MS, 155_400 * MS, 9, 1, "NULL"),
        kernel(155_900 * MS, 156_000 * MS, 9, 2, "NULL"),
    ];
    let made = Made::new(&format!("{BASE}{KERNEL}{}", rows.concat()));
    let options = ReadOptions {
        window: Some((0, 1_000 * MS)),
        ..ReadOptions::default()
    };
    let error = made.read_with(&options).unwrap_err().to_string();
    assert_eq!(
        error,
        "window 0.0-1.0 s is outside the capture 155.0-156.0 s"
    );
}

#[test]
fn a_window_keeps_the_launches_of_its_work() {
    let whole = read_capture("vllm-qwen3-4b-decode-c16");
    let first = whole.lanes[0].ops.start(0);
    let options = ReadOptions {
        window: Some((first + 100 * MS, first + 200 * MS)),
        ..ReadOptions::default()
    };
    let part = read(&[capture("vllm-qwen3-4b-decode-c16")], &options).unwrap();
    let lane = &part.lanes[0];
    let launches = &part.process(&lane.id).unwrap().launches;
    assert!(
        lane.ops
            .iter()
            .all(|op| launches.iter().any(|call| call.corr == op.corr))
    );
    assert!(launches.len() * 4 < whole.processes.iter().map(|p| p.launches.len()).sum());
    assert!(
        (12..=16).contains(&part.marks.len()),
        "{}",
        part.marks.len()
    );
}

#[test]
fn fr_20_collectives_on_the_only_gpu_are_a_warning() {
    let allreduce = kernel(10, 20, 9, 1, "NULL").replace(", 1, 2, NULL", ", 5, 5, NULL");
    let made = Made::new(&format!("{BASE}{KERNEL}{}", allreduce.repeat(128)));
    let trace = made.read().unwrap();
    let classes = Classes::of(&trace.names, &Rules::embedded());
    let notes = coverage_notes(&trace, &classes);
    assert_eq!(notes.len(), 1);
    assert_eq!(
        notes[0].message,
        "collectives present (128) but kernels from 1 GPU only: other ranks were not traced"
    );
    let options = ReadOptions {
        expect_gpus: Some(2),
        ..ReadOptions::default()
    };
    let error = made.read_with(&options).unwrap_err();
    assert!(
        matches!(
            error,
            TraceError::MissingGpus {
                expected: 2,
                seen: 1
            }
        ),
        "{error}"
    );
    let both = read_capture("vllm-qwen3-4b-tp2-two-ranks-one-gpu");
    let classes = Classes::of(&both.names, &Rules::embedded());
    assert!(coverage_notes(&both, &classes).is_empty());
}

#[test]
fn fr_21_a_read_only_directory_is_enough_and_nothing_is_written() {
    use std::os::unix::fs::PermissionsExt;
    let rows: String = (0..2_000)
        .map(|i| kernel(10 * i, 10 * i + 5, 9, i, "NULL"))
        .collect();
    let made = Made::new(&format!("BEGIN; {BASE}{KERNEL}{rows} COMMIT;"));
    let before = std::fs::read(&made.path).unwrap();
    let set = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(&made.path, 0o444);
    set(made.dir(), 0o555);
    let trace = made.read();
    let names = std::fs::read_dir(made.dir()).unwrap().count();
    set(made.dir(), 0o755);
    assert_eq!(trace.unwrap().lanes[0].ops.len(), 2_000);
    assert_eq!(names, 1);
    assert_eq!(std::fs::read(&made.path).unwrap(), before);
}

#[test]
fn fr_21_progress_comes_while_rows_do() {
    let made = Made::new(&format!(
        "{BASE}{KERNEL}
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600000)
         SELECT 10 * i, 10 * i + 5, 0, 1, 0, 7, i, {}, 1, 2, NULL FROM n;",
        global(9)
    ));
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = seen.clone();
    let options = ReadOptions {
        progress: Some(std::sync::Arc::new(move |progress| {
            sink.lock().unwrap().push((progress.table, progress.rows));
        })),
        ..ReadOptions::default()
    };
    let trace = made.read_with(&options).unwrap();
    assert_eq!(trace.lanes[0].ops.len(), 600_000);
    let table = "CUPTI_ACTIVITY_KIND_KERNEL";
    assert_eq!(*seen.lock().unwrap(), [(table, 262_144), (table, 524_288)]);
}

#[test]
fn odd_rows_are_counted_and_none_goes_silently() {
    let rows = [
        kernel(100, 100, 9, 1, "NULL"),
        kernel(300, 250, 9, 2, "NULL"),
        kernel(400, 0, 9, 3, "NULL"),
        kernel(0, 0, 9, 4, "NULL"),
        kernel(50, 60, 9, 5, "NULL"),
        kernel(-20, -10, 9, 6, "NULL"),
    ]
    .concat();
    let trace = Made::new(&format!("{BASE}{KERNEL}{rows}")).read().unwrap();
    let ops: Vec<(i64, u64)> = trace.lanes[0]
        .ops
        .iter()
        .map(|op| (op.start, op.dur))
        .collect();
    assert_eq!(ops, [(-20, 10), (50, 10), (100, 0), (300, 0), (400, 0)]);
    let counted: Vec<(&str, &str)> = trace
        .notes
        .iter()
        .map(|note| (note.code.as_str(), note.message.split(' ').next().unwrap()))
        .collect();
    assert_eq!(
        counted,
        [
            ("zero_duration", "1"),
            ("negative_duration", "1"),
            ("unfinished_rows", "1"),
            ("untimed_rows", "1"),
            ("unordered_rows", "2"),
        ]
    );
}

#[test]
fn a_negative_global_pid_and_a_missing_one_are_lanes_too() {
    let rows = [
        kernel(10, 20, 9, 1, "NULL").replace(&global(9).to_string(), "-144115188059078656"),
        kernel(10, 20, 9, 1, "NULL").replace(&global(9).to_string(), "NULL"),
    ]
    .concat();
    let trace = Made::new(&format!("{BASE}{KERNEL}{rows}")).read().unwrap();
    let pids: Vec<i64> = trace.lanes.iter().map(|lane| lane.id.global_pid).collect();
    assert_eq!(pids, [-144_115_188_059_078_656, 0]);
    assert_eq!(trace.lanes[0].pid, 1);
}

#[test]
fn work_before_its_launch_is_a_note() {
    let rows = [call(100, 110, 9, 1, 3), kernel(50, 60, 9, 1, "NULL")].concat();
    let trace = Made::new(&format!("{BASE}{KERNEL}{RUNTIME}{rows}"))
        .read()
        .unwrap();
    assert_eq!(codes(&trace), ["work_before_launch"]);
}

#[test]
fn step_marks_come_from_text_and_from_string_ids() {
    let made = Made::new(&format!(
        "{BASE}{KERNEL}{}
         INSERT INTO StringIds VALUES (90, 'execute_context_1(8)_generation_2(2)'), (91, 'ncclAllReduce');
         CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER, textId INTEGER);
         INSERT INTO NVTX_EVENTS VALUES (30, NULL, 59, 'execute_context_0(0)_generation_4(4)', 5, NULL),
            (10, 20, 59, NULL, 5, 90), (11, 12, 59, NULL, 5, 91), (13, 14, 59, 'unrelated', 5, NULL),
            (15, 15, 75, 'execute_context_0(0)_generation_4(4)', 5, NULL);",
        kernel(10, 20, 9, 1, "NULL")
    ));
    let trace = made.read().unwrap();
    let marks: Vec<(i64, Option<i64>, &str)> = trace
        .marks
        .iter()
        .map(|mark| (mark.start, mark.end, mark.text.as_str()))
        .collect();
    assert_eq!(
        marks,
        [
            (10, Some(20), "execute_context_1(8)_generation_2(2)"),
            (30, None, "execute_context_0(0)_generation_4(4)"),
        ]
    );
}

#[test]
fn several_files_are_lanes_of_one_trace_with_common_names() {
    let names = ["nsys-ai-mfu_2gpu_before", "nsys-ai-mfu_2gpu_after"];
    let both = read(&names.map(capture), &ReadOptions::default()).unwrap();
    let back = read(
        &[capture(names[1]), capture(names[0])],
        &ReadOptions::default(),
    )
    .unwrap();
    assert_eq!(
        both.lanes
            .iter()
            .map(|lane| lane.id.file)
            .collect::<Vec<_>>(),
        [0, 0, 1, 1]
    );
    assert_eq!(both.names, back.names);
    assert!(both.lanes[0].ops == back.lanes[2].ops);
    let alone = read_capture(names[1]);
    assert_eq!(both.lanes[2].ops.len(), alone.lanes[0].ops.len());
    assert!(codes(&both).contains(&"separate_clocks"));
}

#[test]
fn the_order_of_rows_and_of_string_ids_does_not_matter() {
    let (_dir, path) = unpacked("nsys-ai-mfu_2gpu_before");
    let expected = read(std::slice::from_ref(&path), &ReadOptions::default()).unwrap();
    let reversed = |table: &str| {
        format!(
            "CREATE TABLE old AS SELECT * FROM {table} ORDER BY rowid DESC; DELETE FROM {table};
             INSERT INTO {table} SELECT * FROM old; DROP TABLE old;"
        )
    };
    sql(
        &path,
        &format!(
            "{}{}{}
             UPDATE StringIds SET id = -id - 1;
             UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = -demangledName - 1, shortName = -shortName - 1;
             UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET nameId = -nameId - 1;",
            reversed("CUPTI_ACTIVITY_KIND_KERNEL"),
            reversed("CUPTI_ACTIVITY_KIND_MEMCPY"),
            reversed("CUPTI_ACTIVITY_KIND_RUNTIME"),
        ),
    );
    let shuffled = read(&[path], &ReadOptions::default()).unwrap();
    assert_eq!(shuffled.names, expected.names);
    assert!(shuffled.lanes == expected.lanes, "lanes differ");
    assert!(shuffled.processes == expected.processes, "launches differ");
}
