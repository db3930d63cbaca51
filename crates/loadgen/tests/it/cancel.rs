use linktax_loadgen::{Event, LoadPlan, Run, Secrets, Stop};
use linktax_mockserver::MockConfig;
use linktax_records::{Load, Outcome, Phase};
use std::ops::ControlFlow;
use tokio::sync::watch;

use crate::harness::{PROBES, cell, closed, plan, quick, run_cell, run_with, spawn};

/// Answers that take minutes, so that only a cancellation ends them.
fn endless() -> MockConfig {
    MockConfig {
        ttft_ms: 1.0,
        step_ms: 20.0,
        ..MockConfig::default()
    }
}

#[test]
fn a_stop_cancels_what_is_under_way_and_keeps_what_was_read() {
    let server = spawn(endless());
    let mut spec = closed(4, 100);
    spec.output_len = Some(100_000);
    let mut probe_tokens = None;
    let ran = run_with(
        plan(server.base_url(), spec),
        &Secrets::default(),
        &mut |event, stop| {
            let tokens = server.stats().tokens;
            let before = *probe_tokens.get_or_insert(tokens);
            // By then every stream has had several tokens: they advance together.
            if matches!(event, Event::Tick { running: 4, .. }) && tokens >= before + 40 {
                stop.send_replace(Stop::All);
            }
        },
    );
    let records = ran.measured();
    assert_eq!(ran.outcomes(), [Outcome::Cancelled; 4]);
    for r in &records {
        assert!(
            r.reads.counted_tokens() > 0 && r.t_headers_ns.is_some(),
            "{r:?}"
        );
        assert!(!r.outcome.is_failure());
        assert!(r.finish_reason.is_none() && !r.done_marker);
    }
    assert!(!ran.cell.complete);
    assert!(ran.note("stopped").is_some());
    // The server sees the clients leave; it may take note a moment later.
    let stats = server.shutdown();
    assert_eq!(stats.requests, 4 + PROBES);
    assert_eq!(stats.completed, PROBES);
}

#[test]
fn breaking_from_the_callback_stops_everything() {
    let server = spawn(quick());
    let plan = plan(server.base_url(), closed(2, 1_000_000));
    let run = Run::prepare(plan.clone(), &Secrets::default()).unwrap();
    let (stop, _keep) = watch::channel(Stop::Run);
    let mut records = 0;
    let ran = run
        .run_cell(&plan.cells[0], 0, &stop, &mut |event| match event {
            Event::Record(_) => {
                records += 1;
                if records == 5 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            }
            _ => ControlFlow::Continue(()),
        })
        .unwrap();
    assert!(!ran.complete);
    assert_eq!(*stop.borrow(), Stop::All);
    assert!(records >= 5);
}

#[test]
fn a_stopped_run_starts_no_further_cell() {
    let server = spawn(quick());
    let plan = LoadPlan {
        num_warmups: None,
        ..plan(server.base_url(), closed(2, 4))
    };
    let run = Run::prepare(plan.clone(), &Secrets::default()).unwrap();
    let (stop, _keep) = watch::channel(Stop::All);
    let ran = run_cell(&run, &plan.cells[0], &stop, &mut |_, _| {});
    assert!(ran.records.is_empty(), "{:?}", ran.records);
    assert!(!ran.cell.complete);
    assert_eq!(server.shutdown().requests, PROBES);
}

#[test]
fn stopping_one_cell_leaves_the_others() {
    let server = spawn(MockConfig {
        step_ms: 20.0,
        ..quick()
    });
    let mut long = closed(2, 10);
    long.output_len = Some(100_000);
    let mut second = closed(2, 4);
    second.index = 1;
    let mut plan = plan(server.base_url(), long);
    plan.cells.push(second);
    let run = Run::prepare(plan.clone(), &Secrets::default()).unwrap();
    let (stop, _keep) = watch::channel(Stop::Run);
    let ran = run_cell(&run, &plan.cells[0], &stop, &mut |event, stop| {
        if matches!(event, Event::Tick { running: 2, .. }) {
            stop.send_replace(Stop::Cell);
        }
    });
    assert_eq!(ran.outcomes(), [Outcome::Cancelled; 2]);
    assert!(!ran.cell.complete);

    // The caller takes the signal back and goes on.
    stop.send_replace(Stop::Run);
    let ran = run_cell(&run, &plan.cells[1], &stop, &mut |_, _| {});
    ran.assert_all_completed(4);
    assert!(ran.records.iter().all(|r| r.cell == 1));
}

