//! Collectives across the ranks: which belong together, how long the transfer took, who waited for whom.
//!
//! A collective kernel runs from its own rank's arrival to the end of the transfer, so its duration is waiting plus
//! transfer. The last rank to arrive does not wait: the shortest duration over the ranks is the *service* time, and what
//! a rank's kernel took beyond it is its *wait*. That needs no common clock, which GPUs do not have to better than some
//! 20 us. Service still holds the fixed latency and the skew inside the kernel.

mod clock;
mod groups;
mod lower_bound;
mod pair;
mod sizes;

use std::collections::HashMap;

use linktax_records::Note;
use serde::Serialize;

use crate::classify::{Class, Classes, CollectiveOp, Group, collective_of};
use crate::steps::LaneSteps;
use crate::{NameId, OpKind, Ops, Trace, TraceError};

pub use clock::ClockOffset;
pub use sizes::{Sized, StepCounts, counts_by_step, sizes};

/// One rank's part in a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RankPart {
    /// Position of the operation in its lane.
    pub op: u32,
    /// Start on the export's clock.
    pub start: i64,
    /// Duration of the kernel.
    pub dur: u64,
    /// What it waited: its duration beyond the service time.
    pub wait: u64,
}

impl RankPart {
    /// `start + dur`.
    pub fn end(&self) -> i64 {
        self.start.saturating_add_unsigned(self.dur)
    }
}

/// One collective over all ranks of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PairedCollective {
    /// Index of the step (of the group's first lane).
    pub step: u32,
    /// Position within the step.
    pub ordinal: u32,
    /// Kernel name on the first lane.
    pub name: NameId,
    /// Class of that name.
    pub class: Class,
    /// The operation as the name says; never certain for NCCL.
    pub operation: Option<CollectiveOp>,
    /// Shortest duration over the ranks.
    pub service: u64,
    /// Time in which all ranks were in it, by the clocks as they are: a check on `service`, off by the clock error.
    pub common: Option<u64>,
    /// The rank (position in the group) that arrived last, hence waited least.
    pub last: u32,
}

impl PairedCollective {
    /// Whether one rank can be done before another has arrived (point to point, broadcast, reduce): then the wait is an
    /// attribution between neighbours, not a barrier's.
    pub fn one_sided(&self) -> bool {
        self.operation.is_some_and(|op| !op.is_barrier())
    }
}

/// How wait and service were told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitMethod {
    /// Shortest duration over the ranks.
    Paired,
    /// One rank only: the 10th percentile of the same kernel's durations stands for the service, so the wait is a lower
    /// bound and nobody is to blame.
    LowerBound,
}

/// Ranks whose collectives belong together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommGroup {
    /// Positions in [`Trace::lanes`], ascending. One lane only: its peers were not traced.
    pub lanes: Vec<usize>,
    /// How wait and service were told apart.
    pub method: WaitMethod,
    /// The collectives in time order.
    pub collectives: Vec<PairedCollective>,
    /// Clock of the group's first lane minus each lane's, where it can be told; in the order of `lanes`.
    pub clock: Vec<Option<ClockOffset>>,
    /// For each rank the waiting that it caused in the others by arriving last.
    pub caused_ns: Vec<u64>,
    parts: Vec<RankPart>,
}

impl CommGroup {
    /// The ranks' parts in collective `at`, in the order of [`Self::lanes`].
    pub fn parts(&self, at: usize) -> &[RankPart] {
        let n = self.lanes.len();
        self.parts.get(at * n..(at + 1) * n).unwrap_or(&[])
    }

    /// Sum of the service times.
    pub fn service_ns(&self) -> u64 {
        self.collectives.iter().map(|c| c.service).sum()
    }

    /// Sum of the waits of the rank at this position.
    pub fn wait_ns(&self, rank: usize) -> u64 {
        self.parts
            .iter()
            .skip(rank)
            .step_by(self.lanes.len().max(1))
            .map(|p| p.wait)
            .sum()
    }

    /// Median distance between service and common time: how far the clocks can be trusted. `None` where clocks are not
    /// comparable.
    pub fn clock_quality_ns(&self) -> Option<u64> {
        let mut distances: Vec<u64> = self
            .collectives
            .iter()
            .filter_map(|c| Some(c.service.abs_diff(c.common?)))
            .collect();
        crate::steps::median(&mut distances)
    }
}

/// All collectives of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Collectives {
    /// Groups of ranks, by their first lane.
    pub groups: Vec<CommGroup>,
    /// What the reader should know.
    pub notes: Vec<Note>,
}

impl Collectives {
    /// The group a lane is in.
    pub fn group_of(&self, lane: usize) -> Option<&CommGroup> {
        self.groups.iter().find(|g| g.lanes.contains(&lane))
    }

    /// Operation and wait of every collective of a lane, by operation.
    pub(crate) fn waits(&self, lane: usize) -> Option<Vec<(u32, u64)>> {
        let group = self.group_of(lane)?;
        let rank = group.lanes.iter().position(|&l| l == lane)?;
        let parts = group.parts.iter().skip(rank).step_by(group.lanes.len());
        let mut waits: Vec<(u32, u64)> = parts.map(|p| (p.op, p.wait)).collect();
        waits.sort_unstable();
        Some(waits)
    }
}

