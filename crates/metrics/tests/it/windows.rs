//! Rates and their windows.

use linktax_metrics::{Options, Slo};
use linktax_records::{Outcome, RequestRecord, TokenSource, Usage};

use crate::cells::{close, closed, json, reason, request, steps, sum};

fn quick() -> Options {
    Options {
        bootstrap_resamples: 0,
        ..Options::default()
    }
}

/// Two workers, three requests each of 1 s: first token after 500 ms, then 5 tokens 100 ms apart.
/// The second worker starts 250 ms later.
fn two_workers() -> Vec<RequestRecord> {
    let reads = steps(500.0, &[100.0; 5]);
    (0..6_u32)
        .map(|i| {
            let start = f64::from(i / 2) * 1000.0 + f64::from(i % 2) * 250.0;
            request(u64::from(i), start, &reads)
        })
        .collect()
}

#[test]
fn numerator_and_denominator_share_one_window() {
    let json = sum(&two_workers(), &closed(2), &quick()).to_json();
    close(&json, "duration", 3.25);
    close(&json, "output_throughput", 36.0 / 3.25);
    close(&json, "input_throughput", 600.0 / 3.25);
    close(&json, "total_token_throughput", 636.0 / 3.25);
    close(&json, "output_tpm", 36.0 / 3.25 * 60.0);
    close(&json, "request_throughput", 6.0 / 3.25);
    close(&json, "max_concurrent_requests", 2.0);
    close(&json, "mean_concurrency", 6.0 / 3.25);
    // Waiting for a first token: 0 to 0.75, 1 to 1.75 and 2 to 2.75.
    close(&json, "prefill_throughput", 600.0 / 2.25);
    // Both requests of a pair deliver within any second: 12 tokens from the first of one to the last of the other.
    close(&json, "max_output_tokens_per_s", 12.0);
}

#[test]
fn the_steady_window_leaves_out_ramp_and_drain() {
    let json = sum(&two_workers(), &closed(2), &quick()).to_json();
    close(&json, "steady_start_s", 0.25);
    close(&json, "steady_end_s", 3.0);
    // All but the tokens of the last request after 3 s (3.05, 3.15, 3.25).
    close(&json, "steady_output_tokens", 33.0);
    close(&json, "steady_output_throughput", 33.0 / 2.75);
    close(&json, "steady_input_throughput", 600.0 / 2.75);
    close(&json, "steady_completed", 5.0);
    close(&json, "steady_mean_concurrency", 2.0);
}

#[test]
fn without_a_steady_state_there_is_a_reason() {
    let one_wave = sum(&two_workers(), &closed(6), &quick()).to_json();
    assert!(reason(&one_wave, "steady_output_throughput").contains("one wave"));
    let never = sum(&two_workers(), &closed(3), &quick()).to_json();
    assert!(
        reason(&never, "steady_output_throughput_per_gpu").contains("never reached (at most 2)")
    );
}

#[test]
fn scaled_tokens_add_up_to_the_usage() {
    let mut records = two_workers();
    for r in &mut records {
        r.token_source = TokenSource::Events;
        r.usage = Some(Usage {
            prompt_tokens: 100,
            completion_tokens: 20,
            ..Usage::default()
        });
    }
    let json = sum(&records, &closed(2), &quick()).to_json();
    close(&json, "total_output_tokens", 120.0);
    // Three reads of the last request, running total 10, then 13, 17, 20.
    close(&json, "steady_output_tokens", 110.0);
    close(&json, "read_tokens_estimated_requests", 6.0);
}

#[test]
fn cached_tokens_are_not_prefilled() {
    let mut records = two_workers();
    for r in &mut records {
        if let Some(usage) = &mut r.usage {
            usage.cached_tokens = Some(80);
        }
    }
    let known = sum(&records, &closed(2), &quick()).to_json();
    close(&known, "prefill_throughput", 120.0 / 2.25);
    close(&known, "cached_input_tokens", 480.0);
    close(&known, "cached_input_share", 0.8);

    let mut warm = closed(2);
    warm.cache = linktax_records::CacheMode::Warm;
    let unknown = sum(&two_workers(), &warm, &quick()).to_json();
    assert!(reason(&unknown, "prefill_throughput").contains("unknown"));
}

