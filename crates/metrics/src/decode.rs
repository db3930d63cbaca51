//! Decode rates with stalls left out, and what was left out.

use crate::StallGap;
use crate::figure::{Figure, Missing, millis, missing, ratio, seconds};
use crate::latency::no_gaps;
use crate::request::Request;
use crate::spool::Gaps;
use crate::threshold::{Separability, Threshold, VALLEY_RATIO};

/// Decode rates and stalls of one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Decode {
    /// `fixed`, `auto` or `off`.
    pub stall_mode: &'static str,
    /// Longer gaps are stalls, in milliseconds.
    pub stall_threshold_ms: Figure,
    /// Kept tokens / kept gap time, pooled, in tokens a second a request.
    pub tok_s: Figure,
    /// Mean over requests of kept tokens / kept gap time.
    pub tok_s_request_mean: Figure,
    /// Mean over requests of (n - 1) / (last - first token): the usual rate, stalls included.
    pub usual_tok_s: Figure,
    /// All tokens / all gap time, pooled.
    pub tok_s_unfiltered: Figure,
    /// Tokens / time of the gaps in which no other request was in prefill; needs no threshold.
    pub tok_s_clean: Figure,
    /// Time in stalls, summed over requests, in seconds.
    pub stall_s: Figure,
    /// Number of stalls.
    pub stall_count: Figure<u64>,
    /// Stall time / all gap time.
    pub stall_share: Figure,
    /// Stall time a completed request, in seconds.
    pub mean_request_stall_s: Figure,
    /// Stall time of the request that stalled longest, in seconds.
    pub max_request_stall_s: Figure,
    /// Longest gap that is not a stall.
    pub longest_normal_gap_ms: Figure,
    /// Shortest stall.
    pub shortest_stall_ms: Figure,
    /// Every threshold from here ...
    pub same_answer_from_ms: Figure,
    /// ... to below here gives the same answer.
    pub same_answer_to_ms: Figure,
    /// Whether stalls and steps can be told apart.
    pub separability: Figure<Separability>,
    /// Gaps by threshold and by interference.
    pub classes: GapClasses,
}

/// Gaps counted by two independent signs of waiting: length, and another request's prefill.
#[derive(Clone, Debug, PartialEq)]
pub struct GapClasses {
    /// Gaps up to the threshold.
    pub normal: Figure<u64>,
    /// Normal gaps that overlap another request's prefill.
    pub interfered_normal: Figure<u64>,
    /// Normal gaps that do not.
    pub clean_normal: Figure<u64>,
    /// Stalls that overlap another request's prefill.
    pub interfered_stalls: Figure<u64>,
    /// Stalls that do not.
    pub clean_stalls: Figure<u64>,
    /// All gaps that overlap another request's prefill.
    pub interfered: u64,
    /// All gaps that do not.
    pub clean: u64,
    /// Share of the gaps that both signs class alike.
    pub agreement: Figure,
}

impl Decode {
    pub(crate) fn of(
        requests: &[Request],
        gaps: &Gaps,
        stall: StallGap,
        threshold: Threshold,
    ) -> Self {
        let with_gaps: Vec<&Request> = requests
            .iter()
            .filter(|r| r.completed() && r.gaps.all_ns > 0)
            .collect();
        let sum = |of: &dyn Fn(&Request) -> u64| -> u128 {
            with_gaps.iter().map(|r| u128::from(of(r))).sum()
        };
        let (all_ns, stall_ns) = (sum(&|r| r.gaps.all_ns), sum(&|r| r.gaps.stall_ns));
        let kept_tokens = sum(&|r| r.gaps.kept_tokens()) as f64;
        let all_tokens = sum(&|r| r.gaps.all_tokens) as f64;
        // Nothing may be said of stalls where no threshold was drawn, except that there are none.
        let known = stalls_known(threshold, all_ns > 0);
        let stalls = |value: Figure| known.clone().and(value);
        let edges = Edges::of(gaps, threshold, &known);
        let stall_s = |r: &&Request| seconds(u128::from(r.gaps.stall_ns));
        let per_request: Vec<f64> = with_gaps.iter().map(stall_s).collect();
        Decode {
            stall_mode: stall.mode(),
            stall_threshold_ms: threshold_ms(threshold),
            tok_s: match all_ns {
                0 => Err(no_gaps()),
                _ => ratio(
                    kept_tokens,
                    seconds(all_ns - stall_ns),
                    "every gap is a stall",
                ),
            },
            tok_s_request_mean: mean(
                with_gaps.iter().filter_map(|r| kept_rate(r)),
                "no completed request has a gap that is not a stall",
            ),
            usual_tok_s: mean(
                requests
                    .iter()
                    .filter(|r| r.completed())
                    .filter_map(usual_rate),
                "no completed request has two tokens at two instants",
            ),
            tok_s_unfiltered: match all_ns {
                0 => Err(no_gaps()),
                _ => ratio(all_tokens, seconds(all_ns), "no gap time"),
            },
            tok_s_clean: ratio(
                gaps.clean_tokens as f64,
                seconds(gaps.clean_ns),
                "no gap is free of another request's prefill",
            ),
            stall_s: stalls(Ok(seconds(stall_ns))),
            stall_count: known
                .clone()
                .map(|()| with_gaps.iter().map(|r| u64::from(r.gaps.stalls)).sum()),
            stall_share: stalls(ratio(seconds(stall_ns), seconds(all_ns), "no gap time")),
            mean_request_stall_s: stalls(mean(per_request.iter().copied(), "no gaps")),
            max_request_stall_s: stalls(Ok(per_request.iter().copied().fold(0.0, f64::max))),
            longest_normal_gap_ms: edges.longest_normal_ms,
            shortest_stall_ms: edges.shortest_stall_ms.clone(),
            same_answer_from_ms: edges.from_ms,
            same_answer_to_ms: edges.shortest_stall_ms,
            separability: edges.separability,
            classes: GapClasses::of(gaps, threshold),
        }
    }
}