#[test]
fn requests_waiting_under_the_cap_are_not_sent_after_a_stop() {
    let server = spawn(endless());
    let load = Load::Rate {
        per_second: 2000.0,
        burstiness: None,
        max_concurrency: Some(2),
    };
    let mut spec = cell(load, Some(40));
    spec.output_len = Some(100_000);
    let mut ticks = 0;
    let ran = run_with(
        plan(server.base_url(), spec),
        &Secrets::default(),
        &mut |event, stop| {
            if matches!(event, Event::Tick { running: 2, .. }) {
                ticks += 1;
            }
            // A tick is 100 ms: all forty have been due for long.
            if ticks == 2 {
                stop.send_replace(Stop::All);
            }
        },
    );
    assert_eq!(server.shutdown().requests, 2 + PROBES);
    // Cancelled is what was under way; the other 38 never were.
    assert_eq!(ran.outcomes(), [Outcome::Cancelled; 2]);
    assert!(!ran.cell.complete);
}

#[test]
fn a_server_that_is_gone_ends_the_cell_and_not_the_run() {
    let server = spawn(quick());
    let plan = plan(server.base_url(), closed(16, 100_000));
    let run = Run::prepare(plan.clone(), &Secrets::default()).unwrap();
    drop(server);
    let (stop, _keep) = watch::channel(Stop::Run);
    let ran = run_cell(&run, &plan.cells[0], &stop, &mut |_, _| {});
    assert!(!ran.cell.complete);
    let note = ran.note("server_gone").unwrap();
    assert!(
        note.contains("64 connects") || note.contains("connects in a row"),
        "{note}"
    );
    assert!(
        (64..=64 + 16).contains(&ran.records.len()),
        "{}",
        ran.records.len()
    );
    for r in &ran.records {
        assert_eq!(r.outcome, Outcome::ConnectError);
        assert_eq!((r.t_sent_ns, r.t_headers_ns), (None, None));
        let message = &r.failure.as_ref().unwrap().message;
        assert!(
            message.contains("cannot connect to http://127.0.0.1:") && message.contains("refused"),
            "{message}"
        );
    }
    // The next cell finds out for itself.
    assert_eq!(*stop.borrow(), Stop::Run);
}

#[test]
fn a_server_that_dies_in_mid_run_fails_what_it_had_and_then_is_gone() {
    let mut server = Some(spawn(quick()));
    let url = server.as_ref().unwrap().base_url();
    let mut seen = 0;
    let ran = run_with(
        plan(url, closed(8, 100_000)),
        &Secrets::default(),
        &mut |event, _| {
            seen += u32::from(matches!(event, Event::Record(_)));
            if seen == 40 {
                drop(server.take());
            }
        },
    );
    assert!(ran.note("server_gone").is_some(), "{:?}", ran.cell.notes);
    let count = |o| ran.outcomes().iter().filter(|x| **x == o).count();
    assert!(count(Outcome::Completed) >= 40);
    assert!(count(Outcome::ConnectError) >= 64);
    for r in ran.measured() {
        assert!(
            matches!(
                r.outcome,
                Outcome::Completed | Outcome::ConnectError | Outcome::Truncated | Outcome::Reset
            ),
            "{r:?}"
        );
    }
}

#[test]
fn connections_closed_while_idle_are_replaced_before_the_clock_starts() {
    let server = spawn(MockConfig {
        keep_alive_timeout_ms: 100.0,
        ..quick()
    });
    let ran = run_with(
        LoadPlan {
            num_warmups: None,
            ..plan(server.base_url(), closed(3, 9))
        },
        &Secrets::default(),
        &mut |event, _| {
            if let Event::Phase {
                phase: Phase::Measured,
                ..
            } = event
            {
                // The streams hold open connections and wait for the start; the server loses patience.
                std::thread::sleep(std::time::Duration::from_millis(500));
            }
        },
    );
    ran.assert_all_completed(9);
    let reconnected: Vec<u64> = ran
        .measured()
        .iter()
        .filter(|r| r.reconnected)
        .map(|r| r.index)
        .collect();
    assert!(reconnected.starts_with(&[0, 1, 2]), "{reconnected:?}");
}
