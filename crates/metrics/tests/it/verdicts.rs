//! Verdicts: what flags a cell, what is only remarked on.

use linktax_metrics::{Limits, Options, judge};
use linktax_records::{
    CacheMode, CellSpec, ClientStats, HistogramDelta, Load, Outcome, RequestRecord, ServerDelta,
    SpecDecode, Usage, Verdict, VerdictStatus,
};

use crate::cells::{closed, ms, request, spec, steps, sum};

/// Eight clean requests, one after the other.
fn clean() -> Vec<RequestRecord> {
    (0..8_u32)
        .map(|i| {
            request(
                u64::from(i),
                f64::from(i) * 300.0,
                &steps(100.0, &[20.0; 9]),
            )
        })
        .collect()
}

fn quiet_client() -> ClientStats {
    ClientStats {
        loop_cpu_pct: 12.0,
        timer_lag_p99_ms: Some(0.3),
        ..ClientStats::default()
    }
}

fn cold_server() -> ServerDelta {
    ServerDelta {
        prefix_cache_queries: Some(800.0),
        prefix_cache_hits: Some(0.0),
        preemptions: Some(0.0),
        ..ServerDelta::default()
    }
}

fn verdict(records: &[RequestRecord], spec: &CellSpec, server: &ServerDelta) -> Verdict {
    let summary = sum(records, spec, &Options::default());
    judge(
        spec,
        &summary,
        Some(server),
        Some(&quiet_client()),
        &Limits::default(),
    )
}

fn with_client(client: &ClientStats) -> Verdict {
    let summary = sum(&clean(), &closed(1), &Options::default());
    judge(
        &closed(1),
        &summary,
        Some(&cold_server()),
        Some(client),
        &Limits::default(),
    )
}

fn codes(verdict: &Verdict) -> Vec<&str> {
    verdict.reasons.iter().map(|r| r.code.as_str()).collect()
}

#[track_caller]
fn note<'a>(verdict: &'a Verdict, code: &str) -> &'a str {
    let note = verdict.notes.iter().find(|n| n.code == code);
    &note
        .unwrap_or_else(|| panic!("no note {code} in {:?}", verdict.notes))
        .message
}

#[test]
fn a_clean_cell_is_valid() {
    let v = verdict(&clean(), &closed(1), &cold_server());
    assert_eq!((v.status, codes(&v)), (VerdictStatus::Valid, vec![]));
    assert!(note(&v, "percentiles").contains("p99 (needs 500)"));
    assert!(!v.notes.iter().any(|n| n.code == "few_waves"));
}

#[test]
fn fr_05_failures_flag_a_cell_and_many_make_it_invalid() {
    let mut records = clean();
    records[0].outcome = Outcome::Truncated;
    records[1].outcome = Outcome::ErrorInStream;
    let v = verdict(&records, &closed(1), &cold_server());
    assert_eq!(
        (v.status, codes(&v)),
        (VerdictStatus::Flagged, vec!["failures"])
    );
    let message = &v.reasons[0].message;
    assert!(
        message.contains("2 of 8 requests failed (25.0 %)"),
        "{message}"
    );
    assert!(
        message.contains("error_in_stream 1, truncated 1"),
        "{message}"
    );

    let lenient = Limits {
        max_failures: 2,
        ..Limits::default()
    };
    let summary = sum(&records, &closed(1), &Options::default());
    let v = judge(
        &closed(1),
        &summary,
        Some(&cold_server()),
        Some(&quiet_client()),
        &lenient,
    );
    assert_eq!(v.status, VerdictStatus::Valid);

    records[2..6]
        .iter_mut()
        .for_each(|r| r.outcome = Outcome::Reset);
    let v = verdict(&records, &closed(1), &cold_server());
    assert_eq!(v.status, VerdictStatus::Invalid);
}

#[test]
fn nothing_completed_is_invalid() {
    let v = verdict(&[], &closed(1), &cold_server());
    assert_eq!(v.status, VerdictStatus::Invalid);
    assert!(codes(&v).contains(&"nothing_completed"));
}

