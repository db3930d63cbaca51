//! The flat JSON of a cell. Every missing number is `null` and has its reason in `null_reasons`.

use linktax_records::Outcome;
use serde_json::{Map, Value, json};

use crate::counts::{Counts, Tokens};
use crate::distribution::Distribution;
use crate::figure::{Figure, Missing};
use crate::summary::CellSummary;
use crate::throughput::{Rates, Steady};

/// The failures, in the order of the file.
const FAILURES: [Outcome; 10] = [
    Outcome::ConnectError,
    Outcome::HttpError,
    Outcome::ErrorInStream,
    Outcome::Truncated,
    Outcome::Reset,
    Outcome::FirstTokenTimeout,
    Outcome::IdleTimeout,
    Outcome::ShortOutput,
    Outcome::NoOutput,
    Outcome::Malformed,
];

/// Keys and values in order, and the reasons of those that are null.
struct Sheet {
    values: Map<String, Value>,
    reasons: Map<String, Value>,
    gpus: Option<u32>,
}

impl Sheet {
    fn put(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.values.insert(key.into(), value.into());
    }

    fn null(&mut self, key: impl Into<String>, why: &Missing) {
        let key = key.into();
        self.reasons.insert(key.clone(), why.reason().into());
        self.values.insert(key, Value::Null);
    }

    /// A number, or null with its reason.
    fn figure<T: Copy + Into<Value>>(&mut self, key: impl Into<String>, figure: &Figure<T>) {
        match figure {
            Ok(value) => self.put(key, *value),
            Err(why) => self.null(key, why),
        }
    }

    /// A throughput, and the same for each GPU.
    fn rate(&mut self, key: &str, figure: &Figure) {
        self.figure(key, figure);
        let per_gpu = match (figure, self.gpus) {
            (Ok(value), Some(gpus)) => Ok(value / f64::from(gpus)),
            (Err(why), _) => Err(why.clone()),
            (Ok(_), None) => Err(Missing::because("the number of GPUs is not known")),
        };
        self.figure(format!("{key}_per_gpu"), &per_gpu);
    }

    fn rates(&mut self, prefix: &str, rates: &Rates) {
        self.rate(&format!("{prefix}request_throughput"), &rates.request);
        self.rate(&format!("{prefix}input_throughput"), &rates.input);
        self.rate(&format!("{prefix}output_throughput"), &rates.output);
        self.rate(&format!("{prefix}total_token_throughput"), &rates.total);
    }

    fn family(&mut self, name: &str, family: &Figure<Distribution>, percentiles: &[f64]) {
        let value = |of: fn(&Distribution) -> f64| family.as_ref().map(of).map_err(Clone::clone);
        self.put(format!("n_{name}"), family.as_ref().map_or(0, |d| d.count));
        self.figure(format!("mean_{name}_ms"), &value(|d| d.mean));
        self.figure(format!("median_{name}_ms"), &value(|d| d.median));
        self.figure(format!("std_{name}_ms"), &value(|d| d.std));
        self.figure(format!("min_{name}_ms"), &value(|d| d.min));
        self.figure(format!("max_{name}_ms"), &value(|d| d.max));
        for (i, p) in percentiles.iter().enumerate() {
            let at = family.clone().and_then(|d| match d.percentiles.get(i) {
                Some((_, value)) => value.clone(),
                None => Err(Missing::because("not computed")),
            });
            self.figure(format!("p{p}_{name}_ms"), &at);
        }
    }
}

