//! A scrubbed export holds no secret of its input and gives the same lanes.

use std::path::Path;

use linktax_trace::{ReadOptions, Trace, TraceError, read, scrub};

use crate::exports::{sql, unpacked};

fn read_one(path: &Path) -> Trace {
    read(&[path.to_owned()], &ReadOptions::default()).unwrap()
}

/// Where secrets are planted: each statement puts `SECRET-n` somewhere.
const PLANTS: [&str; 17] = [
    "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE_3', 'HF_TOKEN=SECRET')",
    "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ARGUMENT_7', '--api-key=SECRET')",
    "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:CUDA_SECRET', 'true')",
    "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:CUDA_FLUSH', 'SECRET')",
    "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_USER', 'SECRET')",
    "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PARAM_OUTPUT_PATH_ABS', '/home/SECRET/run.sqlite')",
    "INSERT INTO TARGET_INFO_SYSTEM_ENV SELECT globalVid, 'x', 'Hostname', 1, 'SECRET' FROM TARGET_INFO_SYSTEM_ENV LIMIT 1",
    "INSERT INTO StringIds VALUES (900001, 'stdout of the server: SECRET')",
    "INSERT INTO ANALYSIS_FILE VALUES (77, '/home/SECRET/streams/stdout.log', 900001, 0)",
    "INSERT INTO ProcessStreams VALUES (0, 900001, 900001)",
    "UPDATE ThreadNames SET nameId = 900001",
    "INSERT INTO NVTX_EVENTS (start, eventType, text, jsonText, textId) VALUES (1, 59, 'prompt SECRET', '{\"k\":\"SECRET\"}', 900001)",
    "UPDATE PROCESSES SET name = '/home/SECRET/bin/python serve.py'",
    "UPDATE TARGET_INFO_GPU SET uuid = 'SECRET', busLocation = 'SECRET'",
    "INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 1, 1, 2, 'cannot open /home/SECRET/x', 0), (1, 1, 1, 2, 'user SECRET', 0)",
    "CREATE TABLE A_FUTURE_TABLE (text TEXT); INSERT INTO A_FUTURE_TABLE VALUES ('SECRET')",
    "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD COLUMN comment TEXT; UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET comment = 'SECRET'",
];

fn holds(path: &Path, needle: &[u8]) -> bool {
    let bytes = std::fs::read(path).unwrap();
    bytes.windows(needle.len()).any(|window| window == needle)
}

#[test]
fn no_planted_secret_is_left_and_the_lanes_are_the_same() {
    let (dir, input) = unpacked("vllm-qwen3-4b-decode-c16");
    for (at, plant) in PLANTS.iter().enumerate() {
        sql(&input, &plant.replace("SECRET", &format!("SECRET{at}")));
    }
    let output = dir.path().join("clean.sqlite");
    let scrubbed = scrub(&input, &output).unwrap();
    assert!(holds(&input, b"SECRET"));
    assert!(!holds(&output, b"SECRET"), "{scrubbed:?}");

    let (before, after) = (read_one(&input), read_one(&output));
    assert!(before.lanes == after.lanes);
    assert!(before.names == after.names);
    assert!(before.marks == after.marks);
    assert!(before.overhead == after.overhead);
    let launches = |trace: &Trace| -> Vec<_> {
        trace
            .processes
            .iter()
            .map(|p| (p.global_pid, p.launches.clone()))
            .collect()
    };
    assert!(launches(&before) == launches(&after));

    let gone = |table: &str| scrubbed.rows.iter().find(|row| row.table == table).unwrap();
    assert_eq!(
        (gone("A_FUTURE_TABLE").before, gone("A_FUTURE_TABLE").after),
        (1, 0)
    );
    assert_eq!(gone("ThreadNames").after, 0);
    assert!(gone("META_DATA_CAPTURE").after > 0);
    assert!(
        scrubbed
            .columns
            .contains(&"CUPTI_ACTIVITY_KIND_KERNEL.comment".to_owned())
    );
}

#[test]
fn a_compressed_capture_of_two_gpus_keeps_its_lanes() {
    let dir = tempfile::tempdir().unwrap();
    let input = crate::exports::capture("nsys-ai-mfu_2gpu_before");
    let output = dir.path().join("clean.sqlite");
    scrub(&input, &output).unwrap();
    let (before, after) = (read_one(&input), read_one(&output));
    assert!(before.lanes == after.lanes);
    assert!(before.names == after.names);
    for needle in [
        &b"/root/"[..],
        b"modal",
        b"working",
        b"torchrun",
        b"DeviceEnvironment",
        b"nsight_systems",
    ] {
        assert!(
            !holds(&output, needle),
            "{}",
            String::from_utf8_lossy(needle)
        );
    }
    let again = dir.path().join("again.sqlite");
    let nothing = scrub(&output, &again).unwrap();
    assert!(nothing.rows.is_empty(), "{nothing:?}");
}

#[test]
fn an_existing_output_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("mine.sqlite");
    std::fs::write(&output, b"mine").unwrap();
    let error = scrub(
        &crate::exports::capture("torch-graph-node-nsys2025.3"),
        &output,
    )
    .unwrap_err();
    assert!(matches!(error, TraceError::Io { .. }));
    assert_eq!(std::fs::read(&output).unwrap(), b"mine");
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        1,
        "no half-written copy stays"
    );
}
