//! The same requests through vLLM's own arithmetic: a result file holds the times and vLLM's aggregates of them.

use linktax_metrics::{CellSummary, Options};
use linktax_records::{EventClass, Nanos, Reads, RequestRecord, TokenSource, Usage};
use serde_json::{Map, Value};

use crate::cells::{closed, number, request, sum};

const FILE: &str = include_str!("../data/vllm-bench-serve-tp2-nvlink-c16.json");

fn nanos(seconds: &Value) -> Nanos {
    Nanos::from_secs_f64(seconds.as_f64().unwrap())
}

fn records(file: &Map<String, Value>) -> Vec<RequestRecord> {
    let starts = file["start_times"].as_array().unwrap();
    let one = |(i, start): (usize, &Value)| {
        let mut t = nanos(&file["ttfts"][i]);
        let mut reads = Reads::default();
        reads.push(t, 1, EventClass::Content, 0, 1);
        for gap in file["itls"][i].as_array().unwrap() {
            t += nanos(gap);
            reads.push(t, 1, EventClass::Content, 0, 1);
        }
        let mut r = request(i as u64, 0.0, &[]);
        r.t_sched_ns = nanos(start);
        r.t_sent_ns = Some(nanos(start));
        r.t_done_ns = nanos(start) + t;
        r.reads = reads;
        r.token_source = TokenSource::Events;
        r.input_len = Some(1024);
        r.output_len = 128;
        r.usage = Some(Usage {
            prompt_tokens: file["input_lens"][i].as_u64().unwrap(),
            completion_tokens: file["output_lens"][i].as_u64().unwrap(),
            ..Usage::default()
        });
        r
    };
    starts.iter().enumerate().map(one).collect()
}

fn both() -> (Map<String, Value>, CellSummary) {
    let file: Map<String, Value> = serde_json::from_str(FILE).unwrap();
    let summary = sum(&records(&file), &closed(16), &Options::default());
    (file, summary)
}

#[test]
fn latencies_are_vllms_to_the_microsecond() {
    let (file, summary) = both();
    let ours = summary.to_json();
    for metric in ["ttft", "tpot", "itl", "e2el"] {
        for statistic in ["mean", "median", "std"] {
            let key = format!("{statistic}_{metric}_ms");
            let (ours, theirs) = (number(&ours, &key), number(&file, &key));
            assert!(
                (ours - theirs).abs() < 1e-3,
                "{key}: {ours}, vLLM has {theirs}"
            );
        }
    }
    let (p99, theirs) = (number(&ours, "p99_itl_ms"), number(&file, "p99_itl_ms"));
    assert!((p99 - theirs).abs() < 1e-3, "{p99}, vLLM has {theirs}");
    // vLLM prints a p99 of 32 requests; it is the maximum by another name.
    assert!(ours["p99_ttft_ms"].is_null());
    for key in [
        "completed",
        "failed",
        "total_input_tokens",
        "total_output_tokens",
    ] {
        assert_eq!(number(&ours, key), number(&file, key), "{key}");
    }
}

#[test]
fn rates_differ_from_vllms_only_by_the_window() {
    let (file, summary) = both();
    let json = summary.to_json();
    // Its clock runs from before the first dispatch to after the last task is gathered.
    let longer = number(&file, "duration") - number(&json, "duration");
    assert!((0.0..0.05).contains(&longer), "{longer}");
    let ours = number(&json, "output_throughput") * number(&json, "duration");
    let theirs = number(&file, "output_throughput") * number(&file, "duration");
    assert!((ours - theirs).abs() < 1e-6, "{ours}, {theirs}");
    // vLLM counts a request in every one-second bucket it touches, and so reports 32 at a limit of 16.
    assert_eq!(number(&file, "max_concurrent_requests"), 32.0);
    assert_eq!(number(&json, "max_concurrent_requests"), 16.0);
    // Its peak second counts chunks in fixed buckets and falls below the mean of the run.
    assert!(number(&file, "max_output_tokens_per_s") < number(&file, "output_throughput"));
    assert!(number(&json, "max_output_tokens_per_s") >= number(&json, "output_throughput"));
    assert!(summary.steady.is_ok(), "{:?}", summary.steady);
}
