//! `/metrics` as vLLM writes it.

use std::fmt::Write as _;

use crate::config::MockConfig;
use crate::job::Finish;

/// Buckets of vLLM 0.32, in seconds.
const TTFT_BUCKETS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const ITL_BUCKETS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const REQUEST_BUCKETS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];

pub(crate) struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Histogram {
            bounds,
            counts: vec![0; bounds.len() + 1],
            sum: 0.0,
        }
    }

    /// Counts a duration of `ns`.
    pub(crate) fn observe(&mut self, ns: u64) {
        let seconds = ns as f64 / 1e9;
        let at = self
            .bounds
            .iter()
            .position(|b| seconds <= *b)
            .unwrap_or(self.bounds.len());
        self.counts[at] += 1;
        self.sum += seconds;
    }
}

/// Counters since the start.
pub(crate) struct Metrics {
    pub(crate) prefix_queries: u64,
    pub(crate) prefix_hits: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) generation_tokens: u64,
    pub(crate) preemptions: u64,
    drafts: u64,
    draft_tokens: u64,
    accepted: Vec<u64>,
    finished: [u64; 4],
    pub(crate) ttft: Histogram,
    pub(crate) itl: Histogram,
    pub(crate) queue: Histogram,
    pub(crate) e2e: Histogram,
    created: f64,
}

impl Metrics {
    pub(crate) fn new(created: f64) -> Self {
        Metrics {
            prefix_queries: 0,
            prefix_hits: 0,
            prompt_tokens: 0,
            generation_tokens: 0,
            preemptions: 0,
            drafts: 0,
            draft_tokens: 0,
            accepted: Vec::new(),
            finished: [0; 4],
            ttft: Histogram::new(TTFT_BUCKETS),
            itl: Histogram::new(ITL_BUCKETS),
            queue: Histogram::new(REQUEST_BUCKETS),
            e2e: Histogram::new(REQUEST_BUCKETS),
            created,
        }
    }

    /// Counts a decode step that yielded `tokens` of at most `most`: one token is the model's own, the rest were drafts.
    pub(crate) fn draft(&mut self, tokens: u64, most: u64) {
        let (proposed, accepted) = (most.saturating_sub(1), tokens.saturating_sub(1));
        if proposed == 0 {
            return;
        }
        self.drafts += 1;
        self.draft_tokens += proposed;
        let positions = usize::try_from(proposed).unwrap_or(0);
        if self.accepted.len() < positions {
            self.accepted.resize(positions, 0);
        }
        let taken = usize::try_from(accepted).unwrap_or(positions);
        self.accepted.iter_mut().take(taken).for_each(|n| *n += 1);
    }

    pub(crate) fn finish(&mut self, reason: Finish) {
        self.finished[reason as usize] += 1;
    }

    /// The page.
    pub(crate) fn render(&self, config: &MockConfig, running: u64, waiting: u64) -> String {
        let mut page = Page {
            text: String::with_capacity(16 << 10),
            model: label(&config.model),
            created: self.created,
        };
        page.gauge(
            "num_requests_running",
            "Number of requests in model execution batches.",
            running,
        );
        page.gauge(
            "num_requests_waiting",
            "Number of requests waiting to be processed.",
            waiting,
        );
        page.counter(
            "prefix_cache_queries",
            "Prefix cache queries, in terms of number of queried tokens.",
            &[("", self.prefix_queries)],
        );
        page.counter(
            "prefix_cache_hits",
            "Prefix cache hits, in terms of number of cached tokens.",
            &[("", self.prefix_hits)],
        );
        page.counter(
            "num_preemptions",
            "Cumulative number of preemption from the engine.",
            &[("", self.preemptions)],
        );
        page.counter(
            "prompt_tokens",
            "Number of prefill tokens processed.",
            &[("", self.prompt_tokens)],
        );
        page.counter(
            "generation_tokens",
            "Number of generation tokens processed.",
            &[("", self.generation_tokens)],
        );
        let by_reason: Vec<(String, u64)> =
            [Finish::Stop, Finish::Length, Finish::Abort, Finish::Error]
                .map(|r| {
                    (
                        format!("finished_reason=\"{}\",", r.name()),
                        self.finished[r as usize],
                    )
                })
                .into();
        page.counter(
            "request_success",
            "Count of successfully processed requests.",
            &by_reason,
        );
        if config.tokens_per_chunk.iter().any(|n| *n > 1) {
            self.render_drafts(&mut page);
        }
        self.render_times(&mut page);
        page.cache_config(config);
        page.text
    }

    fn render_times(&self, page: &mut Page) {
        page.histogram(
            "time_to_first_token_seconds",
            "Histogram of time to first token in seconds.",
            &self.ttft,
        );
        page.histogram(
            "inter_token_latency_seconds",
            "Histogram of inter-token latency in seconds.",
            &self.itl,
        );
        page.histogram(
            "e2e_request_latency_seconds",
            "Histogram of e2e request latency in seconds.",
            &self.e2e,
        );
        page.histogram(
            "request_queue_time_seconds",
            "Histogram of time spent in WAITING phase for request.",
            &self.queue,
        );
    }

