//! What is printed for input that never changes: a recorded run, the help, bad usage.

use std::path::Path;

use snapbox::{assert_data_eq, file};

use crate::rig::Rig;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/engine-run");

/// The recorded run in a scratch directory.
fn recorded() -> Rig {
    let rig = Rig::bare();
    std::fs::create_dir(rig.path("run")).unwrap();
    for name in ["run.json", "requests.jsonl"] {
        std::fs::copy(Path::new(DATA).join(name), rig.path("run").join(name)).unwrap();
    }
    rig
}

#[test]
fn a_clean_run_is_summarized_with_exit_code_0() {
    let ran = recorded().run(&["summarize", "run"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    assert_data_eq!(ran.out, file!["../data/engine-run/summary.txt"].raw());
}

#[test]
fn a_flag_can_make_it_unclean() {
    let rig = recorded();
    let text = rig.read("run", "requests.jsonl");
    let failed = text.replacen("\"outcome\":\"completed\"", "\"outcome\":\"truncated\"", 1);
    rig.write("run/requests.jsonl", &failed);
    let ran = rig.run(&["summarize", "run"]);
    assert_eq!(ran.code, Some(1));
    let lines: Vec<&str> = ran.out.lines().skip(1).take(2).collect();
    assert_eq!(
        lines,
        [
            "! cell 1 (flagged): failures: 1 of 9 requests failed (11.1 %): truncated 1",
            "! cell 1: first_failure: request 0, truncated",
        ]
    );
}

#[test]
fn a_complete_run_without_its_server_can_be_resumed_to_nothing() {
    let ran = recorded().run(&["bench", "--out", "run", "--resume", "--quiet"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.ends_with("run directory: run\n"), "{}", ran.out);
}

#[test]
fn help_and_bad_usage_are_as_documented() {
    trycmd::TestCases::new()
        .register_bin("linktax", Path::new(env!("CARGO_BIN_EXE_linktax")))
        .case("tests/cmd/*.md");
}
