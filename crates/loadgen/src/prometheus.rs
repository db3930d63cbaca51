//! The server's `/metrics`: a small parser of the Prometheus text format, and what linktax reads from it.
//!
//! Series are summed over engines and all other labels. Whatever cannot be known stays `None`:
//! absent series, counters that went backwards or were started anew, a server without `/metrics`.

use serde_json::{Map, Value, json};

mod delta;

pub(crate) use delta::{delta, merge};

/// One series of a scrape.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    /// Sorted by name, so that equal label sets compare equal.
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: f64,
}

impl Sample {
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        let at = self.labels.iter().find(|(n, _)| n == name)?;
        Some(&at.1)
    }
}

/// One scrape.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Samples {
    pub(crate) series: Vec<Sample>,
    /// Lines that are neither a comment nor a sample.
    pub(crate) skipped: usize,
}

impl Samples {
    pub(crate) fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.series.iter().filter(move |s| s.name == name)
    }

    /// The sum of a gauge over its labels; `None` if there is none or if one is not a number.
    fn gauge(&self, name: &str) -> Option<f64> {
        let mut values = self.named(name).map(|s| s.value).peekable();
        values.peek()?;
        Some(values.sum()).filter(|sum: &f64| sum.is_finite())
    }
}

/// Reads a scrape. Timestamps, exemplars and comments are ignored; malformed lines are counted.
pub(crate) fn parse(text: &str) -> Samples {
    let mut samples = Samples::default();
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match parse_line(line) {
            Some(sample) => samples.series.push(sample),
            None => samples.skipped += 1,
        }
    }
    samples
}

fn parse_line(line: &str) -> Option<Sample> {
    let (name, rest) = take_name(line, true)?;
    let rest = rest.trim_start();
    let (mut labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => parse_labels(inside)?,
        None => (Vec::new(), rest),
    };
    labels.sort();
    let mut words = rest.split_whitespace();
    let value = words.next()?.parse().ok()?;
    // After the value: a timestamp, an exemplar behind `#`, or nothing.
    let after = words.next();
    if after.is_some_and(|word| word != "#" && word.parse::<f64>().is_err()) {
        return None;
    }
    Some(Sample {
        name: name.to_owned(),
        labels,
        value,
    })
}

fn take_name(text: &str, colons: bool) -> Option<(&str, &str)> {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || (colons && c == ':');
    let end = text.find(|c| !inside(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let first = name.chars().next()?;
    (!first.is_ascii_digit()).then_some((name, rest))
}

type Labels = Vec<(String, String)>;

/// The labels up to the closing brace, and what follows it.
fn parse_labels(mut rest: &str) -> Option<(Labels, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = take_name(rest, false)?;
        let quoted = after.trim_start().strip_prefix('=')?;
        let quoted = quoted.trim_start().strip_prefix('"')?;
        let (value, after) = unquote(quoted)?;
        labels.push((name.to_owned(), value));
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(next) => next,
            None if after.starts_with('}') => after,
            None => return None,
        };
    }
}

/// A label value up to its closing quote, escapes undone, and what follows.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                // A backslash or a quote; other escapes are not defined and are kept as they are.
                escaped @ ('\\' | '"') => value.push(escaped),
                other => value.extend(['\\', other]),
            },
            _ => value.push(c),
        }
    }
    None
}

/// Requests running and waiting at the moment of a scrape.
pub(crate) fn gauges(samples: &Samples) -> (Option<f64>, Option<f64>) {
    (
        samples.gauge("vllm:num_requests_running"),
        samples.gauge("vllm:num_requests_waiting"),
    )
}

/// What the server says of its KV cache and parallelism in the labels of its `*_info` series.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CacheConfig {
    /// Tokens a block.
    pub(crate) block_size: Option<u64>,
    /// Blocks an engine.
    pub(crate) num_gpu_blocks: Option<u64>,
    /// Tokens that fit the cache of an engine.
    pub(crate) kv_cache_tokens: Option<u64>,
    pub(crate) prefix_caching: Option<bool>,
    pub(crate) tensor_parallel_size: Option<u64>,
    pub(crate) pipeline_parallel_size: Option<u64>,
    pub(crate) data_parallel_size: Option<u64>,
    /// Engines (data-parallel ranks) that report a cache.
    pub(crate) engines: usize,
}

/// The configuration, from the first engine that tells it.
pub(crate) fn cache_config(samples: &Samples) -> CacheConfig {
    let info = |label: &str| {
        samples
            .series
            .iter()
            .filter(|s| s.name.starts_with("vllm:") && s.name.ends_with("_info"))
            .find_map(|s| s.label(label).filter(|value| *value != "None"))
    };
    let number = |label: &str| info(label).and_then(|value| value.parse().ok());
    CacheConfig {
        block_size: number("block_size"),
        num_gpu_blocks: number("num_gpu_blocks"),
        kv_cache_tokens: number("kv_cache_size_tokens"),
        prefix_caching: info("enable_prefix_caching")
            .map(|value| value.eq_ignore_ascii_case("true")),
        tensor_parallel_size: number("tensor_parallel_size"),
        pipeline_parallel_size: number("pipeline_parallel_size"),
        data_parallel_size: number("data_parallel_size"),
        engines: samples.named("vllm:cache_config_info").count(),
    }
}

/// The server's own series as they stood, histogram buckets left out, for `server.json`.
pub(crate) fn to_json(samples: &Samples) -> Value {
    let kept = |s: &&Sample| {
        s.name.starts_with("vllm:")
            && !["_bucket", "_created", "_info"]
                .iter()
                .any(|end| s.name.ends_with(end))
    };
    let series: Map<String, Value> = samples
        .series
        .iter()
        .filter(kept)
        .map(|s| (title(s), json!(s.value)))
        .collect();
    let config = cache_config(samples);
    json!({
        "cache_config": {
            "block_size": config.block_size,
            "num_gpu_blocks": config.num_gpu_blocks,
            "kv_cache_tokens": config.kv_cache_tokens,
            "prefix_caching": config.prefix_caching,
            "tensor_parallel_size": config.tensor_parallel_size,
            "pipeline_parallel_size": config.pipeline_parallel_size,
            "data_parallel_size": config.data_parallel_size,
            "engines": config.engines,
        },
        "series": series,
        "skipped_lines": samples.skipped,
    })
}

/// The series' name and labels, without the model's name, which is the same in all of them.
fn title(sample: &Sample) -> String {
    let labels: Vec<String> = sample
        .labels
        .iter()
        .filter(|(name, _)| name != "model_name")
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    match labels.is_empty() {
        true => sample.name.clone(),
        false => format!("{}{{{}}}", sample.name, labels.join(",")),
    }
}

#[cfg(test)]
mod tests;
