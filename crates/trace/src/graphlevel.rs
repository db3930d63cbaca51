//! Captures that show CUDA graphs as opaque spans, or not at all.
//!
//! nsys's default hides what runs inside a graph. Its time is busy and nobody's; nothing is split, and nothing of it is
//! idle. What can be told is said: step times, eager kernels, true idle time outside the graphs. With the shares of a
//! node-level capture of the same workload ([`GraphProfile`]) the opaque time is split by estimate.

mod profile;

use serde::Serialize;

use crate::classify::Classes;
use crate::split::{Buckets, Part, activity, lane_of, sweep};
use crate::steps::{LaunchIndex, extent};
use crate::{LaunchKind, Trace, TraceError};

pub use profile::{Estimate, EstimatedStep, GraphProfile, ProfileMatch};

/// From this share of the busy time inside opaque graphs on, a split says nothing.
const OPAQUE: f64 = 0.05;
/// Replays at the edge of a capture may have lost their rows; more than these are a capture that never had them.
const EDGE: usize = 2;

/// How much of a lane is hidden.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GraphLevel {
    /// Position of the lane.
    pub lane: usize,
    /// Time inside opaque graphs.
    pub opaque_ns: u64,
    /// Time in which anything ran, opaque graphs included.
    pub busy_ns: u64,
    /// Graph launch calls of the lane's process.
    pub graph_launches: usize,
    /// Those of them that left no GPU row of any kind: work that ran and cannot be seen.
    pub invisible_launches: usize,
}

impl GraphLevel {
    /// Share of the busy time inside opaque graphs, 0 to 1; `None` without busy time.
    pub fn share(&self) -> Option<f64> {
        (self.busy_ns > 0).then(|| self.opaque_ns as f64 / self.busy_ns as f64)
    }

    /// Whether a split of this lane would be wrong.
    pub fn is_unsplittable(&self) -> bool {
        self.share().is_some_and(|share| share >= OPAQUE) || self.is_invisible()
    }

    /// Whether the replays left no rows: an old nsys on a new driver.
    fn is_invisible(&self) -> bool {
        self.invisible_launches > EDGE && self.invisible_launches * 10 >= self.graph_launches
    }

    /// Why the lane cannot be split and what to do; `None` if it can.
    pub fn refusal(&self) -> Option<String> {
        let ms = |ns: u64| thousands((ns + 500_000) / 1_000_000);
        if self.is_invisible() {
            return Some(format!(
                "UNSPLITTABLE: {} of {} graph launches left no GPU row: their work ran and is not in the export; re-record with `{RECAPTURE}` and an nsys as new as the driver",
                self.invisible_launches, self.graph_launches
            ));
        }
        self.is_unsplittable().then(|| {
            format!(
                "UNSPLITTABLE: {:.1} % of GPU busy time ({} of {} ms) is inside opaque graphs; re-record with `--cuda-graph-trace=node`: {RECAPTURE}",
                self.share().unwrap_or(0.0) * 100.0,
                ms(self.opaque_ns),
                ms(self.busy_ns)
            )
        })
    }
}

/// The command that makes a capture which can be split.
const RECAPTURE: &str = "nsys profile --trace=cuda,nvtx --cuda-graph-trace=node --capture-range=cudaProfilerApi --capture-range-end=stop -o capture COMMAND";

/// `2408` as `2,408`.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Looks how much of a lane is inside opaque graphs or invisible.
///
/// # Errors
/// A lane that the trace does not have.
pub fn graph_level(
    trace: &Trace,
    classes: &Classes,
    lane: usize,
) -> Result<GraphLevel, TraceError> {
    let at = lane;
    let lane = lane_of(trace, at)?;
    let index = LaunchIndex::new(trace.process(&lane.id));
    let mut out = GraphLevel {
        lane: at,
        opaque_ns: 0,
        busy_ns: 0,
        graph_launches: 0,
        invisible_launches: 0,
    };
    if let Some(extent) = extent(lane) {
        let part = |_: usize, op: &crate::Op| Part {
            activity: activity(classes.op(op)),
            wait: 0,
        };
        let window = (extent.start, extent.end);
        for swept in sweep(&lane.ops, &[window], part, |_| {}) {
            let buckets = Buckets::of(&swept.histogram, false);
            out.busy_ns = buckets.total() - buckets.idle_ns;
            out.opaque_ns = crate::ByGroup::unioned(&swept.histogram).get(crate::Group::Graph);
        }
    }
    // A process may use several devices: a launch is invisible only if no lane of it has a row.
    let mut seen = vec![false; index.launches().len()];
    let lanes = trace.lanes.iter();
    for lane in lanes.filter(|l| l.id.file == lane.id.file && l.id.global_pid == lane.id.global_pid)
    {
        let mut hint = 0;
        for i in 0..lane.ops.len() {
            if let Some(launch) = index.position(lane.ops.corr(i), &mut hint) {
                seen[launch] = true;
            }
        }
    }
    for (launch, seen) in index.launches().iter().zip(seen) {
        if launch.kind == LaunchKind::Graph {
            out.graph_launches += 1;
            out.invisible_launches += usize::from(!seen);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