    fn render_drafts(&self, page: &mut Page) {
        page.counter(
            "spec_decode_num_drafts",
            "Number of spec decoding drafts.",
            &[("", self.drafts)],
        );
        page.counter(
            "spec_decode_num_draft_tokens",
            "Number of draft tokens.",
            &[("", self.draft_tokens)],
        );
        page.counter(
            "spec_decode_num_accepted_tokens",
            "Number of accepted tokens.",
            &[("", self.accepted.iter().sum())],
        );
        // vLLM puts this label behind the model's name; readers must not care.
        let by_position: Vec<(String, u64)> = self
            .accepted
            .iter()
            .enumerate()
            .map(|(i, n)| (format!("position=\"{i}\","), *n))
            .collect();
        page.counter(
            "spec_decode_num_accepted_tokens_per_pos",
            "Accepted tokens per draft position.",
            &by_position,
        );
    }
}

/// A label value, escaped as the text format asks.
fn label(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

struct Page {
    text: String,
    model: String,
    created: f64,
}

impl Page {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(
            self.text,
            "# HELP vllm:{name} {help}\n# TYPE vllm:{name} {kind}"
        );
    }

    /// One sample; `labels` is empty or ends with a comma. Writing to a string cannot fail.
    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let model = &self.model;
        let _ = writeln!(
            self.text,
            "vllm:{name}{{engine=\"0\",{labels}model_name=\"{model}\"}} {value:?}"
        );
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "gauge");
        self.sample(name, "", value as f64);
    }

    fn counter<L: AsRef<str>>(&mut self, name: &str, help: &str, values: &[(L, u64)]) {
        let (total, created) = (format!("{name}_total"), format!("{name}_created"));
        self.head(&total, help, "counter");
        for (labels, value) in values {
            self.sample(&total, labels.as_ref(), *value as f64);
        }
        self.head(&created, help, "gauge");
        for (labels, _) in values {
            self.sample(&created, labels.as_ref(), self.created);
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, help, "histogram");
        let bucket = format!("{name}_bucket");
        let mut seen = 0;
        for (at, n) in histogram.counts.iter().enumerate() {
            seen += n;
            let le = histogram
                .bounds
                .get(at)
                .map_or("+Inf".to_owned(), |b| format!("{b:?}"));
            self.sample(&bucket, &format!("le=\"{le}\","), seen as f64);
        }
        self.sample(&format!("{name}_count"), "", seen as f64);
        self.sample(&format!("{name}_sum"), "", histogram.sum);
        let created = format!("{name}_created");
        self.head(&created, help, "gauge");
        self.sample(&created, "", self.created);
    }

    fn cache_config(&mut self, config: &MockConfig) {
        self.head(
            "cache_config_info",
            "Information of the LLMEngine CacheConfig",
            "gauge",
        );
        let caching = if config.prefix_cache { "True" } else { "False" };
        let tokens = config.prefix_cache_tokens;
        let _ = writeln!(
            self.text,
            "vllm:cache_config_info{{block_size=\"{}\",enable_prefix_caching=\"{caching}\",engine=\"0\",kv_cache_size_tokens=\"{tokens}\",num_gpu_blocks=\"{}\"}} 1.0",
            config.block_size,
            tokens / config.block_size.max(1),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_cumulative_and_end_at_infinity() {
        let mut metrics = Metrics::new(0.0);
        for ns in [15_000_000, 20_000_000, 3_000_000_000_000] {
            metrics.ttft.observe(ns);
        }
        let text = metrics.render(&MockConfig::default(), 2, 1);
        for line in [
            "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"0.01\",model_name=\"mock\"} 0.0",
            "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"0.02\",model_name=\"mock\"} 2.0",
            "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"2560.0\",model_name=\"mock\"} 2.0",
            "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"+Inf\",model_name=\"mock\"} 3.0",
            "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"mock\"} 3.0",
            "vllm:time_to_first_token_seconds_sum{engine=\"0\",model_name=\"mock\"} 3000.035",
            "vllm:num_requests_running{engine=\"0\",model_name=\"mock\"} 2.0",
            "vllm:num_requests_waiting{engine=\"0\",model_name=\"mock\"} 1.0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn drafts_are_what_lies_beyond_the_first_token_of_a_step() {
        let mut metrics = Metrics::new(0.0);
        for n in [3, 4, 4, 2] {
            metrics.draft(n, 4);
        }
        assert_eq!((metrics.drafts, metrics.draft_tokens), (4, 12));
        assert_eq!(metrics.accepted, [4, 3, 2]);
        metrics.draft(1, 1);
        assert_eq!(metrics.drafts, 4);
    }
}
