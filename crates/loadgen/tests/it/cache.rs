use std::collections::BTreeSet;

use linktax_loadgen::{Event, LoadPlan, Secrets};
use linktax_mockserver::MockConfig;
use linktax_records::{CacheMode, CellSpec, Phase};

use crate::harness::{PROBES, closed, plan, quick, run, run_with, sent, spawn};
use crate::scripted::{Say, Scripted, json, stream, whole};

fn recording() -> MockConfig {
    MockConfig {
        record_requests: true,
        ..quick()
    }
}

fn long(cache: CacheMode) -> CellSpec {
    CellSpec {
        input_len: Some(512),
        cache,
        ..closed(2, 8)
    }
}

#[test]
fn fr_10_runs_with_different_nonces_never_send_equal_prompts() {
    let server = spawn(recording());
    let mut distinct = BTreeSet::new();
    for nonce in [1, 2, 3] {
        let ran = run(LoadPlan {
            nonce,
            num_warmups: None,
            ..plan(server.base_url(), long(CacheMode::Cold))
        });
        ran.assert_all_completed(8);
        // Proved by the server: not a single block was found again.
        assert_eq!(ran.cell.server.prefix_hit_rate(), Some(0.0));
    }
    let stats = server.shutdown();
    let sent = sent(&stats);
    assert_eq!(sent.len(), 3 * 10);
    for s in &sent {
        // Not even a first block in common.
        assert!(distinct.insert(s.prompt()[..16].to_vec()), "{}", s.id);
    }
}

#[test]
fn fr_10_the_same_seed_and_nonce_repeat_a_run_and_the_counters_show_it() {
    let server = spawn(recording());
    let once = || run(plan(server.base_url(), long(CacheMode::Cold)));
    let first = once();
    let again = once();
    assert_eq!(first.cell.server.prefix_hit_rate(), Some(0.0));
    let rate = again.cell.server.prefix_hit_rate().unwrap();
    assert!(rate > 0.9, "{rate}");
    let stats = server.shutdown();
    let prompts: Vec<_> = sent(&stats).iter().map(|s| s.prompt()).collect();
    let (a, b) = prompts.split_at(8);
    assert_eq!(
        a.iter().collect::<BTreeSet<_>>(),
        b.iter().collect::<BTreeSet<_>>()
    );
}

#[test]
fn a_warm_cell_sends_every_prompt_once_before_it_is_measured() {
    let server = spawn(recording());
    let ran = run(plan(server.base_url(), long(CacheMode::Warm)));
    ran.assert_all_completed(8);
    assert_eq!(
        ran.phases,
        [(Phase::Prime, Some(8)), (Phase::Measured, Some(8))]
    );
    for r in ran.phase(Phase::Prime) {
        assert_eq!(r.output_len, 1);
    }
    let rate = ran.cell.server.prefix_hit_rate().unwrap();
    assert!(rate > 0.9, "{rate}");
    let stats = server.shutdown();
    let prompts_of = |phase: char| -> BTreeSet<Vec<u64>> {
        let sent = sent(&stats);
        let of = sent.iter().filter(|s| s.id.contains(&format!("-{phase}")));
        of.map(|s| s.prompt()).collect()
    };
    assert_eq!(prompts_of('p'), prompts_of('m'));
    assert_eq!(prompts_of('m').len(), 8);
}

#[test]
fn a_shared_prefix_is_primed_and_found() {
    let server = spawn(recording());
    let ran = run(plan(server.base_url(), long(CacheMode::Prefix(0.5))));
    ran.assert_all_completed(8);
    assert_eq!(ran.phases[0], (Phase::Prime, Some(1)));
    // 256 of 512 tokens, which are whole blocks of 16.
    assert_eq!(ran.cell.server.prefix_hit_rate(), Some(0.5));
    let stats = server.shutdown();
    let sent = sent(&stats);
    let measured: Vec<_> = sent.iter().filter(|s| s.id.contains("-m")).collect();
    let heads: BTreeSet<_> = measured
        .iter()
        .map(|s| s.prompt()[..256].to_vec())
        .collect();
    let tails: BTreeSet<_> = measured
        .iter()
        .map(|s| s.prompt()[256..272].to_vec())
        .collect();
    assert_eq!((heads.len(), tails.len()), (1, 8));
}

#[test]
fn the_counters_are_those_of_the_measured_phase() {
    let server = spawn(MockConfig {
        preemptions_per_request: 2,
        ..quick()
    });
    let ran = run(LoadPlan {
        num_warmups: Some(5),
        ..plan(server.base_url(), closed(2, 7))
    });
    ran.assert_all_completed(7);
    let delta = &ran.cell.server;
    assert_eq!(delta.preemptions, Some(14.0));
    assert_eq!(delta.prompt_tokens, Some(7.0 * 16.0));
    assert_eq!(delta.generation_tokens, Some(7.0 * 6.0));
    assert_eq!(delta.ttft.as_ref().unwrap().count, 7.0);
    // Nobody sampled the gauges.
    assert_eq!((delta.running_peak, delta.gauge_samples), (None, 0));
    assert!(delta.unavailable.is_none());
    assert_eq!(server.shutdown().requests, 12 + PROBES);
}

