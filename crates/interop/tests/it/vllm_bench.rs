use std::convert::Infallible;

use linktax_interop::vllm_bench::{EXTENSION_KEY, console, vllm_bench_result};
use linktax_records::{
    FailureDetail, Load, Nanos, Outcome, Phase, RequestRecord, ServerDelta, SpecDecode,
};
use serde_json::{Map, Value, json};

use crate::samples::{cell, manifest, request, request_ms};

const PLAIN: &str = include_str!("../data/vllm-bench-serve-qwen3-4b-c16.json");
const NGRAM: &str = include_str!("../data/vllm-bench-serve-ngram-c16.json");

fn recorded(text: &str) -> Map<String, Value> {
    serde_json::from_str(text).unwrap()
}

fn floats(value: &Value) -> Vec<f64> {
    let items = value.as_array().unwrap();
    items.iter().map(|v| v.as_f64().unwrap()).collect()
}

/// The requests that a recorded file tells of, in the order of their ends, as a run leaves them.
fn records_of(file: &Map<String, Value>) -> Vec<RequestRecord> {
    let starts = floats(&file["start_times"]);
    let ttfts = floats(&file["ttfts"]);
    let mut records: Vec<RequestRecord> = (0..starts.len())
        .map(|i| {
            let total = file["output_lens"][i].as_u64().unwrap() as u32;
            let gaps = floats(&file["itls"][i]);
            let mut at = ttfts[i];
            // One token a chunk, the rest in the first: the file does not say.
            let mut arrivals = vec![(Nanos::from_secs_f64(at), total - gaps.len() as u32)];
            for gap in gaps {
                at += gap;
                arrivals.push((Nanos::from_secs_f64(at), 1));
            }
            let mut r = request(i as u64, Nanos::from_secs_f64(starts[i]), &arrivals);
            r.usage.as_mut().unwrap().prompt_tokens = file["input_lens"][i].as_u64().unwrap();
            r.text = Some(file["generated_texts"][i].as_str().unwrap().into());
            r
        })
        .collect();
    records.sort_by_key(RequestRecord::t_last_token);
    records
}

fn result(load: Load, records: &[RequestRecord]) -> Map<String, Value> {
    let Ok(out): Result<_, Infallible> =
        vllm_bench_result(&cell(load), &manifest(Some(2)), records, true);
    out
}

fn ours_of(text: &str) -> (Map<String, Value>, Map<String, Value>) {
    let file = recorded(text);
    let mut cell = cell(Load::Concurrency(16));
    cell.spec.requests = Some(file["num_prompts"].as_u64().unwrap());
    if let Some(drafts) = file.get("spec_decode_num_drafts") {
        cell.server = Some(ServerDelta {
            spec_decode: Some(SpecDecode {
                drafts: drafts.as_f64().unwrap(),
                draft_tokens: file["spec_decode_draft_tokens"].as_f64().unwrap(),
                accepted_tokens: file["spec_decode_accepted_tokens"].as_f64().unwrap(),
            }),
            ..ServerDelta::default()
        });
    }
    let Ok(ours) = vllm_bench_result(&cell, &manifest(Some(2)), &records_of(&file), true);
    (file, ours)
}

#[track_caller]
fn close(what: &str, ours: f64, theirs: f64) {
    let error = (ours - theirs).abs() / theirs.abs().max(1e-300);
    assert!(error <= 1e-6, "{what}: {ours} against {theirs} ({error:e})");
}

#[test]
fn keys_and_their_order_are_those_of_a_recorded_file() {
    for text in [PLAIN, NGRAM] {
        let (file, ours) = ours_of(text);
        let theirs: Vec<&String> = file.keys().collect();
        // Newer than the recording: 0.33 writes both, in these places.
        let newer = ["latencies", "queue_times", EXTENSION_KEY];
        let same: Vec<&String> = ours
            .keys()
            .filter(|k| !newer.contains(&k.as_str()))
            .collect();
        assert_eq!(same, theirs);
        let all: Vec<&str> = ours.keys().map(String::as_str).collect();
        let arrays = [
            "input_lens",
            "output_lens",
            "ttfts",
            "itls",
            "latencies",
            "start_times",
            "queue_times",
            "generated_texts",
            "errors",
            "max_output_tokens_per_s",
        ];
        let at = all.iter().position(|&k| k == "input_lens").unwrap();
        assert_eq!(all[at..at + arrays.len()], arrays);
        assert_eq!(all.last(), Some(&EXTENSION_KEY));
    }
}

