//! Shares of a node-level capture, laid over the opaque graphs of a graph-level one.

use std::collections::BTreeMap;

use linktax_records::Note;
use serde::Serialize;

use crate::classify::Classes;
use crate::split::{Buckets, LaneSplit, Part, activity, lane_of, sweep};
use crate::steps::{Batch, LaneSteps, StepKind, Target, graph_launches, median};
use crate::{Trace, TraceError};

/// What runs inside the graphs of a node-level capture, by the kind and batch of their steps.
///
/// Take *times* from a graph-level capture, which costs next to nothing, and *shares* from a node-level one, which
/// slows the steps by some 10 %.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphProfile {
    by_batch: BTreeMap<(StepKind, u32, u64), Inside>,
    by_kind: BTreeMap<StepKind, Inside>,
}

/// Sums over the replays of one sort.
#[derive(Clone, Debug, Default, PartialEq)]
struct Inside {
    buckets: Buckets,
    spans: Vec<u64>,
}

/// How an opaque step found its shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileMatch {
    /// From steps of the same kind and batch.
    Batch,
    /// From steps of the same kind; the batch is another or not known.
    Kind,
}

/// A step whose opaque time is split by estimate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EstimatedStep {
    /// Index of the step.
    pub index: u32,
    /// Measured buckets with the opaque time handed to the groups; they still sum to the step.
    pub buckets: Buckets,
    /// Where the shares are from.
    pub matched: ProfileMatch,
}

/// Estimated splits of a graph-level capture. Every number in it but the step's own length is an estimate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Always true: so that no file passes for a measurement.
    pub estimated: bool,
    /// The steps that found shares.
    pub steps: Vec<EstimatedStep>,
    /// Median span of a replay in the node-level capture over that here: what node tracing costs.
    pub probe_effect: Option<f64>,
    /// What the reader should know.
    pub notes: Vec<Note>,
}

fn key(kind: StepKind, batch: Option<Batch>) -> Option<(StepKind, u32, u64)> {
    let batch = batch?;
    let requests = batch.context_requests + batch.generation_requests;
    Some((kind, requests, batch.tokens()?))
}

impl GraphProfile {
    /// Looks into the graphs of a node-level capture.
    ///
    /// # Errors
    /// A lane that the trace does not have; a capture without graph nodes.
    pub fn of(trace: &Trace, classes: &Classes, steps: &LaneSteps) -> Result<Self, TraceError> {
        let lane = lane_of(trace, steps.lane)?;
        let launched = graph_launches(lane);
        let target = Target::of(&launched).filter(Target::has_nodes);
        let Some(target) = target else {
            return Err(TraceError::NoGraphNodes { lane: steps.lane });
        };
        let mut windows: Vec<(i64, i64)> = Vec::new();
        for launch in launched.iter().filter(|l| target.matches(l)) {
            // Replays follow each other; an overlap by early launch belongs to the first.
            let start = windows
                .last()
                .map_or(launch.start, |w| w.1.max(launch.start));
            windows.push((start, launch.end.max(start)));
        }
        let part = |_: usize, op: &crate::Op| Part {
            activity: activity(classes.op(op)),
            wait: 0,
        };
        let swept = sweep(&lane.ops, &windows, part, |_| {});
        let mut profile = GraphProfile {
            by_batch: BTreeMap::new(),
            by_kind: BTreeMap::new(),
        };
        for (window, swept) in windows.iter().zip(swept) {
            let at = steps.steps.partition_point(|s| s.start <= window.0);
            let Some(step) = at.checked_sub(1).and_then(|at| steps.steps.get(at)) else {
                continue;
            };
            let buckets = Buckets::of(&swept.histogram, false);
            let add = |inside: &mut Inside| {
                inside.buckets.add(&buckets);
                inside.spans.push(window.1.abs_diff(window.0));
            };
            add(profile.by_kind.entry(step.kind).or_default());
            if let Some(key) = key(step.kind, step.batch) {
                add(profile.by_batch.entry(key).or_default());
            }
        }
        Ok(profile)
    }

