//! One sweep over a lane: what was active at each instant, as exact buckets of every step.
//!
//! Every operation is on its stream from its start to its end, and several may run at once. The sweep walks the starts and
//! ends of a lane in time order and books each stretch under the set ([`Mask`]) of [`Activity`]s that were active in
//! it. Everything else follows from that histogram in whole nanoseconds: union, overlap, exposed communication, and a
//! partition of the step into disjoint [`Buckets`] that sum to it.

mod buckets;
mod gaps;
mod sweep;

use linktax_records::Note;
use serde::Serialize;

use crate::classify::{Class, Classes, Group};
use crate::collectives::Collectives;
use crate::steps::{LaneSteps, LaunchIndex, Step};
use crate::{Lane, LaneId, Op, Trace, TraceError};

pub use buckets::{Activity, Buckets, ByGroup, CommTime, Mask};
pub use gaps::IdleSplit;
pub(crate) use sweep::{Part, sweep};

/// Where the time of one step went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepSplit {
    /// The step.
    pub step: Step,
    /// Its time in disjoint buckets, which sum to it exactly.
    pub buckets: Buckets,
    /// Durations of its operations by group, clipped to the step; overlapping ones count twice.
    pub summed: ByGroup,
    /// Time in which at least one operation of the group ran.
    pub unioned: ByGroup,
    /// Communication: exposed and overlapped, wait and service.
    pub comm: CommTime,
    /// What the idle time was.
    pub idle: IdleSplit,
    /// Operations that start in it.
    pub ops: u64,
    /// Launches that started them (graph replays count once); `None` without launch calls in the export.
    pub launches: Option<u64>,
    /// Nanoseconds under each set of activities, ascending by set.
    pub histogram: Vec<(Mask, u64)>,
}

impl StepSplit {
    /// Time in which anything ran.
    pub fn busy_ns(&self) -> u64 {
        self.step.dur() - self.buckets.idle_ns
    }

    /// Sum of durations over busy time: 1 when nothing overlaps. `None` for a step without operations.
    pub fn overlap_factor(&self) -> Option<f64> {
        let busy = self.busy_ns();
        (busy > 0).then(|| self.summed.total() as f64 / busy as f64)
    }
}

/// The split of one lane's steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaneSplit {
    /// Position of the lane in [`Trace::lanes`].
    pub lane: usize,
    /// Its key.
    pub id: LaneId,
    /// One entry a step.
    pub steps: Vec<StepSplit>,
    /// What the reader should know.
    pub notes: Vec<Note>,
}

impl LaneSplit {
    /// All buckets of the steps that `wanted` picks, summed, and how many steps those are.
    pub fn total(&self, wanted: impl Fn(&Step) -> bool) -> (Buckets, usize) {
        let mut sum = Buckets::default();
        let mut steps = 0;
        for split in self.steps.iter().filter(|s| wanted(&s.step)) {
            sum.add(&split.buckets);
            steps += 1;
        }
        (sum, steps)
    }
}

