//! Rates: numerator and denominator over one window.

use linktax_records::{CacheMode, CellSpec};

use crate::figure::{Figure, Missing, missing, ratio, seconds};
use crate::inflight::{InFlight, union};
use crate::request::Request;
use crate::spool::Delivered;
use crate::survey::Survey;

/// Four rates over one window.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// Requests a second.
    pub request: Figure,
    /// Prompt tokens a second.
    pub input: Figure,
    /// Output tokens a second.
    pub output: Figure,
    /// Prompt and output tokens a second.
    pub total: Figure,
}

impl Rates {
    pub(crate) fn missing(why: &Missing) -> Self {
        let rate = || Err(why.clone());
        Rates {
            request: rate(),
            input: rate(),
            output: rate(),
            total: rate(),
        }
    }

    fn over(seconds: &Figure, requests: u64, input: &Figure<u64>, output: u64) -> Self {
        let per = |count: f64| {
            let window = seconds.clone()?;
            ratio(count, window, "the window is empty")
        };
        let input = input.as_ref().map_err(Clone::clone);
        Rates {
            request: per(requests as f64),
            input: input.clone().and_then(|&i| per(i as f64)),
            output: per(output as f64),
            total: input.and_then(|&i| per((i + output) as f64)),
        }
    }
}

/// The full window: first send to last token.
#[derive(Clone, Debug, PartialEq)]
pub struct Throughput {
    /// First send to last token of the cell, in seconds.
    pub duration_s: Figure,
    /// Completed requests and their tokens over the duration.
    pub rates: Rates,
    /// Prompt tokens that were not cached, over the time in which some request waited for its first token.
    pub prefill: Figure,
    /// Whether `prefill` counts all prompt tokens because the cached ones are unknown.
    pub prefill_assumes_cold: bool,
    /// Most tokens in any one second.
    pub peak_output: Figure,
    /// Time-averaged requests in flight.
    pub mean_concurrency: Figure,
    /// Most requests in flight at one instant.
    pub max_concurrent_requests: u64,
}

const NONE_COMPLETED: &str = "no request completed";

impl Throughput {
    pub(crate) fn of(
        survey: &Survey,
        spec: &CellSpec,
        flight: &InFlight,
        delivered: Delivered,
        input: &Figure<u64>,
    ) -> Self {
        let done = || survey.requests.iter().filter(|r| r.completed());
        let completed = done().count() as u64;
        let duration_s = match survey.window() {
            Some((start, end)) if completed > 0 => Ok(seconds(u128::from(end - start))),
            Some(_) => missing(NONE_COMPLETED),
            None => missing("no token arrived after a send"),
        };
        let cached_known = done().all(|r| r.cached.is_some());
        Throughput {
            rates: Rates::over(
                &duration_s,
                completed,
                input,
                done().map(|r| r.tokens).sum(),
            ),
            prefill: prefill(&survey.requests, spec, cached_known),
            prefill_assumes_cold: !cached_known,
            peak_output: match &duration_s {
                Ok(s) if *s < 1.0 => missing("the window is shorter than one second"),
                Ok(_) => Ok(delivered.peak_per_second as f64),
                Err(why) => Err(why.clone()),
            },
            mean_concurrency: survey
                .window()
                .and_then(|(start, end)| flight.mean(start, end))
                .ok_or_else(|| Missing::because("no token arrived after a send")),
            max_concurrent_requests: flight.peak(),
            duration_s,
        }
    }
}

fn prefill(requests: &[Request], spec: &CellSpec, cached_known: bool) -> Figure {
    if !cached_known && matches!(spec.cache, CacheMode::Warm | CacheMode::Prefix(_)) {
        return missing("cached prompt tokens are unknown, and the cell declares cached ones");
    }
    let (mut tokens, mut waits) = (0_u64, Vec::new());
    for request in requests.iter().filter(|r| r.completed()) {
        let Some(prompt) = request.prompt.or(request.asked_input) else {
            return missing("some prompt lengths are unknown");
        };
        tokens += prompt.saturating_sub(request.cached.unwrap_or(0));
        waits.extend(request.prefill());
    }
    let busy: u128 = union(waits).iter().map(|&(a, b)| u128::from(b - a)).sum();
    ratio(tokens as f64, seconds(busy), NONE_COMPLETED)
}

/// The steady window of a closed loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Steady {
    /// Start, in seconds since the first send.
    pub start_s: f64,
    /// End, in seconds since the first send.
    pub end_s: f64,
    /// Output tokens whose read lies in the window.
    pub output_tokens: u64,
    /// Requests that completed in the window.
    pub completed: u64,
    /// Rates over the window.
    pub rates: Rates,
    /// Time-averaged requests in flight over the window.
    pub mean_concurrency: Figure,
}

/// Where the target concurrency held: `(from, to)` on the cell's clock.
pub(crate) fn steady_span(
    survey: &Survey,
    spec: &CellSpec,
    flight: &InFlight,
) -> Figure<(u64, u64)> {
    let Some(target) = spec.load.concurrency() else {
        return missing("an open loop has no target concurrency");
    };
    let sent = survey.requests.iter().filter(|r| r.sent.is_some()).count() as u64;
    if sent <= u64::from(target) {
        return missing(format!(
            "{sent} requests at concurrency {target} are one wave: there is no steady state"
        ));
    }
    let Some((from, to)) = flight.steady(target) else {
        return missing(format!(
            "concurrency {target} was never reached (at most {})",
            flight.peak()
        ));
    };
    // A request that failed after the last token may hold the count up; nothing is measured there.
    let end = survey.window().map_or(to, |(_, end)| to.min(end));
    if from < end {
        Ok((from, end))
    } else {
        missing("the target concurrency held for no time at all")
    }
}

impl Steady {
    pub(crate) fn of(
        survey: &Survey,
        span: Figure<(u64, u64)>,
        flight: &InFlight,
        delivered: Delivered,
    ) -> Figure<Self> {
        let (from, to) = span?;
        let origin = survey.window().map_or(from, |(start, _)| start);
        let inside = |t: Option<u64>| t.is_some_and(|t| from < t && t <= to);
        let completed = survey
            .requests
            .iter()
            .filter(|r| r.completed() && inside(r.last))
            .count() as u64;
        // A prompt counts when its prefill ends: at the first token.
        let input: Option<u64> = survey
            .requests
            .iter()
            .filter(|r| r.delivered() && inside(r.first))
            .map(|r| r.prompt.or(r.asked_input))
            .sum();
        let input = input.ok_or_else(|| Missing::because("some prompt lengths are unknown"));
        let length = Ok(seconds(u128::from(to - from)));
        Ok(Steady {
            start_s: seconds(u128::from(from.saturating_sub(origin))),
            end_s: seconds(u128::from(to.saturating_sub(origin))),
            output_tokens: delivered.steady_tokens,
            completed,
            rates: Rates::over(&length, completed, &input, delivered.steady_tokens),
            mean_concurrency: flight
                .mean(from, to)
                .ok_or_else(|| Missing::because("the window is empty")),
        })
    }
}
