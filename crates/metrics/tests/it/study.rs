//! The case that the usual decode rate decides wrongly: 128 tokens, two requests at once, 128K prompts.

use linktax_metrics::{Options, Separability, StallGap};
use linktax_records::RequestRecord;
use serde_json::{Map, Value};

use crate::cells::{close, closed, fixed, number, request, steps, sum};

/// Steps of 16.0 ms; the first request waits 2.7 s once, while the second one is prefilled.
fn tp2() -> Vec<RequestRecord> {
    let mut gaps = vec![16.0; 127];
    gaps[3] = 2700.0;
    vec![
        request(0, 0.0, &steps(2700.0, &gaps)),
        request(1, 0.0, &steps(5400.0, &[16.0; 127])),
    ]
}

/// Steps of 19.16 ms, nobody waits.
fn tp1() -> Vec<RequestRecord> {
    let reads = steps(11_000.0, &[19.16; 127]);
    vec![request(0, 0.0, &reads), request(1, 0.0, &reads)]
}

fn cell(records: &[RequestRecord], opts: &Options) -> Map<String, Value> {
    sum(records, &closed(2), opts).to_json()
}

#[test]
fn the_usual_rate_picks_the_wrong_winner_and_the_filtered_rate_does_not() {
    for opts in [Options::default(), fixed(200.0)] {
        let (two, one) = (cell(&tp2(), &opts), cell(&tp1(), &opts));
        assert_eq!(format!("{:.1}", number(&two, "usual_decode_tok_s")), "44.7");
        assert_eq!(format!("{:.1}", number(&one, "usual_decode_tok_s")), "52.2");
        close(&two, "decode_tok_s", 62.5);
        close(&two, "decode_tok_s_request_mean", 62.5);
        assert_eq!(format!("{:.1}", number(&one, "decode_tok_s")), "52.2");
        close(&two, "stall_s", 2.7);
        close(&two, "stall_count", 1.0);
        close(&two, "max_request_stall_s", 2.7);
        close(&two, "mean_request_stall_s", 1.35);
        close(&two, "stall_share", 2.7 / (2.7 + 253.0 * 0.016));
        close(&two, "normal_gaps", 253.0);
        close(&one, "stall_s", 0.0);
        close(&one, "stall_count", 0.0);
        assert_eq!(two["stall_separable"], "separable");
        assert_eq!(one["stall_separable"], "no_stalls");
    }
}

#[test]
fn any_threshold_in_the_valley_gives_the_same_answer() {
    let auto = cell(&tp2(), &Options::default());
    close(&auto, "same_answer_from_ms", 16.0);
    close(&auto, "same_answer_to_ms", 2700.0);
    close(&auto, "longest_normal_gap_ms", 16.0);
    close(&auto, "shortest_stall_ms", 2700.0);
    for threshold in [16.0, 20.0, 164.0, 200.0, 530.0, 2699.999] {
        let fixed = cell(&tp2(), &fixed(threshold));
        for key in [
            "decode_tok_s",
            "stall_s",
            "stall_count",
            "same_answer_to_ms",
            "stall_separable",
        ] {
            assert_eq!(fixed[key], auto[key], "{key} at {threshold} ms");
        }
    }
    assert_eq!(cell(&tp2(), &fixed(2700.0))["stall_count"], 0);
    assert_ne!(cell(&tp2(), &fixed(15.999))["stall_count"], 1);
}

#[test]
fn the_stall_is_also_found_without_a_threshold() {
    let off = Options {
        stall: StallGap::Off,
        ..Options::default()
    };
    // The second prompt is in prefill until 5400 ms: the stall and the three steps before it overlap it.
    let json = cell(&tp2(), &off);
    close(&json, "interfered_gaps", 4.0);
    close(&json, "clean_gaps", 250.0);
    close(&json, "decode_tok_s_clean", 62.5);
    assert!(
        json["stall_s"].is_null(),
        "nothing is said of stalls when the filter is off"
    );
    close(
        &json,
        "decode_tok_s",
        number(&json, "decode_tok_s_unfiltered"),
    );

    let both = cell(&tp2(), &Options::default());
    close(&both, "interfered_stalls", 1.0);
    close(&both, "clean_stalls", 0.0);
    close(&both, "interfered_normal_gaps", 3.0);
    close(&both, "stall_interference_agreement", 251.0 / 254.0);
}

#[test]
fn no_line_is_drawn_where_there_is_no_valley() {
    // Gaps from 10 to 67 ms without a hole: prefill chunks that last about as long as a step.
    let gaps: Vec<f64> = (0..120).map(|i| 10.0 + f64::from(i * i) * 0.004).collect();
    let records = [request(0, 0.0, &steps(50.0, &gaps))];
    let summary = sum(&records, &closed(1), &Options::default());
    assert_eq!(summary.decode.separability, Ok(Separability::NotSeparable));
    assert_eq!(summary.stalls(), None);
    assert_eq!(summary.decode.tok_s, summary.decode.tok_s_unfiltered);
    let why = summary.decode.stall_s.unwrap_err();
    assert!(why.reason().contains("no clear valley"), "{why}");
}

#[test]
fn a_dropped_gap_drops_its_tokens() {
    let reads = [(100.0, 1), (110.0, 2), (120.0, 2), (1120.0, 3), (1130.0, 2)];
    let json = cell(&[request(0, 0.0, &reads)], &fixed(200.0));
    close(&json, "decode_tok_s", 6.0 / 0.03);
    close(&json, "decode_tok_s_unfiltered", 9.0 / 1.03);
}

#[test]
fn a_stall_of_one_stream_in_the_prefill_of_a_warmup_request_is_interfered() {
    let mut warmup = request(0, 115.0, &[(900.0, 1)]);
    warmup.phase = linktax_records::Phase::Warmup;
    let reads = steps(100.0, &[10.0, 10.0, 1000.0, 10.0]);
    let json = cell(&[request(0, 0.0, &reads), warmup], &fixed(200.0));
    close(&json, "interfered_stalls", 1.0);
    close(&json, "interfered_normal_gaps", 1.0);
    close(&json, "warmup_requests", 1.0);
    close(&json, "completed", 1.0);
}
