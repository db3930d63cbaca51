//! The result file of `vllm bench serve --save-result [--save-detailed]`, as vLLM 0.33 writes it.
//!
//! Keys, their order and their units are vLLM's (arrays in seconds, aggregates in milliseconds), and so are the
//! definitions behind the numbers: percentiles by linear interpolation, population standard deviation, TPOT over
//! requests of more than one token, "ITL" as the gap between chunks, peaks from fixed one-second buckets, which count
//! chunks and every request that touches a bucket. What is ours stands in one extra object, `x_linktax`.
//!
//! Where this differs from a file that vLLM would have written of the same requests:
//!
//! * a request counts as completed only if it is one here; error frames, cut streams and short outputs are failures;
//!   requests cancelled at the end of a run are left out, but for the window that they fill;
//! * what was not measured is `null` where vLLM writes 0.0;
//! * `duration` runs from the first send to the last token, not to the return of the last task;
//! * `itls` holds one gap a socket read, where vLLM adds zeros for further chunks of the same read;
//! * `queue_times` count from the moment a request was due, which in a closed loop is the end of its predecessor;
//! * `date` is UTC, `start_times` count from the cell's clock origin, `label` is the arm;
//! * there is no tokenizer: `tokenizer_id` is `null`. Acceptance by position is not recorded: `null`.

mod console;
mod requests;

use linktax_records::{CellEntry, Load, RecordSource, RunManifest};
use serde_json::{Map, Value, json};

pub use console::console;
use requests::{Peaks, Requests};

use crate::calendar::compact_utc;
use crate::numpy::Sample;

/// The one key of ours in the file.
pub const EXTENSION_KEY: &str = "x_linktax";

/// One cell as `vllm bench serve` would have saved it; `detailed` adds the arrays of `--save-detailed`.
///
/// Only records of the measured phase count. Each request's gaps are held in memory, 8 bytes a read.
///
/// # Errors
///
/// Those of the source of the records.
pub fn vllm_bench_result<S: RecordSource + ?Sized>(
    cell: &CellEntry,
    manifest: &RunManifest,
    records: &S,
    detailed: bool,
) -> Result<Map<String, Value>, S::Error> {
    let requests = Requests::collect(records)?;
    let mut out = Map::new();
    push_setup(&mut out, cell, manifest, requests.rows.len());
    let rates = push_totals(&mut out, &requests);
    push_arrays(&mut out, &requests, detailed);
    let peaks = Peaks::of(&requests);
    push(
        &mut out,
        "max_output_tokens_per_s",
        peaks.map(|p| p.chunks as f64),
    );
    push(
        &mut out,
        "max_concurrent_requests",
        peaks.map(|p| p.requests),
    );
    push(&mut out, "rtfx", 0.0);
    push_spec_decode(&mut out, cell);
    push_distributions(&mut out, &requests);
    let extension = extension(cell, manifest, &requests, &rates);
    push(&mut out, EXTENSION_KEY, extension);
    Ok(out)
}

fn push(out: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    out.insert(key.to_owned(), value.into());
}

fn push_setup(out: &mut Map<String, Value>, cell: &CellEntry, manifest: &RunManifest, rows: usize) {
    let backend = match manifest.plan.get("endpoint").and_then(Value::as_str) {
        Some("chat") => "openai-chat",
        _ => "openai",
    };
    let started = cell.started_unix_ns.unwrap_or(manifest.started_unix_ns);
    push(out, "date", compact_utc(started));
    push(out, "endpoint_type", backend);
    push(out, "backend", backend);
    let label = Some(manifest.arm.as_str()).filter(|arm| !arm.is_empty());
    push(out, "label", label);
    push(out, "model_id", model(manifest));
    push(out, "tokenizer_id", Value::Null);
    push(
        out,
        "num_prompts",
        cell.spec.requests.unwrap_or(rows as u64),
    );
    let (rate, burstiness, cap) = match cell.spec.load {
        Load::Concurrency(c) => (json!("inf"), json!(1.0), Some(c)),
        Load::Rate {
            per_second,
            burstiness,
            max_concurrency,
        } => {
            // Constant spacing is infinite burstiness, which JSON cannot say as a number.
            let burstiness = burstiness.map_or_else(|| json!("inf"), |b| json!(b));
            (json!(per_second), burstiness, max_concurrency)
        }
        Load::Trace {
            max_concurrency, ..
        } => (json!("inf"), json!(1.0), max_concurrency),
    };
    push(out, "request_rate", rate);
    push(out, "burstiness", burstiness);
    push(out, "max_concurrency", cap);
}

/// The model that was asked for, or the only one that the server lists.
fn model(manifest: &RunManifest) -> Value {
    let planned = manifest.plan.get("model").filter(|m| m.is_string());
    let listed = || match manifest
        .servers
        .first()?
        .get("models")?
        .as_array()?
        .as_slice()
    {
        [only] if only.is_string() => Some(only),
        _ => None,
    };
    planned.or_else(listed).cloned().unwrap_or_default()
}

/// Rates over the duration, in the order of the file.
struct Rates {
    request: Option<f64>,
    output: Option<f64>,
    total: Option<f64>,
}

