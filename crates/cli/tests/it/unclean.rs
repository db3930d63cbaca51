//! Runs that are not clean: exit code 1, with the reason on top.

use linktax_mockserver::{Fault, FaultKind, MockConfig};

use crate::rig::{Rig, SMALL, fast, number};

fn faulty(fault: Fault) -> Rig {
    Rig::new(MockConfig {
        fault: vec![fault],
        ..fast()
    })
}

#[test]
fn fr_05_failures_are_flagged_on_top_and_exit_with_1() {
    // The probe is the first request; of the eight measured ones the 4th and 8th fail.
    let rig = faulty(Fault {
        every: Some(4),
        skip_first: 1,
        after_tokens: 2,
        ..Fault::always(FaultKind::ErrorFrame)
    });
    let ran = rig.bench("run", &SMALL);
    let run = rig.manifest("run");
    assert_eq!(ran.reasons(&run), [["failures"]]);
    assert_eq!(
        (number(&run, 0, "completed"), number(&run, 0, "failed")),
        (6.0, 2.0)
    );
    let second = ran.out.lines().nth(1).unwrap();
    assert!(
        second.starts_with("! cell 1 (flagged): failures: 2 of 8 requests failed (25.0 %)"),
        "{second}"
    );
    let third = ran.out.lines().nth(2).unwrap();
    let first = "! cell 1: first_failure: request 3, error_in_stream: ";
    assert!(third.starts_with(first), "{third}");
    let again = rig.run(&["summarize", "run"]);
    assert_eq!(again.code, Some(1));
    assert!(ran.out.starts_with(&again.out), "{}", again.out);

    let allowed = [&SMALL[..], &["--max-failures", "2"]].concat();
    let ran = rig.bench("allowed", &allowed);
    assert_eq!(ran.reasons(&rig.manifest("allowed")), [[""; 0]]);
}

#[test]
fn a_server_that_fails_every_time_makes_an_invalid_cell() {
    let rig = faulty(Fault {
        skip_first: 1,
        ..Fault::always(FaultKind::HttpError)
    });
    let ran = rig.bench("run", &SMALL);
    let run = rig.manifest("run");
    assert_eq!(ran.reasons(&run), [["nothing_completed", "failures"]]);
    assert!(
        ran.out.contains("! cell 1 (invalid): nothing_completed: "),
        "{}",
        ran.out
    );
    assert_eq!(ran.err, "", "a failed request is data");
}

#[test]
fn a_reason_of_several_cells_is_told_once() {
    let rig = Rig::new(MockConfig {
        preemptions_per_request: 1,
        ..fast()
    });
    let flags = [
        "--concurrency",
        "1,2,4",
        "--requests",
        "8",
        "--input-len",
        "32",
        "--output-len",
        "4",
    ];
    let ran = rig.bench("run", &flags);
    let run = rig.manifest("run");
    assert_eq!(ran.reasons(&run), [["preemptions"]; 3]);
    let told: Vec<&str> = ran
        .out
        .lines()
        .filter(|l| l.contains(": preemptions: "))
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("! cells 1, 2, 3 (flagged): preemptions: "),
        "{told:?}"
    );
}

#[test]
fn answers_that_end_early_are_not_completed() {
    let rig = faulty(Fault {
        skip_first: 1,
        after_tokens: 3,
        every: Some(8),
        ..Fault::always(FaultKind::Short)
    });
    let ran = rig.bench("run", &SMALL);
    let run = rig.manifest("run");
    assert_eq!(ran.reasons(&run), [["failures"]]);
    assert!(ran.out.contains("short_output 1"), "{}", ran.out);
}