/// Pairs the collectives of all lanes: ranks whose collectives agree in number, name and time form a group; within it
/// the j-th of a step on one lane belongs to the j-th of the same step on the others.
///
/// # Errors
/// Lanes with collectives that fit none of the others although there are others ([`TraceError::NotAlignable`], with the
/// first difference).
pub fn pair_collectives(
    trace: &Trace,
    classes: &Classes,
    steps: &[LaneSteps],
) -> Result<Collectives, TraceError> {
    let mut ranks = Vec::new();
    let mut silent = 0;
    for lane in steps {
        let rank = Rank::of(trace, classes, lane)?;
        if rank.calls.is_empty() {
            silent += 1;
        } else {
            ranks.push(rank);
        }
    }
    let mut out = Collectives {
        groups: Vec::new(),
        notes: Vec::new(),
    };
    for members in groups::find(trace, &ranks)? {
        out.groups.push(if members.len() == 1 {
            lower_bound::group(trace, classes, &members)
        } else {
            pair::group(trace, classes, &members)
        });
    }
    let alone = out.groups.iter().filter(|g| g.lanes.len() == 1).count();
    if alone > 0 {
        out.notes.push(Note::new(
            "other_ranks_not_traced",
            format!(
                "collectives present but kernels from {} GPU only: other ranks were not traced, so wait is a lower bound",
                if alone == 1 { "1".to_owned() } else { format!("{alone} unrelated") }
            ),
        ));
    }
    if silent > 0 && !out.groups.is_empty() {
        out.notes.push(Note::new(
            "lanes_without_collectives",
            format!("{silent} of {} lanes have no collectives", steps.len()),
        ));
    }
    Ok(out)
}

/// One collective kernel of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) op: u32,
    pub(crate) start: i64,
    pub(crate) dur: u64,
    pub(crate) name: NameId,
}

impl Call {
    pub(crate) fn end(&self) -> i64 {
        self.start.saturating_add_unsigned(self.dur)
    }
}

/// The collectives of one lane, cut into its steps.
pub(crate) struct Rank<'a> {
    pub(crate) lane: usize,
    pub(crate) file: u32,
    pub(crate) steps: &'a LaneSteps,
    ops: &'a Ops,
    /// Positions of the collective kernels in the lane.
    pub(crate) calls: Vec<u32>,
    /// For each step the range of its calls.
    pub(crate) by_step: Vec<std::ops::Range<usize>>,
}

impl<'a> Rank<'a> {
    fn of(trace: &'a Trace, classes: &Classes, steps: &'a LaneSteps) -> Result<Self, TraceError> {
        let lane = crate::split::lane_of(trace, steps.lane)?;
        let ops = &lane.ops;
        let mut calls = Vec::new();
        let mut by_step = Vec::with_capacity(steps.steps.len());
        let mut i = 0;
        for step in &steps.steps {
            let first = calls.len();
            while i < ops.len() && ops.start(i) < step.end {
                let is_call = ops.kind(i) == OpKind::Kernel
                    && ops.start(i) >= step.start
                    && classes.name(ops.name(i)).group() == Group::Comm;
                if is_call {
                    calls.push(i as u32);
                }
                i += 1;
            }
            by_step.push(first..calls.len());
        }
        Ok(Rank {
            lane: steps.lane,
            file: lane.id.file,
            steps,
            ops,
            calls,
            by_step,
        })
    }

    /// The nth collective.
    pub(crate) fn call(&self, nth: usize) -> Option<Call> {
        (nth < self.calls.len()).then(|| self.range(&(nth..nth + 1)).next())?
    }

    /// A range of them.
    pub(crate) fn range(
        &self,
        range: &std::ops::Range<usize>,
    ) -> impl ExactSizeIterator<Item = Call> + Clone + use<'_> {
        let ops = self.ops;
        self.calls[range.clone()].iter().map(move |&op| {
            let at = op as usize;
            Call {
                op,
                start: ops.start(at),
                dur: ops.dur(at),
                name: ops.name(at),
            }
        })
    }
}

/// What names say, looked up once a name: there are millions of calls and a handful of names.
pub(crate) struct Named<'a> {
    trace: &'a Trace,
    classes: &'a Classes,
    known: HashMap<NameId, (Class, Option<CollectiveOp>)>,
}

impl<'a> Named<'a> {
    pub(crate) fn new(trace: &'a Trace, classes: &'a Classes) -> Self {
        Named {
            trace,
            classes,
            known: HashMap::new(),
        }
    }

    pub(crate) fn of(&mut self, name: NameId) -> (Class, Option<CollectiveOp>) {
        let (trace, classes) = (self.trace, self.classes);
        let look = || (classes.name(name), operation(trace, name));
        *self.known.entry(name).or_insert_with(look)
    }
}

/// What a name says of the operation.
pub(crate) fn operation(trace: &Trace, name: NameId) -> Option<CollectiveOp> {
    collective_of(trace.names.full(name)).map(|c| c.op)
}