    /// Splits the opaque time of a graph-level capture by these shares.
    pub fn apply(&self, split: &LaneSplit) -> Estimate {
        let mut out = Estimate {
            estimated: true,
            steps: Vec::new(),
            probe_effect: None,
            notes: Vec::new(),
        };
        let mut ratios = Vec::new();
        let mut without = 0;
        for step in split.steps.iter().filter(|s| s.buckets.graph_ns > 0) {
            let by_batch = key(step.step.kind, step.step.batch)
                .and_then(|key| self.by_batch.get(&key))
                .map(|inside| (inside, ProfileMatch::Batch));
            let by_kind = || Some((self.by_kind.get(&step.step.kind)?, ProfileMatch::Kind));
            let Some((inside, matched)) = by_batch.or_else(by_kind) else {
                without += 1;
                continue;
            };
            if let Some(span) = median(&mut inside.spans.clone()) {
                ratios.push(span * 1_000_000 / step.buckets.graph_ns.max(1));
            }
            out.steps.push(EstimatedStep {
                index: step.step.index,
                buckets: hand_out(&step.buckets, &inside.buckets),
                matched,
            });
        }
        out.probe_effect = median(&mut ratios).map(|r| r as f64 / 1e6);
        out.notes.push(Note::new(
            "estimated",
            "shares inside the graphs are taken from another capture and scaled to this one's times",
        ));
        if without > 0 {
            out.notes.push(Note::new(
                "no_shares",
                format!("{without} steps have no step of their kind in the node-level capture"),
            ));
        }
        out
    }
}

/// Hands the opaque time to the groups by their shares inside the graphs; what rounding leaves goes to the largest.
fn hand_out(measured: &Buckets, inside: &Buckets) -> Buckets {
    let total = u128::from(inside.total().max(1));
    let opaque = measured.graph_ns;
    let part = |ns: u64| (u128::from(ns) * u128::from(opaque) / total) as u64;
    let mut out = *measured;
    out.graph_ns = 0;
    let mut rest = opaque;
    let mut largest: Option<(u64, usize)> = None;
    let cells = |b: &Buckets| {
        [
            b.linear_ns,
            b.attention_ns,
            b.ssm_ns,
            b.moe_ns,
            b.other_ns,
            b.unknown_ns,
            b.comm_ns,
            b.copy_ns,
            b.idle_ns,
        ]
    };
    let mut sums = cells(&out);
    for (at, (sum, ns)) in sums.iter_mut().zip(cells(inside)).enumerate() {
        let share = part(ns);
        *sum += share;
        rest -= share;
        if largest.is_none_or(|(most, _)| ns > most) {
            largest = Some((ns, at));
        }
    }
    if let Some((_, at)) = largest {
        sums[at] += rest;
    }
    let [
        linear,
        attention,
        ssm,
        moe,
        other,
        unknown,
        comm,
        copy,
        idle,
    ] = sums;
    out.linear_ns = linear;
    out.attention_ns = attention;
    out.ssm_ns = ssm;
    out.moe_ns = moe;
    out.other_ns = other;
    out.unknown_ns = unknown;
    out.comm_ns = comm;
    out.copy_ns = copy;
    out.idle_ns = idle;
    out.comm_wait_ns = None;
    out.comm_service_ns = None;
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn nothing_is_lost_in_handing_out(
            inside in proptest::array::uniform4(0u64..1 << 40),
            opaque in 0u64..1 << 40,
            linear in 0u64..1000,
        ) {
            let inside = Buckets {
                linear_ns: inside[0], attention_ns: inside[1], comm_ns: inside[2], idle_ns: inside[3],
                ..Buckets::default()
            };
            let measured = Buckets { linear_ns: linear, graph_ns: opaque, ..Buckets::default() };
            let out = hand_out(&measured, &inside);
            proptest::prop_assert_eq!(out.total(), measured.total());
            proptest::prop_assert_eq!(out.graph_ns, 0);
            proptest::prop_assert!(out.linear_ns >= linear);
        }
    }
}