#[test]
fn fr_10_a_cold_cell_with_cache_hits_is_contaminated() {
    let mut server = ServerDelta {
        prefix_cache_queries: Some(65536.0 + 65536.0),
        prefix_cache_hits: Some(61000.0 + 61000.0),
        ..cold_server()
    };
    let v = verdict(&clean(), &closed(1), &server);
    assert_eq!(codes(&v), ["cache_contaminated"]);
    assert!(
        v.reasons[0].message.contains("93.1 %"),
        "{}",
        v.reasons[0].message
    );
    // The workload's own repetition is nobody's fault.
    let mut own = closed(1);
    own.cache = CacheMode::Workload;
    assert_eq!(
        verdict(&clean(), &own, &server).status,
        VerdictStatus::Valid
    );
    // Counter reset or 404: unknown, no warning.
    server.prefix_cache_hits = None;
    let v = verdict(&clean(), &closed(1), &server);
    assert_eq!(v.status, VerdictStatus::Valid);
    assert!(note(&v, "cache_unknown").contains("prefix cache state unknown"));
    server.unavailable = Some("/metrics answered 404".to_owned());
    let v = verdict(&clean(), &closed(1), &server);
    assert!(note(&v, "cache_unknown").contains("404"));
}

#[test]
fn fr_10_cached_tokens_of_the_answers_stand_in_for_the_counters() {
    let mut records = clean();
    for r in &mut records {
        r.usage.as_mut().unwrap().cached_tokens = Some(48);
    }
    let v = verdict(&records, &closed(1), &ServerDelta::default());
    assert_eq!(codes(&v), ["cache_contaminated"]);
    assert!(v.reasons[0].message.contains("48.0 %"));
}

#[test]
fn warm_and_shared_prefix_cells_are_held_to_their_word() {
    let cell = |cache, hits, input_len| {
        let mut spec = closed(1);
        spec.cache = cache;
        spec.input_len = input_len;
        let server = ServerDelta {
            prefix_cache_hits: Some(hits),
            ..cold_server()
        };
        let v = verdict(&clean(), &spec, &server);
        v.reasons.iter().map(|r| r.code.clone()).collect::<Vec<_>>()
    };
    let long = Some(1000);
    assert_eq!(cell(CacheMode::Warm, 790.0, long), Vec::<String>::new());
    assert_eq!(cell(CacheMode::Warm, 600.0, long), ["cache_not_warm"]);
    // 32 tokens: one whole block before the last token, so half is all that can hit.
    assert_eq!(cell(CacheMode::Warm, 400.0, Some(32)), Vec::<String>::new());
    assert_eq!(cell(CacheMode::Warm, 100.0, Some(32)), ["cache_not_warm"]);
    assert_eq!(
        cell(CacheMode::Prefix(0.5), 390.0, long),
        Vec::<String>::new()
    );
    assert_eq!(cell(CacheMode::Prefix(0.5), 310.0, long), ["prefix_share"]);
    assert_eq!(cell(CacheMode::Prefix(0.5), 500.0, long), ["prefix_share"]);
}

#[test]
fn a_warm_cell_is_held_to_the_blocks_that_the_server_has() {
    let cell = |hits, block_size, input_len| {
        let mut spec = closed(1);
        spec.cache = CacheMode::Warm;
        spec.input_len = Some(input_len);
        let server = ServerDelta {
            prefix_cache_hits: Some(hits),
            block_size,
            ..cold_server()
        };
        verdict(&clean(), &spec, &server)
    };
    // 256 tokens: one whole block of 128 before the last token, so half is all that can hit.
    assert_eq!(cell(400.0, Some(128), 256).status, VerdictStatus::Valid);
    let v = cell(400.0, None, 256);
    assert_eq!(codes(&v), ["cache_not_warm"]);
    assert!(v.reasons[0].message.contains("whole blocks of 16 tokens"));
    // No whole block: nothing is ever cached, so nothing is warm.
    let v = cell(0.0, Some(128), 100);
    assert_eq!(codes(&v), ["cache_not_warm"]);
    assert!(v.reasons[0].message.contains("whole blocks of 128 tokens"));
}

#[test]
fn a_prefix_cache_that_is_off_is_cold_and_nothing_else() {
    let cell = |cache| {
        let mut spec = closed(1);
        spec.cache = cache;
        let server = ServerDelta {
            prefix_cache_queries: Some(0.0),
            prefix_caching: Some(false),
            ..cold_server()
        };
        verdict(&clean(), &spec, &server)
    };
    let cold = cell(CacheMode::Cold);
    assert_eq!(cold.status, VerdictStatus::Valid);
    assert!(!cold.notes.iter().any(|n| n.code == "cache_unknown"));
    for (cache, code) in [
        (CacheMode::Warm, "cache_not_warm"),
        (CacheMode::Prefix(0.5), "prefix_share"),
    ] {
        let v = cell(cache);
        assert_eq!(codes(&v), [code]);
        assert!(v.reasons[0].message.contains("prefix cache is off"));
    }
    let silent = ServerDelta {
        prefix_cache_queries: Some(0.0),
        ..cold_server()
    };
    let v = verdict(&clean(), &closed(1), &silent);
    assert!(note(&v, "cache_unknown").contains("looked up no prompt token"));
}

