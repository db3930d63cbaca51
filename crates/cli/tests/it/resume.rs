//! Runs that were stopped or killed, and going on with them.

use std::process::Stdio;

use linktax_mockserver::MockConfig;
use linktax_records::{CellStatus, RunStatus};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::rig::{Guarded, Ran, Rig, SMALL, fast};

/// Two cells of a quarter of a second a request.
const FLAGS: [&str; 8] = [
    "--concurrency",
    "4,1",
    "--requests",
    "4",
    "--input-len",
    "32",
    "--output-len",
    "40",
];

fn slow() -> MockConfig {
    MockConfig {
        ttft_ms: 10.0,
        step_ms: 6.0,
        ..MockConfig::default()
    }
}

/// Starts a run and waits until its second cell has a measured record.
fn started(rig: &Rig) -> Guarded {
    let url = rig.url();
    let child = rig
        .command(&rig.bench_args("run", &FLAGS, &url))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let records = rig.path("run").join("requests.jsonl");
    crate::rig::wait_for("a record of the second cell", || {
        let text = std::fs::read_to_string(&records).unwrap_or_default();
        text.lines()
            .any(|l| l.starts_with("{\"cell\":1,") && l.contains("\"measured\""))
    });
    Guarded(child)
}

fn finish(mut child: Guarded) -> Ran {
    let read = |from: &mut dyn std::io::Read| {
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        text
    };
    let out = read(child.0.stdout.as_mut().unwrap());
    let err = read(child.0.stderr.as_mut().unwrap());
    let code = child.0.wait().unwrap().code();
    Ran { code, out, err }
}

/// Resumes, and checks that the complete cell was kept and the other one finished.
fn finishes(rig: &Rig) {
    let before = rig.run_json("run");
    let ran = rig.run(&[
        "bench",
        "--out",
        "run",
        "--resume",
        "-q",
        "--vllm-json",
        "vllm.json",
    ]);
    let run = rig.manifest("run");
    assert_eq!(ran.reasons(&run), [[""; 0], [""; 0]]);
    assert_eq!(run.status, RunStatus::Complete);
    assert_eq!(
        rig.run_json("run")["cells"][0],
        before["cells"][0],
        "a complete cell is kept"
    );
    assert_eq!(run.cells[1].attempt, 1);
    let results = run.cells[1].results.as_ref().unwrap();
    assert_eq!(results["completed"], 4);
    assert_eq!(rig.run(&["summarize", "run"]).code, ran.code);
    let lines = std::fs::read_to_string(rig.path("vllm.json")).unwrap();
    assert_eq!(
        lines.lines().count(),
        2,
        "the file has the cells from before, too"
    );
}

#[test]
fn ctrl_c_keeps_what_was_measured_and_resume_finishes_it() {
    let rig = Rig::new(slow());
    let child = started(&rig);
    kill_process(Pid::from_child(&child.0), Signal::INT).unwrap();
    let ran = finish(child);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(
        ran.out.contains("! INCOMPLETE: 1 of 2 cells"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("run directory: run"), "{}", ran.out);

    let run = rig.manifest("run");
    assert_eq!(run.status, RunStatus::Incomplete);
    assert_eq!(run.cells[0].status, CellStatus::Complete);
    assert_eq!(run.cells[1].status, CellStatus::Incomplete);
    let reasons = &run.cells[1].verdict.as_ref().unwrap().reasons;
    assert!(reasons.iter().any(|r| r.code == "stopped"), "{reasons:?}");
    assert!(run.cells[1].results.as_ref().unwrap()["completed"].as_u64() >= Some(1));
    finishes(&rig);
}

#[test]
fn a_kill_leaves_a_readable_run_and_resume_finishes_it() {
    let rig = Rig::new(slow());
    let child = started(&rig);
    kill_process(Pid::from_child(&child.0), Signal::KILL).unwrap();
    assert_eq!(finish(child).code, None);

    let ran = rig.run(&["summarize", "run"]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(
        ran.out.contains("! INCOMPLETE: 1 of 2 cells"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains(": incomplete: "), "{}", ran.out);
    let json = rig.run(&["summarize", "run", "--json"]);
    let run: Value = serde_json::from_str(&json.out).unwrap();
    assert!(run["cells"][1]["results"]["completed"].as_u64() >= Some(1));
    finishes(&rig);
}

#[test]
fn a_complete_run_has_nothing_left_and_its_own_verdict() {
    let mut rig = Rig::new(fast());
    let ran = rig.bench("run", &SMALL);
    let before = rig.read("run", "run.json");
    rig.stop_server();
    let again = rig.run(&["bench", "--out", "run", "--resume"]);
    assert_eq!(again.code, ran.code);
    assert_eq!(
        again.err,
        "every cell of this run is complete: nothing is left to run\n"
    );
    assert_eq!(again.out, ran.out);
    assert_eq!(rig.read("run", "run.json"), before);
}

#[test]
fn only_a_run_can_be_resumed_and_only_as_it_was_begun() {
    let rig = Rig::new(fast());
    std::fs::create_dir(rig.path("empty")).unwrap();
    rig.run(&["bench", "--out", "empty", "--resume"])
        .refused(&["empty: holds no run.json"]);
    assert_eq!(rig.files().len(), 1, "{:?}", rig.files());
    rig.run(&["bench", "--out", "missing", "--resume"])
        .refused(&["missing"]);
    rig.run(&["bench", "--resume"]).refused(&["--out"]);
    rig.bench("run", &SMALL);
    for flag in [
        &["--concurrency", "3"][..],
        &["--stall-gap", "1s"],
        &["--gpus", "2"],
        &["--goodput", "ttft:1"],
        &["--mock"],
        &["--threads", "2"],
    ] {
        let args = [&["bench", "--out", "run", "--resume"], flag].concat();
        rig.run(&args).refused(&["--resume", flag[0]]);
    }
    let again = [&["bench", "--mock", "--out", "run"][..], &SMALL].concat();
    rig.run(&again)
        .refused(&["run: already holds a run", "--resume"]);
}

#[test]
fn a_header_of_the_run_must_be_given_again() {
    let rig = Rig::new(slow());
    let url = rig.url();
    let mut args = rig.bench_args("run", &FLAGS, &url);
    args.extend(["--header", "X-Team=blue"]);
    let child = Guarded(rig.command(&args).stdout(Stdio::null()).spawn().unwrap());
    crate::rig::wait_for("run.json", || rig.path("run").join("run.json").exists());
    drop(child);
    rig.run(&["bench", "--out", "run", "--resume"])
        .refused(&["--header X-Team"]);
}
