//! Laws that hold for any records.

use linktax_metrics::{CellSummary, Options, StallGap};
use linktax_records::{EventClass, Nanos, Outcome, Phase, RequestRecord, TokenSource};
use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::cells::{closed, fixed, number, request, sum};

/// Records of a closed loop of `workers` with steps, stalls, several tokens a read and some failures.
fn cell() -> impl Strategy<Value = Vec<RequestRecord>> {
    let gap = prop_oneof![8 => 5.0..30.0_f64, 1 => 200.0..3000.0_f64, 1 => Just(0.0)];
    let one = (
        50.0..500.0_f64,
        prop::collection::vec((gap, 1..4_u32), 0..30),
        0..12_u32,
        0.0..5.0_f64,
    );
    prop::collection::vec(one, 1..14).prop_map(|requests| {
        let mut free = [0.0_f64; 3];
        let mut records = Vec::new();
        for (i, (first, gaps, kind, pause)) in requests.into_iter().enumerate() {
            let start = free[i % 3] + pause;
            let mut t = first;
            let mut reads = vec![(t, 1)];
            for (gap, tokens) in gaps {
                t += gap;
                reads.push((t, tokens));
            }
            let mut r = request(i as u64, start, &reads);
            free[i % 3] = start + t + 1.0;
            match kind {
                0 => r.outcome = Outcome::Reset,
                1 => r.phase = Phase::Warmup,
                2 => r.token_source = TokenSource::Events,
                3 => r.usage = None,
                4 => r.outcome = Outcome::Cancelled,
                5 => r.reads.class[0] = EventClass::Reasoning,
                _ => {}
            }
            records.push(r);
        }
        records
    })
}

fn quick(stall: StallGap) -> Options {
    Options {
        stall,
        bootstrap_resamples: 20,
        gpus: Some(4),
        ..Options::default()
    }
}

fn of(records: &[RequestRecord], stall: StallGap) -> CellSummary {
    sum(records, &closed(3), &quick(stall))
}

fn get(json: &Map<String, Value>, key: &str) -> Option<f64> {
    json[key].as_f64()
}