#[test]
fn fr_11_prompts_of_another_length_are_flagged_in_words() {
    let with = |prompt_tokens| {
        let mut records = clean();
        for r in &mut records {
            r.input_len = Some(1000);
            r.usage = Some(Usage {
                prompt_tokens,
                completion_tokens: 10,
                ..Usage::default()
            });
        }
        verdict(&records, &closed(1), &cold_server())
    };
    let v = with(5128);
    assert_eq!(codes(&v), ["input_length"]);
    assert!(v.reasons[0].message.contains("5.13 x the requested length"));
    assert_eq!(with(1003).status, VerdictStatus::Valid);
    assert_eq!(codes(&with(900)), ["input_length"]);
}

#[test]
fn answers_of_another_length_are_flagged_where_the_length_was_set() {
    let mut records = clean();
    records.iter_mut().for_each(|r| r.output_len = 256);
    let mut spec = closed(1);
    assert_eq!(
        verdict(&records, &spec, &cold_server()).status,
        VerdictStatus::Valid
    );
    spec.output_len = Some(256);
    assert_eq!(
        codes(&verdict(&records, &spec, &cold_server())),
        ["output_length"]
    );
}

#[test]
fn preemptions_are_flagged_and_unknown_ones_noted() {
    let mut server = cold_server();
    server.preemptions = Some(3.0);
    assert_eq!(
        codes(&verdict(&clean(), &closed(1), &server)),
        ["preemptions"]
    );
    server.preemptions = None;
    let v = verdict(&clean(), &closed(1), &server);
    assert_eq!(v.status, VerdictStatus::Valid);
    note(&v, "preemptions_unknown");
}

#[test]
fn the_acceptance_length_stands_beside_the_tokens_of_a_mean_step() {
    let server = ServerDelta {
        generation_tokens: Some(300.0),
        spec_decode: Some(SpecDecode {
            drafts: 40.0,
            draft_tokens: 160.0,
            accepted_tokens: 80.0,
        }),
        ..cold_server()
    };
    let v = verdict(&clean(), &closed(1), &server);
    let message = note(&v, "speculation");
    assert!(
        message.contains("3.00 tokens a step that had a draft, 50 % of the draft tokens"),
        "{message}"
    );
    assert!(
        message.contains("1.36 a step over all steps; 1.00 a read here"),
        "{message}"
    );
}

#[test]
fn a_concurrency_that_was_not_reached_is_flagged() {
    let v = verdict(&clean(), &closed(4), &cold_server());
    assert_eq!(codes(&v), ["concurrency_not_reached"]);
    assert!(v.reasons[0].message.contains("at most 1 of 4"));
    assert!(note(&v, "few_waves").contains("16 requests would be better"));

    // Four at once here, two at once in the server.
    let four: Vec<_> = clean()
        .into_iter()
        .flat_map(|r| (0..4).map(move |_| r.clone()))
        .collect();
    let mut server = cold_server();
    (
        server.running_peak,
        server.waiting_peak,
        server.gauge_samples,
    ) = (Some(2.0), Some(2.0), 50);
    let v = verdict(&four, &closed(4), &server);
    assert_eq!(codes(&v), ["concurrency_not_reached"]);
    assert!(
        v.reasons[0]
            .message
            .contains("the server ran at most 2 of 4")
    );
    assert!(v.reasons[0].message.contains("--max-num-seqs"));
    server.gauge_samples = 2;
    assert_eq!(
        verdict(&four, &closed(4), &server).status,
        VerdictStatus::Valid
    );
    (server.gauge_samples, server.waiting_peak) = (50, Some(0.0));
    assert_eq!(
        verdict(&four, &closed(4), &server).status,
        VerdictStatus::Valid
    );
}

#[test]
fn a_load_that_stood_still_between_two_answers_is_flagged() {
    // 40 ms of answer, then a second until the next request: streams that end late.
    let records: Vec<_> = (0..8_u32)
        .flat_map(|i| {
            let sent = f64::from(i) * 1040.0;
            (0..2).map(move |_| request(u64::from(i), sent, &steps(10.0, &[10.0; 3])))
        })
        .collect();
    let v = verdict(&records, &closed(2), &cold_server());
    assert_eq!(codes(&v), ["concurrency_not_held"]);
    let message = &v.reasons[0].message;
    assert!(message.contains("0.09 of 2 requests"), "{message}");
}