fn push_totals(out: &mut Map<String, Value>, requests: &Requests) -> Rates {
    let completed = requests.rows.iter().filter(|r| r.ok()).count() as u64;
    let input: Option<u64> = requests.completed().map(|r| r.input_len).sum();
    let output: u64 = requests.completed().map(|r| r.output_len).sum();
    let duration = requests.duration_s();
    let rate = |count: u64| duration.map(|d| count as f64 / d);
    let rates = Rates {
        request: rate(completed),
        output: rate(output),
        total: input.and_then(|i| rate(i + output)),
    };
    push(out, "duration", duration);
    push(out, "completed", completed);
    push(out, "failed", requests.rows.len() as u64 - completed);
    push(out, "total_input_tokens", input);
    push(out, "total_output_tokens", output);
    push(out, "request_throughput", rates.request);
    // Needs --goodput, which has no counterpart here.
    push(out, "request_goodput", Value::Null);
    push(out, "output_throughput", rates.output);
    push(out, "total_token_throughput", rates.total);
    rates
}

fn push_arrays(out: &mut Map<String, Value>, requests: &Requests, detailed: bool) {
    let rows = &requests.rows;
    if detailed {
        push(out, "input_lens", array(rows, |r| r.input_len.into()));
        push(out, "output_lens", array(rows, |r| r.output_len.into()));
        push(
            out,
            "ttfts",
            array(rows, |r| r.ttft_s().unwrap_or(0.0).into()),
        );
        push(out, "itls", array(rows, |r| r.gaps_s().collect()));
    }
    push(
        out,
        "latencies",
        array(rows, |r| r.latency_s().unwrap_or(0.0).into()),
    );
    if detailed {
        push(out, "start_times", array(rows, |r| r.start_s().into()));
    }
    push(out, "queue_times", array(rows, |r| r.queue_s().into()));
    if detailed {
        push(
            out,
            "generated_texts",
            array(rows, |r| r.text.as_str().into()),
        );
        push(out, "errors", array(rows, |r| r.error.as_str().into()));
    }
}

fn array<T>(rows: &[T], value: impl Fn(&T) -> Value) -> Value {
    rows.iter().map(value).collect()
}

fn push_spec_decode(out: &mut Map<String, Value>, cell: &CellEntry) {
    let Some(spec) = cell.server.as_ref().and_then(|s| s.spec_decode.as_ref()) else {
        return;
    };
    let Some(rate) = spec.acceptance_rate() else {
        return;
    };
    push(out, "spec_decode_acceptance_rate", rate * 100.0);
    push(
        out,
        "spec_decode_acceptance_length",
        spec.acceptance_length(),
    );
    push(out, "spec_decode_num_drafts", spec.drafts as u64);
    push(out, "spec_decode_draft_tokens", spec.draft_tokens as u64);
    push(
        out,
        "spec_decode_accepted_tokens",
        spec.accepted_tokens as u64,
    );
    push(
        out,
        "spec_decode_per_position_acceptance_rates",
        Value::Null,
    );
}

fn push_distributions(out: &mut Map<String, Value>, requests: &Requests) {
    let completed = || requests.completed();
    push_distribution(
        out,
        "ttft",
        completed().filter_map(|r| r.ttft_s()).collect(),
    );
    push_distribution(
        out,
        "tpot",
        completed().filter_map(|r| r.tpot_s()).collect(),
    );
    push_distribution(out, "itl", completed().flat_map(|r| r.gaps_s()).collect());
    push_distribution(
        out,
        "e2el",
        completed().filter_map(|r| r.latency_s()).collect(),
    );
}

fn push_distribution(out: &mut Map<String, Value>, metric: &str, seconds: Vec<f64>) {
    let sample = Sample::new(seconds);
    let ms = |f: &dyn Fn(&Sample) -> f64| sample.as_ref().map(|s| f(s) * 1000.0);
    push(out, &format!("mean_{metric}_ms"), ms(&Sample::mean));
    push(
        out,
        &format!("median_{metric}_ms"),
        ms(&|s| s.percentile(50.0)),
    );
    push(out, &format!("std_{metric}_ms"), ms(&Sample::std));
    push(
        out,
        &format!("p99_{metric}_ms"),
        ms(&|s| s.percentile(99.0)),
    );
}

fn extension(
    cell: &CellEntry,
    manifest: &RunManifest,
    requests: &Requests,
    rates: &Rates,
) -> Value {
    let gpus = manifest.gpus.count.filter(|&n| n > 0);
    let per_gpu = |rate: Option<f64>| rate.zip(gpus).map(|(r, n)| r / f64::from(n));
    json!({
        "schema_version": manifest.schema_version,
        "tool": manifest.tool,
        "arm": manifest.arm,
        "started_unix_ns": cell.started_unix_ns.unwrap_or(manifest.started_unix_ns),
        "gpus": manifest.gpus,
        "request_throughput_per_gpu": per_gpu(rates.request),
        "output_throughput_per_gpu": per_gpu(rates.output),
        "total_token_throughput_per_gpu": per_gpu(rates.total),
        "cancelled": requests.cancelled,
        "verdict": cell.verdict,
        "results": cell.results,
    })
}