#[test]
fn a_cell_of_nothing_has_no_numbers() {
    let nothing = json(&[]);
    for key in [
        "duration",
        "output_throughput",
        "mean_ttft_ms",
        "decode_tok_s",
        "failure_share",
    ] {
        reason(&nothing, key);
    }
    let mut refused = request(0, 0.0, &[]);
    refused.outcome = Outcome::ConnectError;
    refused.t_sent_ns = None;
    let failed = json(&[refused]);
    close(&failed, "failed", 1.0);
    close(&failed, "timing_errors", 0.0);
    reason(&failed, "request_throughput");
}

#[test]
fn a_cancelled_request_is_neither_completed_nor_failed() {
    let mut records = two_workers();
    let mut cut = request(6, 3000.0, &[(100.0, 1), (200.0, 1)]);
    cut.outcome = Outcome::Cancelled;
    records.push(cut);
    let json = sum(&records, &closed(2), &quick()).to_json();
    close(&json, "completed", 6.0);
    close(&json, "failed", 0.0);
    close(&json, "cancelled", 1.0);
    close(&json, "partial_output_tokens", 2.0);
    close(&json, "n_ttft", 6.0);
}

#[test]
fn objectives_count_requests_that_meet_all_of_them() {
    let slos = |list: &[&str]| Options {
        slos: list.iter().map(|s| s.parse::<Slo>().unwrap()).collect(),
        ..quick()
    };
    let mut records = two_workers();
    records.push(request(6, 3000.0, &[(200.0, 1)]));
    let mut failed = request(7, 3000.0, &[(100.0, 1)]);
    failed.outcome = Outcome::Reset;
    records.push(failed);
    let of = |list: &[&str]| sum(&records, &closed(2), &slos(list)).to_json();
    close(&of(&["ttft:500"]), "slo_attainment", 7.0 / 8.0);
    close(&of(&["ttft:500"]), "request_goodput", 7.0 / 3.25);
    close(&of(&["ttft:499"]), "slo_attainment", 1.0 / 8.0);
    // One token has no tpot and passes.
    close(&of(&["tpot:99"]), "slo_attainment", 1.0 / 8.0);
    close(&of(&["tpot:100", "e2el:1000"]), "slo_attainment", 7.0 / 8.0);
    assert!(reason(&of(&[]), "request_goodput").contains("no objective"));
}

#[test]
fn intervals_need_eight_requests_and_repeat_with_their_seed() {
    let records: Vec<_> = (0..8_u32)
        .map(|i| {
            request(
                u64::from(i),
                f64::from(i) * 1000.0,
                &steps(100.0 + f64::from(i), &[20.0; 4]),
            )
        })
        .collect();
    let opts = Options::default();
    let few = sum(&records[..7], &closed(1), &opts).to_json();
    assert!(reason(&few, "ci95_low_mean_ttft_ms").contains("needs 8 requests"));
    let first = sum(&records, &closed(1), &opts);
    let (low, high) = first.interval("mean_ttft_ms").unwrap();
    assert!(
        (100.0..103.5).contains(&low) && (103.5..=107.0).contains(&high),
        "{low} {high}"
    );
    let median = first.interval("median_ttft_ms").unwrap();
    assert!(median.0 < 103.5 && 103.5 < median.1, "{median:?}");
    // Every request decodes at the same rate: no width.
    let (low, high) = first.interval("decode_tok_s").unwrap();
    assert!((low - 50.0).abs() < 1e-9 && (high - 50.0).abs() < 1e-9);
    assert_eq!(sum(&records, &closed(1), &opts).intervals, first.intervals);
    let other = Options { seed: 1, ..opts };
    assert_ne!(sum(&records, &closed(1), &other).intervals, first.intervals);
}
