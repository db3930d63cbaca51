//! Records built from the times of their reads.

use linktax_metrics::{CellSummary, Options, StallGap, summarize};
use linktax_records::{
    CacheMode, CellSpec, EventClass, Load, Nanos, Outcome, Phase, Reads, RequestRecord,
    TokenSource, Usage,
};
use serde_json::{Map, Value};

pub(crate) fn ms(ms: f64) -> Nanos {
    Nanos::from_nanos((ms * 1e6).round() as u64)
}

/// A completed request, sent at `sent` ms, with `(ms since the send, tokens)` reads of answer text.
pub(crate) fn request(index: u64, sent: f64, reads: &[(f64, u32)]) -> RequestRecord {
    let mut all = Reads::default();
    for &(t, tokens) in reads {
        all.push(ms(t), tokens, EventClass::Content, 240, 1);
    }
    let tokens = all.counted_tokens();
    let last = reads.last().map_or(0.0, |r| r.0);
    RequestRecord {
        cell: 0,
        attempt: 0,
        index,
        phase: Phase::Measured,
        replica: 0,
        request_id: String::new(),
        input_len: Some(100),
        output_len: tokens,
        t_sched_ns: ms(sent),
        t_sent_ns: Some(ms(sent)),
        t_headers_ns: None,
        t_done_ns: ms(sent) + ms(last) + Nanos::from_micros(50),
        reconnected: false,
        outcome: Outcome::Completed,
        failure: None,
        finish_reason: Some("length".to_owned()),
        done_marker: true,
        usage: Some(Usage {
            prompt_tokens: 100,
            completion_tokens: tokens,
            ..Usage::default()
        }),
        token_source: TokenSource::ContinuousUsage,
        keepalives: 0,
        socket_reads: 0,
        reads: all,
        delivery_lag_ns: Vec::new(),
        text: None,
    }
}

/// One-token reads: the first at `first` ms, then after each gap.
pub(crate) fn steps(first: f64, gaps: &[f64]) -> Vec<(f64, u32)> {
    let mut t = first;
    let mut reads = vec![(t, 1)];
    for gap in gaps {
        t += gap;
        reads.push((t, 1));
    }
    reads
}

pub(crate) fn spec(load: Load) -> CellSpec {
    CellSpec {
        index: 0,
        workload: "random".to_owned(),
        input_len: Some(100),
        output_len: None,
        load,
        requests: None,
        duration_s: None,
        cache: CacheMode::Cold,
    }
}

pub(crate) fn closed(concurrency: u32) -> CellSpec {
    spec(Load::Concurrency(concurrency))
}

pub(crate) fn sum(records: &[RequestRecord], spec: &CellSpec, opts: &Options) -> CellSummary {
    let Ok(summary) = summarize(records, spec, opts);
    summary
}

/// The JSON of a cell at concurrency 1 without resampling.
pub(crate) fn json(records: &[RequestRecord]) -> Map<String, Value> {
    let opts = Options {
        bootstrap_resamples: 0,
        ..Options::default()
    };
    sum(records, &closed(1), &opts).to_json()
}

pub(crate) fn fixed(ms: f64) -> Options {
    Options {
        stall: StallGap::Fixed(self::ms(ms)),
        ..Options::default()
    }
}

/// A number of the JSON; panics where it is null.
#[track_caller]
pub(crate) fn number(json: &Map<String, Value>, key: &str) -> f64 {
    match json.get(key).map(Value::as_f64) {
        Some(Some(value)) => value,
        other => panic!("{key}: {other:?}, {:?}", json["null_reasons"].get(key)),
    }
}

/// The reason for which a key is null; panics where it is not.
#[track_caller]
pub(crate) fn reason<'a>(json: &'a Map<String, Value>, key: &str) -> &'a str {
    assert_eq!(json.get(key), Some(&Value::Null), "{key} is not null");
    json["null_reasons"][key].as_str().unwrap()
}

#[track_caller]
pub(crate) fn close(json: &Map<String, Value>, key: &str, expected: f64) {
    let value = number(json, key);
    assert!(
        (value - expected).abs() <= 1e-9 * expected.abs().max(1.0),
        "{key}: {value}, expected {expected}"
    );
}

/// The messages of the notes with this code.
pub(crate) fn notes(json: &Map<String, Value>, code: &str) -> Vec<String> {
    let notes = json["notes"].as_array().unwrap();
    let with_code = notes.iter().filter(|n| n["code"] == code);
    with_code
        .map(|n| n["message"].as_str().unwrap().to_owned())
        .collect()
}
