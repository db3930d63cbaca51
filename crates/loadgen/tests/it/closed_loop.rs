use std::collections::BTreeSet;

use linktax_loadgen::LoadPlan;
use linktax_mockserver::MockConfig;
use linktax_records::{Load, Phase};

use crate::harness::{PROBES, cell, closed, connections, header, plan, quick, run, sent, spawn};

#[test]
fn a_closed_loop_keeps_exactly_its_concurrency_in_flight() {
    let server = spawn(MockConfig {
        ttft_ms: 20.0,
        step_ms: 5.0,
        record_requests: true,
        ..MockConfig::default()
    });
    let ran = run(plan(server.base_url(), closed(8, 64)));
    ran.assert_all_completed(64);
    let stats = server.shutdown();
    assert_eq!(stats.peak_streams, 8);
    assert_eq!(stats.requests, 64 + PROBES);
    assert_eq!((stats.aborted, stats.faults), (0, 0));

    // The mean over the window, from the client's own times: eight, less the gaps and the last wave's tail.
    let records = ran.measured();
    let busy: u64 = records
        .iter()
        .map(|r| (r.t_done_ns - r.t_sent_ns.unwrap()).as_nanos())
        .sum();
    let first = records.iter().filter_map(|r| r.t_sent_ns).min().unwrap();
    let last = records.iter().map(|r| r.t_done_ns).max().unwrap();
    let mean = busy as f64 / (last - first).as_nanos() as f64;
    assert!((6.0..=8.0).contains(&mean), "{mean}");

    // One connection a stream, all open before the clock started.
    let sent = sent(&stats);
    assert_eq!(connections(&sent).len(), 8);
    assert!(records.iter().all(|r| !r.reconnected));
    assert_eq!(ran.cell.client.reconnects, 0);
}

#[test]
fn every_request_is_sent_once_under_an_id_of_its_own() {
    let server = spawn(MockConfig {
        record_requests: true,
        ..quick()
    });
    let ran = run(LoadPlan {
        num_warmups: None,
        nonce: 0xabc,
        ..plan(server.base_url(), closed(3, 12))
    });
    ran.assert_all_completed(12);
    let stats = server.shutdown();
    let sent = sent(&stats);
    let ids: BTreeSet<&str> = sent.iter().map(|s| s.id.as_str()).collect();
    // As many warm-ups as streams, unless told otherwise.
    assert_eq!((sent.len(), ids.len()), (15, 15));
    let recorded: BTreeSet<&str> = ran.records.iter().map(|r| r.request_id.as_str()).collect();
    assert_eq!(recorded, ids);
    assert!(ids.contains("linktax-0000000000000abc-0.0-m11"), "{ids:?}");

    let warmups: Vec<u64> = ran.phase(Phase::Warmup).iter().map(|r| r.index).collect();
    assert_eq!(warmups.len(), 3);
    assert_eq!(
        ran.phases,
        [(Phase::Warmup, Some(3)), (Phase::Measured, Some(12))]
    );
    // Warm-up prompts are not those that are measured, and no two are equal.
    let prompts: BTreeSet<Vec<u64>> = sent.iter().map(|s| s.prompt()).collect();
    assert_eq!(prompts.len(), 15);
    // The connections of the warm-up are used again.
    assert_eq!(connections(&sent).len(), 3);
}

#[test]
fn each_request_of_a_stream_is_due_when_the_last_one_ended() {
    let server = spawn(quick());
    let ran = run(plan(server.base_url(), closed(1, 5)));
    ran.assert_all_completed(5);
    for pair in ran.measured().windows(2) {
        assert!(pair[1].t_sched_ns >= pair[0].t_done_ns);
        assert!(pair[1].t_sent_ns.unwrap() >= pair[1].t_sched_ns);
    }
    for r in ran.measured() {
        let sent = r.t_sent_ns.unwrap();
        let headers = r.t_headers_ns.unwrap();
        assert!(sent <= headers && headers <= r.t_done_ns);
        assert!(sent + r.reads.last_token().unwrap() <= r.t_done_ns);
        // The first token cannot come before the server's own schedule.
        assert!(
            r.reads.first_token().unwrap().as_millis_f64() >= 2.0,
            "{r:?}"
        );
    }
}

#[test]
fn several_threads_share_the_requests_without_losing_any() {
    let server = spawn(MockConfig {
        record_requests: true,
        ttft_ms: 20.0,
        ..quick()
    });
    let ran = run(LoadPlan {
        threads: 2,
        ..plan(server.base_url(), closed(5, 31))
    });
    ran.assert_all_completed(31);
    assert_eq!(ran.cell.client.threads, 2);
    let stats = server.shutdown();
    assert_eq!(stats.peak_streams, 5);
    assert_eq!(connections(&sent(&stats)).len(), 5);
}

#[test]
fn more_streams_than_requests_send_each_once() {
    let server = spawn(quick());
    let ran = run(plan(server.base_url(), closed(8, 3)));
    ran.assert_all_completed(3);
    assert_eq!(server.shutdown().requests, 3 + PROBES);
}

#[test]
fn replicas_are_dealt_requests_in_turn() {
    let servers = [0, 1].map(|_| {
        spawn(MockConfig {
            record_requests: true,
            ..quick()
        })
    });
    let ran = run(LoadPlan {
        base_urls: servers.iter().map(|s| s.base_url()).collect(),
        ..plan("", closed(4, 11))
    });
    ran.assert_all_completed(11);
    for r in ran.measured() {
        assert_eq!(u64::from(r.replica), r.index % 2);
    }
    for (replica, server) in servers.into_iter().enumerate() {
        let stats = server.shutdown();
        let sent = sent(&stats);
        assert_eq!(sent.len(), [6, 5][replica]);
        let host = header(&sent[0].raw, "host").unwrap();
        for s in &sent {
            let index: u64 = s.id.rsplit_once('m').unwrap().1.parse().unwrap();
            assert_eq!(index % 2, replica as u64, "{}", s.id);
            assert_eq!(header(&s.raw, "host"), Some(host));
        }
    }
}

#[test]
fn a_cell_bounded_by_time_starts_nothing_after_it_and_lets_the_rest_finish() {
    let server = spawn(MockConfig {
        ttft_ms: 600.0,
        ..quick()
    });
    let mut spec = cell(Load::Concurrency(3), None);
    spec.duration_s = Some(0.1);
    let ran = run(plan(server.base_url(), spec));
    // Each stream's first request outlasts the cell, and is neither cut nor followed by another.
    ran.assert_all_completed(3);
    assert_eq!(ran.phases, [(Phase::Measured, None)]);
    assert_eq!(server.shutdown().requests, 3 + PROBES);
}

#[test]
fn a_cell_bounded_by_time_goes_on_until_then() {
    let server = spawn(quick());
    let mut spec = cell(Load::Concurrency(2), None);
    spec.duration_s = Some(0.4);
    let ran = run(plan(server.base_url(), spec));
    let records = ran.measured();
    ran.assert_all_completed(records.len() as u64);
    assert!(records.len() > 2, "{}", records.len());
    let end = records.iter().map(|r| r.t_done_ns).max().unwrap();
    let start = records.iter().map(|r| r.t_sched_ns).min().unwrap();
    // A timer never fires early, so the last answer is not older than the cell.
    assert!((end - start).as_millis_f64() >= 390.0);
    assert!(ran.cell.client.wall_s >= 0.4);
}
