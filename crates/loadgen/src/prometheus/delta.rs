use std::collections::HashMap;

use linktax_records::{HistogramDelta, ServerDelta, SpecDecode};

use super::{Sample, Samples, cache_config};

/// What the server counted between two scrapes.
///
/// Peaks and the number of gauge samples are the caller's to fill in.
pub(crate) fn delta(
    before: &Result<Samples, String>,
    after: &Result<Samples, String>,
) -> ServerDelta {
    let unavailable = |reason: &str| ServerDelta {
        unavailable: Some(reason.to_owned()),
        ..ServerDelta::default()
    };
    let (before, after) = match (before, after) {
        (Ok(before), Ok(after)) => (before, after),
        (Err(reason), _) | (_, Err(reason)) => return unavailable(reason),
    };
    for samples in [before, after] {
        if !samples.series.iter().any(|s| s.name.starts_with("vllm:")) {
            return unavailable("/metrics holds no vllm: series");
        }
    }
    let counter = |names: &[&str]| names.iter().find_map(|name| counter(before, after, name));
    let histogram = |name: &str| histogram(before, after, name);
    let config = cache_config(after);
    ServerDelta {
        unavailable: None,
        prefix_cache_queries: counter(&[
            "vllm:prefix_cache_queries",
            "vllm:gpu_prefix_cache_queries",
        ]),
        prefix_cache_hits: counter(&["vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"]),
        prefix_caching: config.prefix_caching,
        block_size: config.block_size.filter(|size| *size > 0),
        preemptions: counter(&["vllm:num_preemptions"]),
        prompt_tokens: counter(&["vllm:prompt_tokens"]),
        generation_tokens: counter(&["vllm:generation_tokens"]),
        running_peak: None,
        waiting_peak: None,
        gauge_samples: 0,
        spec_decode: spec_decode(&counter),
        ttft: histogram("vllm:time_to_first_token_seconds"),
        // The older name counts the same gaps.
        itl: histogram("vllm:inter_token_latency_seconds")
            .or_else(|| histogram("vllm:time_per_output_token_seconds")),
        queue: histogram("vllm:request_queue_time_seconds"),
    }
}

fn spec_decode(counter: &dyn Fn(&[&str]) -> Option<f64>) -> Option<SpecDecode> {
    Some(SpecDecode {
        drafts: counter(&["vllm:spec_decode_num_drafts"])?,
        draft_tokens: counter(&["vllm:spec_decode_num_draft_tokens"])?,
        accepted_tokens: counter(&["vllm:spec_decode_num_accepted_tokens"])?,
    })
}

/// Growth of a counter, whether exported as `name_total` or as `name`.
fn counter(before: &Samples, after: &Samples, name: &str) -> Option<f64> {
    let total = format!("{name}_total");
    let exported = [total.as_str(), name]
        .into_iter()
        .find(|name| after.named(name).next().is_some())?;
    if restarted(before, after, &format!("{name}_created")) {
        return None;
    }
    growth(before, after, exported)
}

/// Whether any of these creation times changed: the counters behind them began again from zero,
/// even where they have outgrown their old values since.
fn restarted(before: &Samples, after: &Samples, created: &str) -> bool {
    let old = by_labels(before, created);
    after
        .named(created)
        .any(|s| old.get(&s.labels).is_some_and(|old| *old != s.value))
}

type ByLabels<'a> = HashMap<&'a Vec<(String, String)>, f64>;

fn by_labels<'a>(samples: &'a Samples, name: &'a str) -> ByLabels<'a> {
    samples.named(name).map(|s| (&s.labels, s.value)).collect()
}

/// Growth of the series `name`, summed over its labels.
///
/// Compared label set by label set, so that one engine's restart is not hidden by the others' growth.
/// A label set that appears between the scrapes began at zero; one that disappears makes it unknown.
fn growth(before: &Samples, after: &Samples, name: &str) -> Option<f64> {
    let mut old = by_labels(before, name);
    if old.is_empty() {
        return None;
    }
    let mut sum = 0.0;
    for sample in after.named(name) {
        let grown = sample.value - old.remove(&sample.labels).unwrap_or(0.0);
        // NaN fails this too.
        if !(grown >= 0.0 && grown.is_finite()) {
            return None;
        }
        sum += grown;
    }
    old.is_empty().then_some(sum)
}

