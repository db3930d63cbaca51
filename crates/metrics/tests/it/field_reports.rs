//! Group A of the field reports: failures that users met, each with the right answer.

use linktax_metrics::Options;
use linktax_records::{EventClass, Load, Nanos, Outcome, TokenSource, Usage};
use serde_json::json;

use crate::cells::{close, json, notes, number, reason, request, spec, steps, sum};

#[test]
fn fr_01_a_role_chunk_is_neither_a_first_token_nor_a_gap() {
    let mut r = request(0, 0.0, &[(5.0, 0), (214.0, 1), (234.0, 1)]);
    r.reads.class[0] = EventClass::Role;
    let json = json(&[r]);
    close(&json, "mean_ttft_ms", 214.0);
    close(&json, "n_step_gap", 1.0);
    close(&json, "mean_step_gap_ms", 20.0);
    close(&json, "mean_tpot_ms", 20.0);
}

#[test]
fn fr_02_a_chunk_of_several_tokens_has_no_itl() {
    let mut r = request(0, 0.0, &[(200.0, 1), (240.0, 1), (280.0, 1), (320.0, 1)]);
    r.token_source = TokenSource::Events;
    r.usage = Some(Usage {
        prompt_tokens: 10,
        completion_tokens: 13,
        ..Usage::default()
    });
    let by_events = json(&[r.clone()]);
    close(&by_events, "mean_tpot_ms", 10.0);
    close(&by_events, "median_step_gap_ms", 40.0);
    close(&by_events, "tokens_per_chunk", 3.25);
    close(&by_events, "total_output_tokens", 13.0);
    assert!(reason(&by_events, "median_itl_ms").contains("3.25 tokens a read"));
    assert!(reason(&by_events, "median_token_time_ms").contains("not known"));
    assert_eq!(notes(&by_events, "itl").len(), 1);

    r.token_source = TokenSource::ContinuousUsage;
    r.reads.tokens = vec![1, 4, 4, 4];
    let by_usage = json(&[r]);
    close(&by_usage, "median_token_time_ms", 10.0);
    close(&by_usage, "n_token_time", 12.0);
    close(&by_usage, "decode_tok_s", 100.0);
    assert!(reason(&by_usage, "p99_itl_ms").contains("3.25 tokens a read"));
}

#[test]
fn fr_03_a_first_chunk_of_five_tokens() {
    let mut reads = vec![(100.0, 5)];
    reads.extend((1..=15).map(|i| (100.0 + 5.0 * f64::from(i), 1)));
    let mut r = request(0, 0.0, &reads);
    let known = json(&[r.clone()]);
    close(&known, "mean_tpot_ms", 75.0 / 19.0);
    close(&known, "mean_decode_time_per_token_ms", 5.0);
    close(&known, "decode_tok_s", 200.0);
    close(&known, "max_first_chunk_tokens", 5.0);
    assert!(notes(&known, "first_chunk")[0].contains("first chunk held 5 tokens"));

    r.token_source = TokenSource::Events;
    r.reads.tokens[0] = 1;
    let unknown = json(&[r]);
    close(&unknown, "mean_tpot_ms", 75.0 / 19.0);
    reason(&unknown, "mean_decode_time_per_token_ms");
    assert_eq!(notes(&unknown, "first_chunk"), ["first-chunk size unknown"]);
}

#[test]
fn fr_04_reads_that_do_not_line_up_with_events() {
    // The read at 140 completed two events: one instant, one gap, two tokens.
    let mut r = request(0, 0.0, &[(120.0, 1), (140.0, 2)]);
    r.reads.events[1] = 2;
    let shared = json(&[r]);
    close(&shared, "mean_ttft_ms", 120.0);
    close(&shared, "n_step_gap", 1.0);
    close(&shared, "max_step_gap_ms", 20.0);
    // Two reads at one instant: a gap of zero, never a negative one, and a rate all the same.
    let zero = json(&[request(0, 0.0, &[(120.0, 1), (140.0, 1), (140.0, 1)])]);
    close(&zero, "n_step_gap", 2.0);
    close(&zero, "min_step_gap_ms", 0.0);
    close(&zero, "max_step_gap_ms", 20.0);
    close(&zero, "decode_tok_s", 100.0);
    assert_eq!(zero["stall_separable"], "no_stalls");
    // All in one instant: nothing can be said of decoding.
    let instant = json(&[request(0, 0.0, &[(120.0, 1), (120.0, 1)])]);
    reason(&instant, "mean_tpot_ms");
    reason(&instant, "decode_tok_s");
    close(&instant, "tpot_unmeasured_requests", 1.0);
}