#[test]
fn kinds_of_values_are_those_of_a_recorded_file() {
    let kind = |v: &Value| match v {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_f64() => "float",
        Value::Number(_) => "int",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    // Documented: our label is the arm, we have no tokenizer and no acceptance by position.
    let documented = [
        "label",
        "tokenizer_id",
        "spec_decode_per_position_acceptance_rates",
    ];
    for text in [PLAIN, NGRAM] {
        let (file, ours) = ours_of(text);
        for (key, theirs) in file
            .iter()
            .filter(|(k, _)| !documented.contains(&k.as_str()))
        {
            assert_eq!(kind(&ours[key]), kind(theirs), "{key}");
        }
    }
}

#[test]
fn aggregates_reproduce_those_of_vllm() {
    for text in [PLAIN, NGRAM] {
        let (file, ours) = ours_of(text);
        let number = |m: &Map<String, Value>, key: &str| m[key].as_f64().unwrap();
        let mut compared = 0;
        for (key, theirs) in &file {
            if key.ends_with("_ms") {
                close(key, ours[key].as_f64().unwrap(), theirs.as_f64().unwrap());
                compared += 1;
            }
        }
        assert_eq!(compared, 16);
        for key in [
            "request_throughput",
            "output_throughput",
            "total_token_throughput",
        ] {
            // vLLM's window also holds its task switches; the numerators must agree exactly.
            let counted = number(&ours, key) * number(&ours, "duration");
            close(key, counted, number(&file, key) * number(&file, "duration"));
        }
        let lost = number(&file, "duration") - number(&ours, "duration");
        assert!((0.0..0.002).contains(&lost), "{lost} s");
        for key in [
            "num_prompts",
            "completed",
            "failed",
            "total_input_tokens",
            "total_output_tokens",
            "max_output_tokens_per_s",
            "max_concurrent_requests",
            "rtfx",
            "request_rate",
            "burstiness",
            "max_concurrency",
            "request_goodput",
            "model_id",
            "backend",
        ] {
            assert_eq!(ours[key], file[key], "{key}");
        }
        for (key, theirs) in file.iter().filter(|(k, _)| k.starts_with("spec_decode_")) {
            if let Some(theirs) = theirs.as_f64() {
                assert_eq!(ours[key].as_f64(), Some(theirs), "{key}");
            }
        }
    }
}

#[test]
fn arrays_reproduce_those_of_vllm() {
    for text in [PLAIN, NGRAM] {
        let (file, ours) = ours_of(text);
        for key in ["input_lens", "output_lens", "generated_texts", "errors"] {
            assert_eq!(ours[key], file[key], "{key}");
        }
        // Whole nanoseconds here; a start time also lost digits to its own size in the file.
        for key in ["ttfts", "start_times"] {
            for (a, b) in floats(&ours[key]).into_iter().zip(floats(&file[key])) {
                assert!((a - b).abs() < 1e-9, "{key}: {a} against {b}");
            }
        }
        let (a, b) = (&ours["itls"], &file["itls"]);
        for (a, b) in a.as_array().unwrap().iter().zip(b.as_array().unwrap()) {
            let (a, b) = (floats(a), floats(b));
            assert_eq!(a.len(), b.len());
            for (a, b) in a.into_iter().zip(b) {
                assert!((a - b).abs() <= 1.1e-9, "{a} against {b}");
            }
        }
    }
}

#[test]
fn without_detail_the_arrays_go_but_two() {
    let records = [request_ms(0, 0, &[100, 120])];
    let full = result(Load::Concurrency(1), &records);
    let Ok(short) = vllm_bench_result(
        &cell(Load::Concurrency(1)),
        &manifest(Some(2)),
        &records[..],
        false,
    );
    let gone: Vec<&str> = full
        .keys()
        .filter(|k| !short.contains_key(*k))
        .map(String::as_str)
        .collect();
    assert_eq!(
        gone,
        [
            "input_lens",
            "output_lens",
            "ttfts",
            "itls",
            "start_times",
            "generated_texts",
            "errors"
        ]
    );
    for (key, value) in &short {
        assert_eq!(value, &full[key]);
    }
}

/// FR-08's three requests: the mean TPOT is over those of more than one token.
#[test]
fn fr_08_tpot_leaves_out_one_token_answers() {
    let tenth: Vec<u64> = (0..11).map(|k| 100 + 30 * k).collect();
    let records = [
        request_ms(0, 0, &[100]),
        request_ms(1, 0, &[100, 120, 140, 160, 180]),
        request_ms(2, 1000, &tenth),
    ];
    let out = result(Load::Concurrency(2), &records);
    close("mean_tpot_ms", out["mean_tpot_ms"].as_f64().unwrap(), 25.0);
    close("std_tpot_ms", out["std_tpot_ms"].as_f64().unwrap(), 5.0);
    // 20 + 0.99 * (30 - 20)
    close("p99_tpot_ms", out["p99_tpot_ms"].as_f64().unwrap(), 29.9);
    close(
        "mean_itl_ms",
        out["mean_itl_ms"].as_f64().unwrap(),
        380.0 / 14.0,
    );
    close(
        "median_itl_ms",
        out["median_itl_ms"].as_f64().unwrap(),
        30.0,
    );
    assert!(out["std_ttft_ms"].as_f64().unwrap() < 1e-9);
    // First send at 0, last token at 1.4 s.
    assert_eq!(out["duration"], 1.4);
    assert_eq!(out["total_output_tokens"], 17);
    close(
        "output_throughput",
        out["output_throughput"].as_f64().unwrap(),
        17.0 / 1.4,
    );
    assert_eq!(out["latencies"], json!([0.1, 0.18, 0.4]));
    assert_eq!(out["itls"][1], json!([0.02, 0.02, 0.02, 0.02]));
    // Second 0 holds 6 chunks of two requests, second 1 holds 11 of one.
    assert_eq!(out["max_output_tokens_per_s"], 11.0);
    assert_eq!(out["max_concurrent_requests"], 2);
    let ours = &out[EXTENSION_KEY];
    close(
        "per GPU",
        ours["output_throughput_per_gpu"].as_f64().unwrap(),
        8.5 / 1.4,
    );
}

#[test]
fn fr_08_all_answers_of_one_token_have_no_tpot() {
    let records = [request_ms(0, 0, &[100]), request_ms(1, 0, &[110])];
    let out = result(Load::Concurrency(2), &records);
    for metric in ["tpot", "itl"] {
        for figure in ["mean", "median", "std", "p99"] {
            assert_eq!(out[&format!("{figure}_{metric}_ms")], Value::Null);
        }
    }
    close("mean_ttft_ms", out["mean_ttft_ms"].as_f64().unwrap(), 105.0);
    assert!(console(&out).contains("Mean TPOT (ms):                          n/a"));
}

/// Several tokens in a chunk: TPOT divides by tokens, "ITL" stays a gap between chunks.
#[test]
fn fr_02_several_tokens_a_chunk() {
    let ms = Nanos::from_millis;
    let arrivals = [(ms(200), 1), (ms(240), 4), (ms(280), 4), (ms(320), 4)];
    let records = [request(0, Nanos::ZERO, &arrivals)];
    let out = result(Load::Concurrency(1), &records);
    close("mean_tpot_ms", out["mean_tpot_ms"].as_f64().unwrap(), 10.0);
    close(
        "median_itl_ms",
        out["median_itl_ms"].as_f64().unwrap(),
        40.0,
    );
    assert_eq!(out["total_output_tokens"], 13);
}

#[test]
fn fr_05_a_failed_request_is_no_success() {
    let mut bad = request_ms(1, 0, &[100, 200]);
    bad.outcome = Outcome::ErrorInStream;
    bad.failure = Some(FailureDetail {
        status: Some(200),
        message: "engine failed".into(),
        body: None,
    });
    let mut refused = request_ms(2, 0, &[]);
    refused.outcome = Outcome::ConnectError;
    refused.t_sent_ns = None;
    refused.usage = None;
    let mut cancelled = request_ms(3, 0, &[100, 1250]);
    cancelled.outcome = Outcome::Cancelled;
    let mut warmup = request_ms(0, 0, &[5000]);
    warmup.phase = Phase::Warmup;
    let good: Vec<u64> = (1..=10).map(|k| 100 * k).collect();
    // In the order of ending, not of sending.
    let records = [warmup, refused, bad, request_ms(0, 0, &good), cancelled];
    let out = result(Load::Concurrency(2), &records);
    assert_eq!(out["completed"], 1);
    assert_eq!(out["failed"], 2);
    assert_eq!(out["num_prompts"], 3);
    assert_eq!(out["mean_e2el_ms"], 1000.0);
    assert_eq!(out["duration"], 1.25, "first send to last token of any");
    assert_eq!(out["output_throughput"], 8.0);
    assert_eq!(out["total_input_tokens"], 1024);
    assert_eq!(out["total_output_tokens"], 10);
    assert_eq!(out["ttfts"], json!([0.1, 0.0, 0.0]));
    assert_eq!(out["output_lens"], json!([10, 0, 0]));
    assert_eq!(out["itls"][1], json!([]));
    assert_eq!(out["latencies"], json!([1.0, 0.0, 0.0]));
    assert_eq!(
        out["errors"],
        json!(["", "error_in_stream: engine failed", "connect_error"])
    );
    assert_eq!(out[EXTENSION_KEY]["cancelled"], 1);
}

/// FR-11: input tokens come from the server's usage, and an unknown length is not a zero.
#[test]
fn fr_11_input_tokens_are_the_servers() {
    let mut a = request_ms(0, 0, &[100, 120]);
    a.usage.as_mut().unwrap().prompt_tokens = 5128;
    let mut b = request_ms(1, 0, &[100, 120]);
    b.usage = None;
    let out = result(Load::Concurrency(2), &[a.clone(), b.clone()]);
    assert_eq!(out["input_lens"], json!([5128, 1024]));
    assert_eq!(out["total_input_tokens"], 6152);
    b.input_len = None;
    let out = result(Load::Concurrency(2), &[a, b]);
    assert_eq!(out["input_lens"], json!([5128, null]));
    assert_eq!(out["total_input_tokens"], Value::Null);
    assert_eq!(out["total_token_throughput"], Value::Null);
    assert_eq!(out["total_output_tokens"], 4);
}

#[test]
fn no_request_gives_nulls_not_zeros() {
    let out = result(Load::Concurrency(2), &[]);
    assert_eq!(out["completed"], 0);
    for key in [
        "duration",
        "request_throughput",
        "mean_e2el_ms",
        "max_output_tokens_per_s",
    ] {
        assert_eq!(out[key], Value::Null, "{key}");
    }
    assert_eq!(out["ttfts"], json!([]));
}

#[test]
fn open_loops_say_their_rate() {
    let rate = |burstiness| Load::Rate {
        per_second: 0.4,
        burstiness,
        max_concurrency: Some(8),
    };
    let mut late = request_ms(0, 1000, &[100, 120]);
    late.t_sched_ns = Nanos::from_millis(750);
    let out = result(rate(Some(1.5)), &[late]);
    assert_eq!(out["request_rate"], 0.4);
    assert_eq!(out["burstiness"], 1.5);
    assert_eq!(out["max_concurrency"], 8);
    assert_eq!(out["queue_times"], json!([0.25]));
    assert_eq!(result(rate(None), &[])["burstiness"], "inf");
    let trace = Load::Trace {
        speedup: 1.0,
        max_concurrency: None,
    };
    let out = result(trace, &[]);
    assert_eq!(out["request_rate"], "inf");
    assert_eq!(out["max_concurrency"], Value::Null);
}

#[test]
fn setup_keys_come_from_the_manifest() {
    let entry = cell(Load::Concurrency(4));
    let mut m = manifest(None);
    m.plan = json!({"endpoint": "chat", "model": null});
    m.servers = vec![json!({"models": ["qwen"]})];
    m.arm = String::new();
    let none: [RequestRecord; 0] = [];
    let Ok(out) = vllm_bench_result(&entry, &m, &none[..], true);
    assert_eq!(out["date"], "20261129-141903");
    assert_eq!(out["endpoint_type"], "openai-chat");
    assert_eq!(out["label"], Value::Null);
    assert_eq!(out["model_id"], "qwen");
    assert_eq!(out[EXTENSION_KEY]["output_throughput_per_gpu"], Value::Null);
}

#[test]
fn the_extension_carries_our_results_whole() {
    let mut entry = cell(Load::Concurrency(4));
    let results = json!({"decode_tok_s": 62.5, "stall_s": 2.7, "stall_count": 1});
    entry.results = results.as_object().cloned();
    let none: [RequestRecord; 0] = [];
    let Ok(out) = vllm_bench_result(&entry, &manifest(Some(2)), &none[..], false);
    let ours = &out[EXTENSION_KEY];
    assert_eq!(ours["results"], results);
    assert_eq!(ours["arm"], "nvlink");
    assert_eq!(ours["schema_version"], 1);
    assert_eq!(ours["tool"]["name"], "linktax");
    assert_eq!(ours["gpus"]["count"], 2);
}

#[test]
fn console_of_a_recorded_file_reads_like_vllms_own() {
    let expected = "\
============ Serving Benchmark Result ============
Successful requests:                     64        
Failed requests:                         0         
Maximum request concurrency:             16        
Benchmark duration (s):                  6.67      
Total input tokens:                      65536     
Total generated tokens:                  8192      
Request throughput (req/s):              9.59      
Output token throughput (tok/s):         1227.64   
Peak output token throughput (tok/s):    1376.00   
Peak concurrent requests:                32.00     
Total token throughput (tok/s):          11048.75  
---------------Time to First Token----------------
Mean TTFT (ms):                          172.69    
Median TTFT (ms):                        176.00    
P99 TTFT (ms):                           268.72    
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          11.75     
Median TPOT (ms):                        12.58     
P99 TPOT (ms):                           13.76     
---------------Inter-token Latency----------------
Mean ITL (ms):                           11.75     
Median ITL (ms):                         12.09     
P99 ITL (ms):                            18.39     
----------------End-to-end Latency----------------
Mean E2EL (ms):                          1664.40   
Median E2EL (ms):                        1771.36   
P99 E2EL (ms):                           1890.53   
---------------Speculative Decoding---------------
Acceptance rate (%):                     0.00      
Acceptance length:                       1.00      
Drafts:                                  52        
Draft tokens:                            156       
Accepted tokens:                         0         
Per-position acceptance (%):
  Position 0:                            0.00      
  Position 1:                            0.00      
  Position 2:                            0.00      
==================================================
";
    assert_eq!(console(&recorded(NGRAM)), expected);
}

#[test]
fn console_prints_what_a_file_has() {
    let mut file = recorded(PLAIN);
    file.remove("mean_e2el_ms");
    file.insert("request_rate".into(), json!(4.0));
    file.insert("request_goodput".into(), json!(3.5));
    file.insert("p99.9_ttft_ms".into(), json!(250.0));
    let text = console(&file);
    assert!(!text.contains("E2EL"));
    assert!(text.contains("Request rate configured (RPS):           4.00      \n"));
    assert!(text.contains("Request goodput (req/s):                 3.50      \n"));
    assert!(text.contains("P99.9 TTFT (ms):                         250.00    \n"));
}
