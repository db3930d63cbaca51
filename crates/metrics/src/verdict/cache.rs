//! Whether the declared cache state is the one that was measured.

use linktax_records::CacheMode;

use super::{Case, Findings, why_unknown};

/// vLLM's default block on a GPU, where the server does not say; prompts are cached in whole blocks and the last
/// token is always computed.
const BLOCK: u64 = 16;

pub(super) fn check(case: &Case<'_>, found: &mut Findings) {
    if case.spec.cache == CacheMode::Workload {
        return;
    }
    let counters = case.server.and_then(|s| s.prefix_hit_rate());
    let answers = case.summary.tokens.cached_share.as_ref().ok().copied();
    let off = case.server.is_some_and(|s| s.prefix_caching == Some(false));
    let (rate, source) = match (counters, answers) {
        (Some(rate), _) if off => (rate, "the server's prefix cache is off"),
        (Some(rate), _) => (rate, "prefix cache counters"),
        (None, Some(rate)) => (rate, "cached_tokens in the answers"),
        (None, None) => {
            let why = match case.server {
                None => "/metrics was not read".to_owned(),
                Some(s) if s.prefix_cache_queries == Some(0.0) => {
                    "the server looked up no prompt token in it".to_owned()
                }
                Some(s) => why_unknown(s),
            };
            found.note(
                "cache_unknown",
                format!("prefix cache state unknown: {why}"),
            );
            return;
        }
    };
    let percent = rate * 100.0;
    let limits = case.limits;
    let block = block(case);
    match case.spec.cache {
        CacheMode::Cold if rate > limits.max_cold_hit_rate => found.flag(
            "cache_contaminated",
            format!(
                "declared cold, but {percent:.1} % of the prompt tokens came from the prefix cache ({source}): \
                 these numbers measure the cache"
            ),
        ),
        CacheMode::Warm if rate < warm_limit(case) => found.flag(
            "cache_not_warm",
            format!(
                "declared warm, but only {percent:.1} % of the prompt tokens came from the prefix cache ({source}; \
                 only whole blocks of {block} tokens are cached, and the last token never is): evicted, or never primed"
            ),
        ),
        CacheMode::Prefix(share) if (rate - share).abs() > limits.max_prefix_share_error => found
            .flag(
                "prefix_share",
                format!(
                    "declared a common prefix of {:.1} %, but {percent:.1} % of the prompt tokens came from the \
                     prefix cache ({source}; only whole blocks of {block} tokens are cached)",
                    share * 100.0
                ),
            ),
        _ => {}
    }
}

fn block(case: &Case<'_>) -> u64 {
    case.server.and_then(|s| s.block_size).unwrap_or(BLOCK)
}

/// Short prompts cannot reach the limit: 32 tokens have one whole block of 16 before their last token. Prompts
/// without a whole block are never warm.
fn warm_limit(case: &Case<'_>) -> f64 {
    let limit = case.limits.min_warm_hit_rate;
    let block = block(case) as f64;
    match case.spec.input_len {
        Some(length) if length as f64 > block => {
            let length = length as f64;
            let reachable = ((length - 1.0) / block).floor() * block / length;
            if reachable < limit {
                limit * reachable
            } else {
                limit
            }
        }
        _ => limit,
    }
}