#[test]
fn gauges_are_sampled_while_the_cell_runs() {
    let server = spawn(MockConfig {
        ttft_ms: 150.0,
        step_ms: 20.0,
        ..MockConfig::default()
    });
    let ran = run(LoadPlan {
        metrics_interval_s: Some(0.02),
        ..plan(server.base_url(), closed(5, 15))
    });
    ran.assert_all_completed(15);
    assert_eq!(ran.cell.server.running_peak, Some(5.0));
    assert_eq!(ran.cell.server.waiting_peak, Some(0.0));
    assert!(ran.cell.server.gauge_samples > 0);
}

#[test]
fn a_server_without_metrics_is_measured_all_the_same() {
    let server = spawn(MockConfig {
        metrics: false,
        ..quick()
    });
    let ran = run(LoadPlan {
        metrics_interval_s: Some(0.01),
        ..plan(server.base_url(), closed(2, 6))
    });
    ran.assert_all_completed(6);
    let delta = &ran.cell.server;
    let why = delta.unavailable.as_deref().unwrap();
    assert!(why.contains("/metrics") && why.contains("404"), "{why}");
    // Unknown, not zero.
    assert_eq!((delta.preemptions, delta.prefix_hit_rate()), (None, None));
    assert_eq!(delta.running_peak, None);
}

#[test]
fn counters_of_replicas_are_summed() {
    let servers = [quick(), quick()].map(spawn);
    let ran = run(LoadPlan {
        base_urls: servers.iter().map(|s| s.base_url()).collect(),
        ..plan("", closed(2, 9))
    });
    ran.assert_all_completed(9);
    assert_eq!(ran.cell.server.generation_tokens, Some(54.0));
    let raw = &ran.cell.server_raw;
    for server in &servers {
        assert!(raw["before"].get(server.base_url()).is_some(), "{raw}");
        assert!(raw["after"].get(server.base_url()).is_some());
    }
}

/// The reported page of two engines, before and after.
fn page(queries: [u64; 2], hits: [u64; 2]) -> String {
    format!(
        "# TYPE vllm:prefix_cache_queries_total counter\n\
         vllm:prefix_cache_queries_total{{engine=\"0\"}} {}\n\
         vllm:prefix_cache_queries_total{{engine=\"1\"}} {}\n\
         # TYPE vllm:prefix_cache_hits_total counter\n\
         vllm:prefix_cache_hits_total{{engine=\"0\"}} {}\n\
         vllm:prefix_cache_hits_total{{engine=\"1\"}} {}\n",
        queries[0], queries[1], hits[0], hits[1]
    )
}

/// A server whose `/metrics` says `before` until a phase's request was answered, and `after` from then on.
fn with_pages(before: String, after: String) -> Scripted {
    let answered = std::cell::Cell::new(false);
    Scripted::spawn(move |asked| {
        vec![Say::Bytes(match asked.line.as_str() {
            "GET /v1/models" => json(200, r#"{"data":[{"id":"tiny"}]}"#),
            "GET /metrics" if answered.get() => whole(200, "text/plain", &after),
            "GET /metrics" => whole(200, "text/plain", &before),
            line if line.starts_with("POST") => {
                answered.set(asked.counts());
                stream(&crate::scripted::good(6))
            }
            _ => json(404, "{}"),
        })]
    })
}

#[test]
fn fr_10_hits_are_summed_over_engines_and_a_reset_is_unknown() {
    let server = with_pages(
        page([1000, 500], [0, 100]),
        page([66536, 66036], [61000, 61100]),
    );
    let ran = run(plan(server.url(), closed(1, 1)));
    ran.assert_all_completed(1);
    let rate = ran.cell.server.prefix_hit_rate().unwrap();
    assert!((rate - 122_000.0 / 131_072.0).abs() < 1e-12, "{rate}");

    let server = with_pages(
        page([1000, 500], [0, 100]),
        page([66536, 20], [61000, 61100]),
    );
    let ran = run(plan(server.url(), closed(1, 1)));
    ran.assert_all_completed(1);
    assert_eq!(ran.cell.server.prefix_hit_rate(), None);
}

#[test]
fn failed_warm_ups_are_remarked_upon() {
    use linktax_mockserver::{Fault, FaultKind};
    let server = spawn(MockConfig {
        fault: vec![Fault {
            nth: vec![1, 2],
            every: None,
            skip_first: PROBES,
            ..Fault::always(FaultKind::HttpError)
        }],
        ..quick()
    });
    let mut warmups = 0;
    let ran = run_with(
        LoadPlan {
            num_warmups: Some(3),
            ..plan(server.base_url(), closed(1, 2))
        },
        &Secrets::default(),
        &mut |event, _| {
            if let Event::Record(r) = event {
                warmups += u32::from(r.phase == Phase::Warmup);
            }
        },
    );
    assert_eq!((warmups, ran.measured().len()), (3, 2));
    let note = ran.note("preparation_failed").unwrap();
    assert!(
        note.contains("2 of 3") && note.contains("http_error"),
        "{note}"
    );
}
