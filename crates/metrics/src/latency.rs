//! The latency families.

use crate::distribution::Distribution;
use crate::figure::{Figure, Missing, millis, missing, ratio};
use crate::request::Request;
use crate::spool::Gaps;

/// Above this many tokens a read, the gap between reads is no longer the time of a token.
pub(crate) const ITL_TOKENS_PER_READ: f64 = 1.2;

/// The latency families of one cell, in milliseconds; `docs/metrics.md` defines each.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies {
    /// Send to first generated token of any kind.
    pub ttft: Figure<Distribution>,
    /// Send to first answer token.
    pub ttft_answer: Figure<Distribution>,
    /// (last - first token) / (n - 1), requests with n > 1.
    pub tpot: Figure<Distribution>,
    /// (last - first token) / (n - tokens in the first read).
    pub decode_time_per_token: Figure<Distribution>,
    /// Step gaps under vLLM's name; missing where reads carry several tokens.
    pub itl: Figure<Distribution>,
    /// Gaps between token-bearing reads.
    pub step_gap: Figure<Distribution>,
    /// Gap / tokens it brought, one sample a token.
    pub token_time: Figure<Distribution>,
    /// Send to last token.
    pub e2el: Figure<Distribution>,
    /// Due to send.
    pub queue: Figure<Distribution>,
    /// Due to first token; open loops only.
    pub ttft_from_sched: Figure<Distribution>,
    /// Due to last token; open loops only.
    pub e2el_from_sched: Figure<Distribution>,
    /// Sum of decode times / sum of (n - 1), in milliseconds.
    pub token_weighted_tpot_ms: Figure,
    /// Requests with several tokens that all came at one instant: their TPOT cannot be told.
    pub tpot_unmeasured: u64,
}

impl Latencies {
    pub(crate) fn of(
        requests: &[Request],
        gaps: &Gaps,
        tokens_per_read: &Figure,
        open_loop: bool,
        percentiles: &[f64],
    ) -> Self {
        let done = || requests.iter().filter(|r| r.completed());
        let family = |value: &dyn Fn(&Request) -> Option<f64>, reason: &'static str| {
            Distribution::of(done().filter_map(value).collect(), percentiles)
                .ok_or_else(|| Missing::because(reason))
        };
        let from_sched = |t: fn(&Request) -> Option<u64>| {
            if open_loop {
                family(
                    &|r| Some(millis(t(r)?.saturating_sub(r.sched))),
                    "no completed request has a token",
                )
            } else {
                missing("a closed loop has no schedule")
            }
        };
        let step_gap = gaps.step_gap.clone().ok_or_else(no_gaps);
        Latencies {
            ttft: family(
                &|r| r.ttft_ns().map(millis),
                "no completed request has a token",
            ),
            ttft_answer: family(
                &|r| Some(millis(r.answer? - r.sent?)),
                "no completed request has answer text",
            ),
            tpot: family(
                &tpot_ms,
                "no completed request has two tokens at two instants",
            ),
            decode_time_per_token: family(
                &decode_time_per_token_ms,
                "no completed request has tokens after a first read of known size",
            ),
            itl: itl(&step_gap, tokens_per_read),
            step_gap,
            token_time: gaps.token_time.clone().ok_or_else(|| {
                Missing::because("the tokens of single reads are not known, or there are no gaps")
            }),
            e2el: family(
                &|r| r.e2el_ns().map(millis),
                "no completed request has a token",
            ),
            queue: family(
                &|r| Some(millis(r.sent?.saturating_sub(r.sched))),
                "no request completed",
            ),
            ttft_from_sched: from_sched(|r| r.first),
            e2el_from_sched: from_sched(|r| r.last),
            token_weighted_tpot_ms: token_weighted_tpot_ms(requests),
            tpot_unmeasured: done()
                .filter(|r| r.tokens > 1 && r.decode_ns().is_none())
                .count() as u64,
        }
    }
}

pub(crate) fn no_gaps() -> Missing {
    Missing::because("no completed request has two reads with tokens")
}

pub(crate) fn tpot_ms(r: &Request) -> Option<f64> {
    Some(millis(r.decode_ns()?) / (r.tokens - 1) as f64)
}

fn token_weighted_tpot_ms(requests: &[Request]) -> Figure {
    let (mut span, mut after_first) = (0_u128, 0_u128);
    for request in requests.iter().filter(|r| r.completed()) {
        if let Some(ns) = request.decode_ns() {
            span += u128::from(ns);
            after_first += u128::from(request.tokens - 1);
        }
    }
    ratio(
        span as f64 / 1e6,
        after_first as f64,
        "no completed request has two tokens at two instants",
    )
}

fn decode_time_per_token_ms(r: &Request) -> Option<f64> {
    let after = r.tokens.checked_sub(u64::from(r.first_tokens))?;
    (r.exact && after > 0).then_some(millis(r.decode_ns()?) / after as f64)
}

fn itl(step_gap: &Figure<Distribution>, tokens_per_read: &Figure) -> Figure<Distribution> {
    match tokens_per_read {
        Ok(k) if *k > ITL_TOKENS_PER_READ => missing(format!(
            "{k:.2} tokens a read: a gap between reads is not the time of a token, and per-token \
             percentiles cannot be measured; see step_gap and token_time"
        )),
        _ => step_gap.clone(),
    }
}