#[test]
fn a_queue_that_the_gauges_were_too_slow_to_see_is_remarked_on() {
    let queue = |sum_s: f64, gauge_samples: u32| {
        let server = ServerDelta {
            running_peak: Some(4.0),
            waiting_peak: Some(0.0),
            gauge_samples,
            queue: Some(HistogramDelta {
                count: 32.0,
                sum_s,
                buckets: Vec::new(),
            }),
            ..cold_server()
        };
        // Four at once for 2.38 s.
        let four: Vec<_> = clean()
            .into_iter()
            .flat_map(|r| (0..4).map(move |_| r.clone()))
            .collect();
        let v = verdict(&four, &closed(4), &server);
        assert_eq!(v.status, VerdictStatus::Valid);
        let note = v.notes.iter().find(|n| n.code == "server_queue");
        note.map(|n| n.message.clone())
    };
    let message = queue(4.76, 2).unwrap();
    assert!(
        message.contains("148.8 ms in the server's queue on average, 2.0 of 4"),
        "{message}"
    );
    assert_eq!(queue(2.0, 2), None);
    assert_eq!(queue(4.76, 5), None, "the gauges know better");
}

#[test]
fn fr_09_a_rate_below_98_percent_of_the_target_is_flagged() {
    let cell = |gap: f64, burstiness| {
        let load = spec(Load::Rate {
            per_second: 200.0,
            burstiness,
            max_concurrency: None,
        });
        let records: Vec<_> = (0..1000_u32)
            .map(|i| request(u64::from(i), f64::from(i) * gap, &[(20.0, 1), (30.0, 1)]))
            .collect();
        verdict(&records, &load, &cold_server())
    };
    assert_eq!(cell(5.0, None).status, VerdictStatus::Valid);
    let v = cell(5.45, None);
    assert_eq!(codes(&v), ["rate_not_reached"]);
    assert!(
        v.reasons[0]
            .message
            .contains("183.5 requests a second of 200.0")
    );
    // Drawn gaps need not add up to the target: these were sent when they were due.
    assert_eq!(cell(5.45, Some(1.0)).status, VerdictStatus::Valid);
}

#[test]
fn fr_12_a_client_that_sets_the_pace_is_not_clean() {
    let client = |lag: f64, cpu: f64| {
        with_client(&ClientStats {
            timer_lag_p99_ms: Some(lag),
            loop_cpu_pct: cpu,
            ..ClientStats::default()
        })
    };
    assert_eq!(client(5.0, 60.0).status, VerdictStatus::Valid);
    let v = client(5.1, 10.0);
    assert_eq!(
        (v.status, codes(&v)),
        (VerdictStatus::Flagged, vec!["client_limited"])
    );
    assert!(v.reasons[0].message.contains("timer lag p99 5.1 ms"));
    assert_eq!(codes(&client(0.1, 85.0)), ["client_limited"]);
    assert_eq!(client(0.1, 99.0).status, VerdictStatus::Invalid);
    assert_eq!(client(80.0, 10.0).status, VerdictStatus::Invalid);
    assert!(note(&client(0.1, 70.0), "client_cpu").contains("70 %"));
    let coalesced = with_client(&ClientStats {
        coalesced_share: Some(0.4),
        ..quiet_client()
    });
    assert!(note(&coalesced, "coalesced").contains("40.0 %"));
    let summary = sum(&clean(), &closed(1), &Options::default());
    let unknown = judge(&closed(1), &summary, None, None, &Limits::default());
    assert_eq!(unknown.status, VerdictStatus::Valid);
    note(&unknown, "client_unknown");
    note(&unknown, "cache_unknown");
}

#[test]
fn timing_errors_and_an_early_end_are_flagged() {
    let mut records = clean();
    records[3].t_done_ns = records[3].t_sent_ns.unwrap() + ms(50.0);
    let summary = sum(&records, &closed(1), &Options::default());
    let limits = Limits {
        incomplete: true,
        ..Limits::default()
    };
    let v = judge(
        &closed(1),
        &summary,
        Some(&cold_server()),
        Some(&quiet_client()),
        &limits,
    );
    assert_eq!(codes(&v), ["timing_errors", "incomplete"]);
}

#[test]
fn the_servers_own_ttft_stands_beside_ours() {
    let mut server = cold_server();
    server.ttft = Some(HistogramDelta {
        count: 8.0,
        sum_s: 0.72,
        buckets: Vec::new(),
    });
    let v = verdict(&clean(), &closed(1), &server);
    let message = note(&v, "server_ttft");
    assert!(
        message.contains("100.0 ms here, 90.0 ms by the server"),
        "{message}"
    );
    assert!(message.contains("10.0 ms is network"), "{message}");
}