#[test]
fn fr_04_the_share_of_coalesced_reads_is_reported() {
    let mut r = request(0, 0.0, &steps(10.0, &[5.0; 4]));
    r.reads.events = vec![1, 2, 1, 1, 4];
    // The last read carries the end of the stream and does not count.
    close(&json(&[r]), "coalesced_read_share", 0.25);
}

#[test]
fn fr_05_a_failed_request_appears_only_as_partial() {
    let good = request(0, 0.0, &steps(100.0, &[100.0; 9]));
    let mut bad = request(1, 0.0, &[(100.0, 1), (200.0, 1)]);
    for outcome in [Outcome::ErrorInStream, Outcome::Truncated, Outcome::Reset] {
        bad.outcome = outcome;
        let json = json(&[good.clone(), bad.clone()]);
        close(&json, "completed", 1.0);
        close(&json, "failed", 1.0);
        close(&json, &format!("failed_{}", outcome.as_str()), 1.0);
        close(&json, "failure_share", 0.5);
        close(&json, "mean_e2el_ms", 1000.0);
        close(&json, "total_output_tokens", 10.0);
        close(&json, "partial_output_tokens", 2.0);
        close(&json, "output_throughput", 10.0);
        close(&json, "n_step_gap", 9.0);
    }
}

#[test]
fn fr_06_reasoning_tokens_count_and_the_answer_has_its_own_time() {
    let times: [(f64, u32); 5] = [150.0, 170.0, 190.0, 210.0, 230.0].map(|t| (t, 1));
    let mut r = request(0, 0.0, &times);
    r.reads.class[..3].fill(EventClass::Reasoning);
    let both = json(&[r]);
    close(&both, "mean_ttft_ms", 150.0);
    close(&both, "mean_ttft_answer_ms", 210.0);
    close(&both, "total_output_tokens", 5.0);
    close(&both, "mean_tpot_ms", 20.0);

    let mut r = request(0, 0.0, &times[..3]);
    r.reads.class.fill(EventClass::Reasoning);
    let thinking = json(&[r]);
    close(&thinking, "completed", 1.0);
    close(&thinking, "mean_ttft_ms", 150.0);
    close(&thinking, "mean_tpot_ms", 20.0);
    close(&thinking, "n_ttft_answer", 0.0);
    assert!(reason(&thinking, "mean_ttft_answer_ms").contains("answer text"));
}

#[test]
fn fr_07_tokens_come_from_usage_or_are_marked_as_estimated() {
    let mut r = request(0, 0.0, &steps(100.0, &[20.0; 6]));
    r.output_len = 256;
    r.token_source = TokenSource::Events;
    let with_usage = json(&[r.clone()]);
    close(&with_usage, "mean_tpot_ms", 20.0);
    close(&with_usage, "output_tokens_estimated_requests", 0.0);

    r.usage = None;
    let without = json(&[r]);
    close(&without, "total_output_tokens", 7.0);
    close(&without, "mean_tpot_ms", 20.0);
    close(&without, "output_tokens_estimated_requests", 1.0);
    assert!(notes(&without, "output_tokens_estimated")[0].contains("estimated from chunks"));
}

#[test]
fn fr_08_one_token_outputs_have_no_tpot() {
    let one = request(0, 0.0, &[(100.0, 1)]);
    let five = request(1, 200.0, &steps(100.0, &[20.0; 4]));
    let eleven = request(2, 400.0, &steps(100.0, &[30.0; 10]));
    let all = json(&[one.clone(), five, eleven]);
    close(&all, "mean_tpot_ms", 25.0);
    close(&all, "n_tpot", 2.0);
    close(&all, "token_weighted_tpot_ms", 380.0 / 14.0);

    let ones = json(&[one.clone(), one]);
    for key in [
        "mean_tpot_ms",
        "max_tpot_ms",
        "mean_step_gap_ms",
        "mean_itl_ms",
        "decode_tok_s",
    ] {
        reason(&ones, key);
    }
    close(&ones, "n_tpot", 0.0);
    close(&ones, "mean_ttft_ms", 100.0);
}