/// Splits the steps of one lane.
///
/// With `collectives` (see [`pair_collectives`](crate::pair_collectives)) communication is split into wait and service;
/// without, that is not known and says so.
///
/// # Errors
/// A lane that the trace does not have; buckets that do not sum to their step, which is checked on every run.
pub fn split(
    trace: &Trace,
    classes: &Classes,
    steps: &LaneSteps,
    collectives: Option<&Collectives>,
) -> Result<LaneSplit, TraceError> {
    let lane = lane_of(trace, steps.lane)?;
    let index = LaunchIndex::new(trace.process(&lane.id));
    let waits = collectives.and_then(|c| c.waits(steps.lane));
    let windows: Vec<(i64, i64)> = steps.steps.iter().map(|s| (s.start, s.end)).collect();
    let mut gaps = gaps::Gaps::new(&lane.ops, &index, windows.len());
    let mut next_wait = 0;
    let part = |i: usize, op: &Op| {
        let activity = activity(classes.op(op));
        let wait = match (&waits, activity) {
            (Some(waits), Activity::CommService) => wait_of(waits, &mut next_wait, i),
            _ => 0,
        };
        Part { activity, wait }
    };
    let swept = sweep(&lane.ops, &windows, part, |gap| gaps.add(gap));
    let launches = launches(lane, &windows, &index);
    let mut out = LaneSplit {
        lane: steps.lane,
        id: lane.id,
        steps: Vec::with_capacity(steps.steps.len()),
        notes: Vec::new(),
    };
    let idle = gaps.finish();
    for (at, ((step, swept), idle)) in steps.steps.iter().zip(swept).zip(idle).enumerate() {
        let buckets = Buckets::of(&swept.histogram, waits.is_some());
        if buckets.total() != step.dur() || idle.total() != buckets.idle_ns {
            return Err(TraceError::SplitMismatch {
                lane: steps.lane,
                step: step.index,
                sum: buckets.total(),
                step_ns: step.dur(),
            });
        }
        out.steps.push(StepSplit {
            step: step.clone(),
            buckets,
            summed: ByGroup::summed(&swept.summed),
            unioned: ByGroup::unioned(&swept.histogram),
            comm: CommTime::of(&swept.histogram, waits.is_some()),
            idle,
            ops: swept.ops,
            launches: launches.as_ref().and_then(|l| l.get(at).copied()),
            histogram: swept.histogram,
        });
    }
    add_notes(lane, classes, &mut out);
    Ok(out)
}

pub(crate) fn lane_of(trace: &Trace, lane: usize) -> Result<&Lane, TraceError> {
    trace.lanes.get(lane).ok_or_else(|| TraceError::Internal {
        what: format!("no lane {lane} in this trace of {}", trace.lanes.len()),
    })
}

/// What an operation of this class does while it runs.
pub(crate) fn activity(class: Class) -> Activity {
    match class.group() {
        Group::Linear => Activity::Linear,
        Group::Attention => Activity::Attention,
        Group::Ssm => Activity::Ssm,
        Group::Moe => Activity::Moe,
        Group::Comm => Activity::CommService,
        Group::Other => Activity::Other,
        Group::Copy => Activity::Copy,
        Group::Graph => Activity::Graph,
        Group::Unknown => Activity::Unknown,
    }
}

/// Operations are asked for in ascending order, so one walk over the waits serves all.
fn wait_of(waits: &[(u32, u64)], next: &mut usize, i: usize) -> u64 {
    while waits.get(*next).is_some_and(|&(op, _)| (op as usize) < i) {
        *next += 1;
    }
    match waits.get(*next) {
        Some(&(op, wait)) if op as usize == i => wait,
        _ => 0,
    }
}

/// Distinct launches of the operations that start in each window.
fn launches(lane: &Lane, windows: &[(i64, i64)], index: &LaunchIndex<'_>) -> Option<Vec<u64>> {
    if index.launches().is_empty() {
        return None;
    }
    let mut counts = vec![0; windows.len()];
    let mut seen = std::collections::HashSet::new();
    let ops = &lane.ops;
    let mut at = 0;
    for i in 0..ops.len() {
        let start = ops.start(i);
        while windows.get(at).is_some_and(|w| w.1 <= start) {
            at += 1;
        }
        let Some(window) = windows.get(at) else { break };
        // Only a graph launch owns several operations.
        let first = ops.node(i) == 0 || seen.insert(ops.corr(i));
        if start >= window.0 && first {
            counts[at] += 1;
        }
    }
    Some(counts)
}

fn add_notes(lane: &Lane, classes: &Classes, out: &mut LaneSplit) {
    let inside = out
        .steps
        .iter()
        .map(|s| s.summed.get(Group::Other))
        .sum::<u64>()
        > 0;
    let Some((first, last)) = out.steps.first().zip(out.steps.last()) else {
        return;
    };
    if !inside {
        return;
    }
    let ops = &lane.ops;
    let range = first.step.start..last.step.end;
    let loading = (0..ops.len())
        .filter(|&i| range.contains(&ops.start(i)))
        .filter(|&i| classes.op(&ops.get(i)) == Class::LOAD_TIME)
        .count();
    if loading > 0 {
        out.notes.push(Note::new(
            "load_time_kernels",
            format!(
                "{loading} kernels that prepare weights run inside the steps: the server was still loading"
            ),
        ));
    }
}
