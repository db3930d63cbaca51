//! The server's profiling hooks.

use linktax_loadgen::{LoadPlan, Run, Secrets};
use linktax_mockserver::MockConfig;
use linktax_records::{Load, Nanos};

use crate::harness::{cell, closed, plan, quick, run, spawn};

fn profiled(url: String, concurrency: u32, requests: u64) -> LoadPlan {
    let mut spec = closed(concurrency, requests);
    spec.output_len = Some(200);
    LoadPlan {
        profile_s: Some(0.02),
        ..plan(url, spec)
    }
}

#[test]
fn the_hooks_are_called_once_all_requests_are_decoding() {
    let mock = spawn(MockConfig {
        record_requests: true,
        ..quick()
    });
    let ran = run(profiled(mock.base_url(), 4, 4));
    ran.assert_all_completed(4);
    assert!(
        ran.note("profiled")
            .is_some_and(|n| n.contains("was profiled from")),
        "{:?}",
        ran.cell.notes
    );
    let recorded = mock.shutdown().recorded;
    let at = |path: &str| -> Vec<Nanos> {
        let hits = recorded.iter().filter(|r| r.path == path);
        hits.map(|r| r.arrival).collect()
    };
    let (start, stop) = (at("/start_profile"), at("/stop_profile"));
    assert_eq!((start.len(), stop.len()), (1, 1));
    // No first token comes before the 2 ms of the mock, and the profile lasts at least as long as asked.
    let last_request = at("/v1/completions").into_iter().max().unwrap();
    assert!(start[0] >= last_request + Nanos::from_millis(2));
    assert!(stop[0] >= start[0] + Nanos::from_millis(20));
}

#[test]
fn a_cell_whose_requests_never_decode_together_is_not_profiled() {
    let mock = spawn(MockConfig {
        record_requests: true,
        ..quick()
    });
    // Two streams, one request.
    let ran = run(profiled(mock.base_url(), 2, 1));
    assert!(
        ran.note("profile_not_taken")
            .is_some_and(|n| n.contains("all 2 requests")),
        "{:?}",
        ran.cell.notes
    );
    let recorded = mock.shutdown().recorded;
    assert!(recorded.iter().all(|r| !r.path.ends_with("_profile")));
}

#[test]
fn an_open_loop_cannot_be_profiled() {
    let rate = Load::Rate {
        per_second: 10.0,
        burstiness: None,
        max_concurrency: None,
    };
    let plan = LoadPlan {
        profile_s: Some(1.0),
        ..plan("http://127.0.0.1:9", cell(rate, Some(1)))
    };
    let Err(error) = Run::prepare(plan, &Secrets::default()) else {
        panic!("the plan was accepted")
    };
    assert!(error.to_string().starts_with("--profile: "), "{error}");
}