impl CellSummary {
    /// All numbers, flat, with the keys of `vllm bench serve` where it has them.
    ///
    /// The last entries are lists and objects: `slos`, `notes`, `percentile_notes` and `null_reasons`.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut sheet = Sheet {
            values: Map::new(),
            reasons: Map::new(),
            gpus: self.gpus,
        };
        sheet.figure("duration", &self.throughput.duration_s);
        counts(&mut sheet, &self.counts);
        tokens(&mut sheet, &self.tokens);
        self.write_throughput(&mut sheet);
        steady(&mut sheet, &self.steady);
        for (name, family) in self.families() {
            sheet.family(name, family, &self.percentiles);
        }
        sheet.figure(
            "token_weighted_tpot_ms",
            &self.latencies.token_weighted_tpot_ms,
        );
        sheet.put("tpot_unmeasured_requests", self.latencies.tpot_unmeasured);
        self.write_decode(&mut sheet);
        self.write_intervals(&mut sheet);
        let slos: Vec<String> = self.goodput.slos.iter().map(ToString::to_string).collect();
        sheet.put("slos", slos);
        sheet.put("notes", json!(self.notes));
        sheet.put("percentile_notes", self.percentile_notes());
        let reasons = std::mem::take(&mut sheet.reasons);
        sheet.put("null_reasons", reasons);
        sheet.values
    }

    fn write_throughput(&self, sheet: &mut Sheet) {
        let t = &self.throughput;
        sheet.figure(
            "gpus",
            &self
                .gpus
                .ok_or_else(|| Missing::because("the number of GPUs is not known")),
        );
        sheet.rates("", &t.rates);
        sheet.rate("prefill_throughput", &t.prefill);
        let per_minute = |rate: &Figure| rate.as_ref().map(|r| r * 60.0).map_err(Clone::clone);
        sheet.rate("output_tpm", &per_minute(&t.rates.output));
        sheet.rate("total_tpm", &per_minute(&t.rates.total));
        sheet.rate("request_goodput", &self.goodput.request_goodput);
        sheet.figure("slo_attainment", &self.goodput.attainment);
        sheet.rate("max_output_tokens_per_s", &t.peak_output);
        sheet.put("max_concurrent_requests", t.max_concurrent_requests);
        sheet.figure("mean_concurrency", &t.mean_concurrency);
        sheet.figure("target_rate", &self.arrival.target_rate);
        sheet.figure("scheduled_rate", &self.arrival.scheduled_rate);
        sheet.figure("achieved_rate", &self.arrival.achieved_rate);
        sheet.figure("max_send_lag_ms", &self.arrival.max_send_lag_ms);
    }

    fn write_decode(&self, sheet: &mut Sheet) {
        let d = &self.decode;
        sheet.figure("decode_tok_s", &d.tok_s);
        sheet.figure("decode_tok_s_request_mean", &d.tok_s_request_mean);
        sheet.figure("usual_decode_tok_s", &d.usual_tok_s);
        sheet.figure("decode_tok_s_unfiltered", &d.tok_s_unfiltered);
        sheet.figure("decode_tok_s_clean", &d.tok_s_clean);
        sheet.put("stall_mode", d.stall_mode);
        sheet.figure("stall_threshold_ms", &d.stall_threshold_ms);
        sheet.figure("stall_s", &d.stall_s);
        sheet.figure("stall_count", &d.stall_count);
        sheet.figure("stall_share", &d.stall_share);
        sheet.figure("mean_request_stall_s", &d.mean_request_stall_s);
        sheet.figure("max_request_stall_s", &d.max_request_stall_s);
        sheet.figure("longest_normal_gap_ms", &d.longest_normal_gap_ms);
        sheet.figure("shortest_stall_ms", &d.shortest_stall_ms);
        sheet.figure("same_answer_from_ms", &d.same_answer_from_ms);
        sheet.figure("same_answer_to_ms", &d.same_answer_to_ms);
        let word = d.separability.as_ref().map(|s| s.as_str());
        sheet.figure("stall_separable", &word.map_err(Clone::clone));
        let c = &d.classes;
        sheet.figure("normal_gaps", &c.normal);
        sheet.put("interfered_gaps", c.interfered);
        sheet.put("clean_gaps", c.clean);
        sheet.figure("interfered_normal_gaps", &c.interfered_normal);
        sheet.figure("clean_normal_gaps", &c.clean_normal);
        sheet.figure("interfered_stalls", &c.interfered_stalls);
        sheet.figure("clean_stalls", &c.clean_stalls);
        sheet.figure("stall_interference_agreement", &c.agreement);
    }

    fn write_intervals(&self, sheet: &mut Sheet) {
        for interval in &self.intervals {
            let end =
                |of: fn(&(f64, f64)) -> f64| interval.bounds.as_ref().map(of).map_err(Clone::clone);
            sheet.figure(format!("ci95_low_{}", interval.key), &end(|b| b.0));
            sheet.figure(format!("ci95_high_{}", interval.key), &end(|b| b.1));
        }
    }
}

fn counts(sheet: &mut Sheet, counts: &Counts) {
    sheet.put("completed", counts.completed);
    sheet.put("failed", counts.failed);
    sheet.put("cancelled", counts.cancelled);
    sheet.put("timing_errors", counts.timing_errors);
    sheet.put("measured_requests", counts.measured);
    sheet.put("warmup_requests", counts.warmup);
    sheet.figure("failure_share", &counts.failure_share());
    for outcome in FAILURES {
        let count = counts.failures.get(&outcome).copied().unwrap_or(0);
        sheet.put(format!("failed_{}", outcome.as_str()), count);
    }
}

fn tokens(sheet: &mut Sheet, tokens: &Tokens) {
    sheet.figure("total_input_tokens", &tokens.input);
    sheet.put("total_output_tokens", tokens.output);
    sheet.put("partial_output_tokens", tokens.partial_output);
    sheet.put("input_tokens_unconfirmed", tokens.input_unconfirmed > 0);
    sheet.put(
        "input_tokens_unconfirmed_requests",
        tokens.input_unconfirmed,
    );
    sheet.put("output_tokens_estimated_requests", tokens.output_estimated);
    sheet.put("read_tokens_estimated_requests", tokens.reads_estimated);
    sheet.figure("cached_input_tokens", &tokens.cached);
    sheet.figure("cached_input_share", &tokens.cached_share);
    sheet.figure("input_length_ratio", &tokens.input_ratio);
    sheet.figure("output_length_ratio", &tokens.output_ratio);
    sheet.figure("tokens_per_chunk", &tokens.per_read);
    let first =
        |of: fn(&(u32, u32)) -> u32| tokens.first_read.as_ref().map(of).map_err(Clone::clone);
    sheet.figure("min_first_chunk_tokens", &first(|f| f.0));
    sheet.figure("max_first_chunk_tokens", &first(|f| f.1));
    sheet.figure("coalesced_read_share", &tokens.coalesced_read_share);
}

fn steady(sheet: &mut Sheet, steady: &Figure<Steady>) {
    let value = |of: fn(&Steady) -> f64| steady.as_ref().map(of).map_err(Clone::clone);
    sheet.figure("steady_start_s", &value(|s| s.start_s));
    sheet.figure("steady_end_s", &value(|s| s.end_s));
    sheet.figure("steady_duration", &value(|s| s.end_s - s.start_s));
    let count = |of: fn(&Steady) -> u64| steady.as_ref().map(of).map_err(Clone::clone);
    sheet.figure("steady_completed", &count(|s| s.completed));
    sheet.figure("steady_output_tokens", &count(|s| s.output_tokens));
    let rates = match steady {
        Ok(s) => s.rates.clone(),
        Err(why) => Rates::missing(why),
    };
    sheet.rates("steady_", &rates);
    let concurrency = steady.as_ref().map_err(Clone::clone);
    sheet.figure(
        "steady_mean_concurrency",
        &concurrency.and_then(|s| s.mean_concurrency.clone()),
    );
}
