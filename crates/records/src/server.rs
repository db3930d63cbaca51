use serde::{Deserialize, Serialize};

/// A Prometheus histogram's growth over a cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HistogramDelta {
    /// Observations during the cell.
    pub count: f64,
    /// Sum of the observations, in seconds.
    pub sum_s: f64,
    /// `(upper bound in seconds, cumulative count)`; the last bound is infinity, written as `null`.
    pub buckets: Vec<(Option<f64>, f64)>,
}

/// Speculative decoding as the server counted it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SpecDecode {
    /// Drafts proposed.
    pub drafts: f64,
    /// Draft tokens proposed.
    pub draft_tokens: f64,
    /// Draft tokens accepted.
    pub accepted_tokens: f64,
}

impl SpecDecode {
    /// Mean tokens a step: 1 + accepted / drafts. `None` without drafts.
    pub fn acceptance_length(&self) -> Option<f64> {
        (self.drafts > 0.0).then(|| 1.0 + self.accepted_tokens / self.drafts)
    }

    /// Accepted share of the proposed tokens, 0 to 1. `None` without drafts.
    pub fn acceptance_rate(&self) -> Option<f64> {
        (self.draft_tokens > 0.0).then(|| self.accepted_tokens / self.draft_tokens)
    }
}

/// What the server's `/metrics` said of one cell: differences of counters, summed over engines and replicas.
///
/// `None` means unknown: the series is absent, the endpoint does not answer, or a counter went backwards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerDelta {
    /// Why nothing is known, when nothing is.
    pub unavailable: Option<String>,
    /// Prompt tokens looked up in the prefix cache.
    pub prefix_cache_queries: Option<f64>,
    /// Prompt tokens found in the prefix cache.
    pub prefix_cache_hits: Option<f64>,
    /// Whether the server caches prefixes at all.
    pub prefix_caching: Option<bool>,
    /// Tokens in a block of the prefix cache: only whole blocks are found again.
    pub block_size: Option<u64>,
    /// Requests preempted (and later recomputed).
    pub preemptions: Option<f64>,
    /// Prompt tokens processed.
    pub prompt_tokens: Option<f64>,
    /// Tokens generated.
    pub generation_tokens: Option<f64>,
    /// Most requests seen running at once (sampled).
    pub running_peak: Option<f64>,
    /// Most requests seen waiting at once (sampled).
    pub waiting_peak: Option<f64>,
    /// How many samples the peaks come from.
    pub gauge_samples: u32,
    /// Speculative decoding counters.
    pub spec_decode: Option<SpecDecode>,
    /// The server's own time to first token.
    pub ttft: Option<HistogramDelta>,
    /// The server's own inter-token latency.
    pub itl: Option<HistogramDelta>,
    /// The server's own queue time.
    pub queue: Option<HistogramDelta>,
}

impl ServerDelta {
    /// Share of the looked-up prompt tokens found in the prefix cache, 0 to 1; 0 where it is switched off.
    pub fn prefix_hit_rate(&self) -> Option<f64> {
        if self.prefix_caching == Some(false) {
            return Some(0.0);
        }
        let (hits, queries) = (self.prefix_cache_hits?, self.prefix_cache_queries?);
        (queries > 0.0).then(|| hits / queries)
    }
}