fn histogram(before: &Samples, after: &Samples, name: &str) -> Option<HistogramDelta> {
    if restarted(before, after, &format!("{name}_created")) {
        return None;
    }
    let count = growth(before, after, &format!("{name}_count"))?;
    let sum_s = growth(before, after, &format!("{name}_sum"))?;
    let bucket = format!("{name}_bucket");
    let mut bounds: Vec<(f64, [Samples; 2])> = Vec::new();
    for (side, samples) in [before, after].into_iter().enumerate() {
        for sample in samples.named(&bucket) {
            let bound = upper_bound(sample)?;
            let at = match bounds.iter().position(|(b, _)| *b == bound) {
                Some(at) => at,
                None => {
                    bounds.push((bound, Default::default()));
                    bounds.len() - 1
                }
            };
            bounds[at].1[side].series.push(sample.clone());
        }
    }
    // The text need not list the buckets in order.
    bounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let buckets = bounds
        .into_iter()
        .map(|(bound, [before, after])| {
            let cumulative = growth(&before, &after, &bucket)?;
            Some((Some(bound).filter(|b| b.is_finite()), cumulative))
        })
        .collect::<Option<Vec<_>>>()?;
    Some(HistogramDelta {
        count,
        sum_s,
        buckets,
    })
}

fn upper_bound(bucket: &Sample) -> Option<f64> {
    let bound: f64 = bucket.label("le")?.parse().ok()?;
    (!bound.is_nan()).then_some(bound)
}

/// The deltas of several replicas as one: sums, where every replica knows its part.
///
/// Peaks stay unset: the caller adds up what it sampled at the same moment.
pub(crate) fn merge(deltas: &[ServerDelta]) -> ServerDelta {
    if let Some(reason) = deltas.iter().find_map(|d| d.unavailable.clone()) {
        return ServerDelta {
            unavailable: Some(reason),
            ..ServerDelta::default()
        };
    }
    if deltas.is_empty() {
        return ServerDelta {
            unavailable: Some("no replica was asked".to_owned()),
            ..ServerDelta::default()
        };
    }
    let sum = |field: fn(&ServerDelta) -> Option<f64>| deltas.iter().map(field).sum();
    ServerDelta {
        unavailable: None,
        prefix_cache_queries: sum(|d| d.prefix_cache_queries),
        prefix_cache_hits: sum(|d| d.prefix_cache_hits),
        prefix_caching: same(deltas, |d| d.prefix_caching),
        block_size: same(deltas, |d| d.block_size),
        preemptions: sum(|d| d.preemptions),
        prompt_tokens: sum(|d| d.prompt_tokens),
        generation_tokens: sum(|d| d.generation_tokens),
        running_peak: None,
        waiting_peak: None,
        gauge_samples: 0,
        spec_decode: fold(deltas, |d| d.spec_decode.as_ref(), add_spec_decode),
        ttft: fold(deltas, |d| d.ttft.as_ref(), add_histogram),
        itl: fold(deltas, |d| d.itl.as_ref(), add_histogram),
        queue: fold(deltas, |d| d.queue.as_ref(), add_histogram),
    }
}

/// What all replicas say alike.
fn same<T: PartialEq>(deltas: &[ServerDelta], field: fn(&ServerDelta) -> Option<T>) -> Option<T> {
    let mut all = deltas.iter().map(field);
    let first = all.next()??;
    all.all(|other| other.as_ref() == Some(&first))
        .then_some(first)
}

fn fold<T: Clone>(
    deltas: &[ServerDelta],
    field: fn(&ServerDelta) -> Option<&T>,
    add: fn(T, &T) -> Option<T>,
) -> Option<T> {
    let (first, rest) = deltas.split_first()?;
    rest.iter()
        .try_fold(field(first)?.clone(), |sum, delta| add(sum, field(delta)?))
}

fn add_spec_decode(sum: SpecDecode, other: &SpecDecode) -> Option<SpecDecode> {
    Some(SpecDecode {
        drafts: sum.drafts + other.drafts,
        draft_tokens: sum.draft_tokens + other.draft_tokens,
        accepted_tokens: sum.accepted_tokens + other.accepted_tokens,
    })
}

/// Histograms add up only over the same bounds.
fn add_histogram(mut sum: HistogramDelta, other: &HistogramDelta) -> Option<HistogramDelta> {
    if sum.buckets.len() != other.buckets.len() {
        return None;
    }
    for (bucket, (bound, cumulative)) in sum.buckets.iter_mut().zip(&other.buckets) {
        if bucket.0 != *bound {
            return None;
        }
        bucket.1 += cumulative;
    }
    sum.count += other.count;
    sum.sum_s += other.sum_s;
    Some(sum)
}