#[test]
fn fr_08_times_that_run_backwards_are_counted_and_left_out() {
    let good = request(0, 0.0, &steps(100.0, &[20.0; 4]));
    let mut late_first = request(1, 0.0, &[(120.0, 1), (119.9, 1)]);
    late_first.t_done_ns = Nanos::from_millis(200);
    let mut early_end = good.clone();
    early_end.t_done_ns = Nanos::from_millis(150);
    let mut before_due = good.clone();
    before_due.t_sched_ns = Nanos::from_millis(1);
    let mut ragged = good.clone();
    ragged.reads.tokens.pop();
    for bad in [late_first, early_end, before_due, ragged] {
        let json = json(&[good.clone(), bad]);
        close(&json, "timing_errors", 1.0);
        close(&json, "completed", 1.0);
        close(&json, "n_ttft", 1.0);
        close(&json, "mean_tpot_ms", 20.0);
        close(&json, "total_output_tokens", 5.0);
    }
}

#[test]
fn fr_09_the_achieved_rate_stands_beside_the_target() {
    let load = |per_second| Load::Rate {
        per_second,
        burstiness: None,
        max_concurrency: None,
    };
    let cell = |n: u32, gap: f64, sends: f64| {
        let records = (0..n).map(|i| {
            let mut r = request(u64::from(i), f64::from(i) * sends, &[(20.0, 1), (30.0, 1)]);
            r.t_sched_ns = crate::cells::ms(f64::from(i) * gap);
            r
        });
        records.collect::<Vec<_>>()
    };
    let opts = Options {
        bootstrap_resamples: 0,
        ..Options::default()
    };
    let good = sum(&cell(1000, 5.0, 5.0), &spec(load(200.0)), &opts).to_json();
    close(&good, "target_rate", 200.0);
    close(&good, "achieved_rate", 200.0);
    close(&good, "max_send_lag_ms", 0.0);

    let naive = sum(&cell(1000, 5.0, 5.45), &spec(load(200.0)), &opts).to_json();
    close(&naive, "achieved_rate", 1000.0 / 5.45);
    close(&naive, "max_send_lag_ms", 999.0 * 0.45);
    close(&naive, "max_ttft_from_sched_ms", 999.0 * 0.45 + 20.0);
    close(&naive, "max_ttft_ms", 20.0);
    close(&naive, "max_queue_ms", 999.0 * 0.45);

    let slow = sum(&cell(5, 2500.0, 2500.0), &spec(load(0.4)), &opts).to_json();
    close(&slow, "achieved_rate", 0.4);
    assert!(reason(&slow, "steady_output_throughput").contains("open loop"));
}

#[test]
fn fr_11_prompt_tokens_are_the_servers() {
    let with = |prompt: Option<u64>| {
        let mut r = request(0, 0.0, &steps(100.0, &[20.0; 4]));
        r.input_len = Some(1000);
        r.usage = prompt.map(|prompt_tokens| Usage {
            prompt_tokens,
            completion_tokens: 5,
            ..Usage::default()
        });
        json(&[r])
    };
    let more = with(Some(5128));
    close(&more, "total_input_tokens", 5128.0);
    close(&more, "input_length_ratio", 5.128);
    close(&with(Some(1003)), "total_input_tokens", 1003.0);
    let unconfirmed = with(None);
    close(&unconfirmed, "total_input_tokens", 1000.0);
    close(&unconfirmed, "input_tokens_unconfirmed_requests", 1.0);
    assert_eq!(unconfirmed["input_tokens_unconfirmed"], json!(true));
    assert!(
        notes(&unconfirmed, "input_tokens_unconfirmed")[0].contains("requested, not confirmed")
    );
}

#[test]
fn fr_11_an_unknown_prompt_length_is_null_not_zero() {
    let mut r = request(0, 0.0, &steps(100.0, &[20.0; 4]));
    r.input_len = None;
    r.usage = None;
    let json = json(&[r]);
    for key in [
        "total_input_tokens",
        "input_throughput",
        "total_token_throughput",
        "prefill_throughput",
    ] {
        reason(&json, key);
    }
    assert!(number(&json, "output_throughput") > 0.0);
}