fn scaled(records: &[RequestRecord], k: u64) -> Vec<RequestRecord> {
    let by = |t: Nanos| Nanos::from_nanos(t.as_nanos() * k);
    let mut records = records.to_vec();
    for r in &mut records {
        r.t_sched_ns = by(r.t_sched_ns);
        r.t_sent_ns = r.t_sent_ns.map(by);
        r.t_done_ns = by(r.t_done_ns);
        r.reads.t_ns = r.reads.t_ns.iter().map(|&t| by(t)).collect();
    }
    records
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn removing_gaps_never_lowers_the_decode_rate_of_single_token_reads(
        records in cell(),
        threshold in 1.0..3000.0_f64,
    ) {
        // One token a read: a read that brings many tokens after a long gap may be faster than the rest.
        let mut records = records;
        for r in &mut records {
            r.reads.tokens.fill(1);
            r.usage = None;
        }
        let json = sum(&records, &closed(3), &fixed(threshold)).to_json();
        if let (Some(kept), Some(all)) = (get(&json, "decode_tok_s"), get(&json, "decode_tok_s_unfiltered")) {
            prop_assert!(kept >= all * (1.0 - 1e-12), "{kept} < {all}");
        }
    }

    #[test]
    fn the_order_of_the_records_never_matters(
        records in cell(),
        seed in any::<u64>(),
    ) {
        let mut shuffled = records.clone();
        let mut state = seed;
        for i in (1..shuffled.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            shuffled.swap(i, (state >> 33) as usize % (i + 1));
        }
        prop_assert_eq!(
            of(&records, StallGap::Auto).to_json(),
            of(&shuffled, StallGap::Auto).to_json()
        );
    }

    #[test]
    fn the_steady_window_lies_inside_the_full_one(records in cell()) {
        let summary = of(&records, StallGap::Off);
        if let Ok(steady) = &summary.steady {
            let duration = summary.duration_s().unwrap_or(f64::INFINITY);
            prop_assert!(0.0 <= steady.start_s && steady.start_s < steady.end_s);
            prop_assert!(steady.end_s <= duration + 1e-9);
            let delivered = summary.tokens.output + summary.tokens.partial_output;
            prop_assert!(steady.output_tokens <= delivered);
            prop_assert!(steady.completed <= summary.counts.completed);
        }
    }

    #[test]
    fn families_are_ordered_and_share_their_counts(records in cell()) {
        let summary = of(&records, StallGap::Auto);
        for (name, family) in summary.families() {
            let Ok(d) = family else { continue };
            prop_assert!(d.min <= d.median && d.median <= d.max, "{name}");
            let given: Vec<f64> = d.percentiles.iter().filter_map(|(_, v)| v.clone().ok()).collect();
            prop_assert!(given.is_sorted() && given.iter().all(|v| d.min <= *v && *v <= d.max), "{name}");
        }
        let counts = &summary.counts;
        prop_assert_eq!(
            counts.measured,
            counts.completed + counts.failed + counts.cancelled + counts.timing_errors
        );
        prop_assert_eq!(counts.measured + counts.warmup, records.len() as u64);
    }

    #[test]
    fn normal_gaps_and_stalls_are_all_gaps(records in cell(), threshold in 1.0..3000.0_f64) {
        let summary = sum(&records, &closed(3), &fixed(threshold));
        let json = summary.to_json();
        let all = number(&json, "n_step_gap");
        prop_assert_eq!(number(&json, "clean_gaps") + number(&json, "interfered_gaps"), all);
        if let Some(stalls) = get(&json, "stall_count") {
            prop_assert_eq!(number(&json, "normal_gaps") + stalls, all);
            let parts = ["interfered_normal_gaps", "clean_normal_gaps", "interfered_stalls", "clean_stalls"];
            prop_assert_eq!(parts.iter().map(|key| number(&json, key)).sum::<f64>(), all);
            prop_assert!(number(&json, "stall_share") <= 1.0);
        }
    }

    #[test]
    fn per_gpu_is_the_total_divided_by_the_gpus(records in cell()) {
        let json = of(&records, StallGap::Auto).to_json();
        for (key, value) in &json {
            let Some(total) = key.strip_suffix("_per_gpu") else { continue };
            prop_assert_eq!(value.is_null(), json[total].is_null(), "{}", key);
            if let Some(total) = json[total].as_f64() {
                prop_assert_eq!(value.as_f64(), Some(total / 4.0), "{}", key);
            }
        }
    }

    #[test]
    fn slower_by_a_factor_is_slower_by_that_factor(records in cell(), power in 1..4_u32) {
        // Powers of two keep the bins of the gap histogram where they are.
        let k = 2_u64.pow(power);
        let before = of(&records, StallGap::Auto).to_json();
        let after = of(&scaled(&records, k), StallGap::Auto).to_json();
        let agree = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(1e-9);
        for (key, value) in &before {
            let Some(value) = value.as_f64() else { continue };
            if key.contains("max_output_tokens_per_s") || key == "gpus" {
                continue;
            }
            let factor = if key.ends_with("_ms") || key.ends_with("_s") && key.contains("stall")
                || ["duration", "steady_duration", "steady_start_s", "steady_end_s"].contains(&key.as_str())
            {
                k as f64
            } else if key.contains("throughput") || key.contains("tpm") || key.contains("tok_s")
                || key.ends_with("_rate")
            {
                1.0 / k as f64
            } else {
                1.0
            };
            prop_assert!(
                agree(value * factor, number(&after, key)),
                "{key}: {value} x {factor} became {:?}", after[key]
            );
        }
    }

    #[test]
    fn every_null_has_a_reason_and_every_reason_a_null(records in cell()) {
        let json = of(&records, StallGap::Auto).to_json();
        let reasons = json["null_reasons"].as_object().unwrap();
        for (key, value) in &json {
            prop_assert_eq!(value.is_null(), reasons.contains_key(key), "{}", key);
        }
        prop_assert!(reasons.keys().all(|key| json.contains_key(key)));
    }

    #[test]
    fn a_peak_second_is_not_below_the_mean(records in cell()) {
        let mut records = records;
        records.retain(|r| r.outcome != Outcome::Cancelled);
        let summary = of(&records, StallGap::Off);
        if let (Ok(peak), Some(seconds)) = (&summary.throughput.peak_output, summary.duration_s()) {
            prop_assert!(*peak * seconds.ceil() >= summary.tokens.output as f64);
        }
    }
}

#[test]
fn a_read_that_brings_many_tokens_after_a_long_gap_may_be_the_fast_one() {
    // Why the law above is one of single-token reads: 40 tokens in a 400 ms gap beat 1 in 20 ms.
    let records = [request(0, 0.0, &[(100.0, 1), (120.0, 1), (520.0, 40)])];
    let json = sum(&records, &closed(1), &fixed(200.0)).to_json();
    assert!(number(&json, "decode_tok_s") < number(&json, "decode_tok_s_unfiltered"));
}
