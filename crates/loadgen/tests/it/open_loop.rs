use std::collections::BTreeSet;
use std::io::Write;

use linktax_loadgen::LoadPlan;
use linktax_loadgen::workload::{WorkloadKind, WorkloadSpec, arrivals::schedule};
use linktax_mockserver::MockConfig;
use linktax_records::{CacheMode, Load, Nanos};

use crate::harness::{PROBES, Ran, cell, connections, plan, quick, run, sent, spawn};

fn rate(per_second: f64, burstiness: Option<f64>, max_concurrency: Option<u32>) -> Load {
    Load::Rate {
        per_second,
        burstiness,
        max_concurrency,
    }
}

/// When each request was due, from the first one on, by index.
fn due(ran: &Ran) -> Vec<Nanos> {
    let measured = ran.measured();
    let first = measured[0].t_sched_ns;
    measured.iter().map(|r| r.t_sched_ns - first).collect()
}

#[test]
fn fr_09_requests_are_due_at_absolute_times() {
    // The reported case: its last request is due at 4.995 s, however long the sends take.
    let times: Vec<Nanos> = schedule(200.0, None, Some(1000), 0).unwrap().collect();
    assert_eq!(times[999], Nanos::from_millis(4995));
    let slow: Vec<Nanos> = schedule(0.4, None, Some(5), 0).unwrap().collect();
    assert_eq!(slow[4], Nanos::from_secs(10));

    // The engine keeps to such a schedule to the nanosecond: 200 requests, 0.8 ms apart.
    let server = spawn(quick());
    let ran = run(plan(
        server.base_url(),
        cell(rate(1250.0, None, None), Some(200)),
    ));
    ran.assert_all_completed(200);
    let expected: Vec<Nanos> = (0..200).map(|i| Nanos::from_micros(800 * i)).collect();
    assert_eq!(due(&ran), expected);
    for r in ran.measured() {
        assert!(r.t_sent_ns.unwrap() >= r.t_sched_ns, "{r:?}");
    }
    assert_eq!(server.shutdown().requests, 200 + PROBES);
}

#[test]
fn fr_09_random_arrivals_are_those_of_the_schedule_for_any_number_of_threads() {
    for threads in [1, 3] {
        let server = spawn(quick());
        let ran = run(LoadPlan {
            seed: 77,
            threads,
            ..plan(
                server.base_url(),
                cell(rate(400.0, Some(1.0), None), Some(60)),
            )
        });
        ran.assert_all_completed(60);
        let expected: Vec<Nanos> = schedule(400.0, Some(1.0), Some(60), 77).unwrap().collect();
        assert_eq!(due(&ran), expected);
    }
}

#[test]
fn waiting_for_a_free_place_under_the_cap_counts_as_latency() {
    let server = spawn(MockConfig {
        ttft_ms: 40.0,
        step_ms: 2.0,
        record_requests: true,
        ..MockConfig::default()
    });
    let load = rate(400.0, None, Some(2));
    let ran = run(plan(server.base_url(), cell(load, Some(12))));
    ran.assert_all_completed(12);
    let expected: Vec<Nanos> = (0..12).map(|i| Nanos::from_micros(2500 * i)).collect();
    assert_eq!(due(&ran), expected);
    let stats = server.shutdown();
    assert_eq!(stats.peak_streams, 2);
    // Six rounds of at least 50 ms each: the last request is due after 27.5 ms and sent after 250 ms at the earliest.
    let latest = ran
        .measured()
        .iter()
        .map(|r| {
            let sent = r.t_sent_ns.unwrap();
            assert!(sent >= r.t_sched_ns);
            sent - r.t_sched_ns
        })
        .max()
        .unwrap();
    assert!(latest.as_millis_f64() >= 220.0, "{latest}");
    // Those that wait hold no connection: the cap's own are used again and again.
    assert_eq!(connections(&sent(&stats)).len(), 2);
    assert_eq!(ran.cell.client.reconnects, 0);
}

#[test]
fn an_open_loop_bounded_by_time_takes_the_requests_due_by_then() {
    let server = spawn(quick());
    let mut spec = cell(rate(200.0, None, None), None);
    spec.duration_s = Some(0.2);
    let ran = run(plan(server.base_url(), spec));
    let times = due(&ran);
    ran.assert_all_completed(times.len() as u64);
    // Forty are due before 0.2 s, however late some of them are sent.
    let expected: Vec<Nanos> = (0..40).map(|i| Nanos::from_millis(5 * i)).collect();
    assert_eq!(times, expected);
}

#[test]
fn a_trace_is_replayed_at_its_own_times() {
    let stamps_ms = [1000u64, 1030, 1030, 1105, 1260, 1600];
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for (i, t) in stamps_ms.iter().enumerate() {
        let (input, output) = (600 + i, 2 + i);
        writeln!(
            file,
            r#"{{"timestamp": {t}, "input_length": {input}, "output_length": {output}, "hash_ids": [0, {}]}}"#,
            i + 1
        )
        .unwrap();
    }
    let server = spawn(MockConfig {
        record_requests: true,
        ..quick()
    });
    let speedup = 3.0;
    let mut spec = cell(
        Load::Trace {
            speedup,
            max_concurrency: None,
        },
        None,
    );
    (spec.input_len, spec.output_len) = (None, None);
    spec.cache = CacheMode::Workload;
    let ran = run(LoadPlan {
        workload: WorkloadSpec {
            kind: WorkloadKind::Trace,
            path: Some(file.path().to_owned()),
            ..WorkloadSpec::default()
        },
        ..plan(server.base_url(), spec)
    });
    ran.assert_all_completed(6);
    let expected: Vec<Nanos> = stamps_ms
        .iter()
        .map(|t| Nanos::from_secs_f64((t - 1000) as f64 / 1e3 / speedup))
        .collect();
    assert_eq!(due(&ran), expected);
    for (i, r) in (0..).zip(ran.measured()) {
        assert!(r.t_sent_ns.unwrap() >= r.t_sched_ns);
        let usage = r.usage.unwrap();
        assert_eq!(
            (usage.prompt_tokens, usage.completion_tokens),
            (600 + i, 2 + i)
        );
    }
    // Equal hashes are equal blocks: all share the first 512 tokens and nothing after them.
    let stats = server.shutdown();
    let prompts: Vec<Vec<u64>> = sent(&stats).iter().map(|s| s.prompt()).collect();
    let heads: BTreeSet<&[u64]> = prompts.iter().map(|p| &p[..512]).collect();
    let tails: BTreeSet<&[u64]> = prompts.iter().map(|p| &p[512..600]).collect();
    assert_eq!((heads.len(), tails.len()), (1, 6));
}