/// Mean of the values, `reason` without any.
fn mean(values: impl Iterator<Item = f64>, reason: &'static str) -> Figure {
    let (sum, count) = values.fold((0.0, 0_u64), |(sum, n), value| (sum + value, n + 1));
    ratio(sum, count as f64, reason)
}

/// Kept tokens a second of one request.
pub(crate) fn kept_rate(r: &Request) -> Option<f64> {
    let ns = r.gaps.kept_ns();
    (ns > 0).then(|| r.gaps.kept_tokens() as f64 / seconds(u128::from(ns)))
}

/// (n - 1) / (last - first token) of one request.
pub(crate) fn usual_rate(r: &Request) -> Option<f64> {
    let ns = r.decode_ns()?;
    Some((r.tokens - 1) as f64 / seconds(u128::from(ns)))
}

fn stalls_known(threshold: Threshold, any: bool) -> Figure<()> {
    match threshold {
        _ if !any => Err(no_gaps()),
        Threshold::Above(_) | Threshold::NoneNeeded => Ok(()),
        Threshold::NoneFound => missing(
            "auto found long gaps but no clear valley between them and the normal ones; \
             nothing was filtered, set a threshold to draw the line yourself",
        ),
        Threshold::Off => missing("the stall filter is off"),
    }
}

fn threshold_ms(threshold: Threshold) -> Figure {
    match threshold {
        Threshold::Above(ns) => Ok(millis(ns)),
        Threshold::NoneNeeded => missing("auto chose none: no gap is long enough to be a stall"),
        Threshold::NoneFound => missing("auto chose none: no valley separates stalls from steps"),
        Threshold::Off => missing("the stall filter is off"),
    }
}

/// The gaps on both sides of the threshold.
struct Edges {
    longest_normal_ms: Figure,
    shortest_stall_ms: Figure,
    from_ms: Figure,
    separability: Figure<Separability>,
}

impl Edges {
    fn of(gaps: &Gaps, threshold: Threshold, known: &Figure<()>) -> Self {
        let edge = |gap: Option<u64>, reason: &'static str| {
            known.clone()?;
            gap.map(millis).ok_or_else(|| Missing::because(reason))
        };
        let longest_normal_ms = edge(gaps.longest_normal, "every gap is a stall");
        let separability = match (threshold, known) {
            (Threshold::NoneFound, Err(_)) if gaps.step_gap.is_some() => {
                Ok(Separability::NotSeparable)
            }
            (_, Err(why)) => Err(why.clone()),
            (_, Ok(())) => Ok(match (gaps.longest_normal, gaps.shortest_stall) {
                (_, None) => Separability::NoStalls,
                (Some(low), Some(high)) if high as f64 >= VALLEY_RATIO * low as f64 => {
                    Separability::Separable
                }
                _ => Separability::NotSeparable,
            }),
        };
        Edges {
            from_ms: longest_normal_ms.clone(),
            longest_normal_ms,
            shortest_stall_ms: edge(gaps.shortest_stall, "no gap is a stall"),
            separability,
        }
    }
}

impl GapClasses {
    fn of(gaps: &Gaps, threshold: Threshold) -> Self {
        let [[clean_normal, hit_normal], [clean_stall, hit_stall]] = gaps.classes;
        let all = clean_normal + hit_normal + clean_stall + hit_stall;
        let known = stalls_known(threshold, all > 0);
        let count = |n: u64| known.clone().map(|()| n);
        GapClasses {
            normal: count(clean_normal + hit_normal),
            interfered_normal: count(hit_normal),
            clean_normal: count(clean_normal),
            interfered_stalls: count(hit_stall),
            clean_stalls: count(clean_stall),
            interfered: hit_normal + hit_stall,
            clean: clean_normal + clean_stall,
            agreement: known
                .clone()
                .and_then(|()| ratio((hit_stall + clean_normal) as f64, all as f64, "no gaps")),
        }
    }
}
