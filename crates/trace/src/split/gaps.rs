//! What idle time was: late launches, pauses between steps, gaps inside a graph.

use serde::Serialize;

use super::sweep::Gap;
use crate::Ops;
use crate::steps::LaunchIndex;

/// Idle time of a step by cause, nanoseconds; the parts sum to the idle bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct IdleSplit {
    /// Between the nodes of one graph launch.
    pub in_graph_ns: u64,
    /// The next operation was launched only after the one before had ended: the CPU was late.
    pub launch_bound_ns: u64,
    /// Before the next step's first operation.
    pub between_steps_ns: u64,
    /// The next operation had been launched, and the GPU still paused (dependencies, stream switches), or its launch is
    /// not in the export.
    pub other_ns: u64,
}

impl IdleSplit {
    /// Sum of the parts.
    pub fn total(&self) -> u64 {
        self.in_graph_ns + self.launch_bound_ns + self.between_steps_ns + self.other_ns
    }
}

/// Collects the gaps of a sweep.
pub(crate) struct Gaps<'a> {
    ops: &'a Ops,
    index: &'a LaunchIndex<'a>,
    hint: usize,
    out: Vec<IdleSplit>,
}

impl<'a> Gaps<'a> {
    pub(crate) fn new(ops: &'a Ops, index: &'a LaunchIndex<'a>, windows: usize) -> Self {
        Gaps {
            ops,
            index,
            hint: 0,
            out: vec![IdleSplit::default(); windows],
        }
    }

    pub(crate) fn add(&mut self, gap: Gap) {
        let ns = gap.end.abs_diff(gap.start);
        let late = self.launched_late(&gap);
        let Some(out) = self.out.get_mut(gap.window) else {
            return;
        };
        let same_graph = gap.prev.zip(gap.next).is_some_and(|(prev, next)| {
            let ops = self.ops;
            ops.node(prev) != 0
                && ops.node(next) != 0
                && ops.corr(prev) != 0
                && ops.corr(prev) == ops.corr(next)
        });
        *if gap.closes {
            &mut out.between_steps_ns
        } else if same_graph {
            &mut out.in_graph_ns
        } else if late {
            &mut out.launch_bound_ns
        } else {
            &mut out.other_ns
        } += ns;
    }

    fn launched_late(&mut self, gap: &Gap) -> bool {
        let Some((prev, next)) = gap.prev.zip(gap.next) else {
            return false;
        };
        let launch = self.index.get(self.ops.corr(next), &mut self.hint);
        launch.is_some_and(|launch| launch.start > self.ops.end(prev))
    }

    pub(crate) fn finish(self) -> Vec<IdleSplit> {
        self.out
    }
}
