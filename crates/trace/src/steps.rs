//! Cuts a lane into steps.
//!
//! A cascade, the surest method first; each step says which one found it and how far it is to be trusted:
//!
//! 1. **NVTX by launch**: a step owns every launch of its thread from its mark's start to the next mark's start. The GPU
//!    runs up to three quarters of a step behind the CPU, so which mark an operation lies under in time says nothing.
//! 2. **Graph launches**: one replay of the graph with the most time is one forward pass.
//! 3. **Anchors**: preparation or sampling kernels, which run once a step.
//! 4. **Periodicity** of the sequence of kernel names.
//! 5. **Gaps** between operations.
//! 6. None of these: the whole lane is one step of unknown kind.
//!
//! A step lasts from the start of its first operation to the start of the next step's, so idle time lies inside a step
//! and the sum of the steps is the wall time; the last one ends with its last operation.

mod anchor;
mod draft;
mod gap;
mod graph;
mod idle;
mod launches;
mod mark;
mod nvtx;
mod period;
mod select;
mod step;

use linktax_records::Note;

use crate::classify::Classes;
use crate::{Lane, LaneId, Span, Trace, TraceError};

pub(crate) use graph::{Target, launches as graph_launches};
pub(crate) use launches::LaunchIndex;
pub(crate) use mark::is_step_mark;
pub use mark::{Batch, StepMark, parse_step_mark};
pub use step::{LaneSteps, Step, StepKind, StepMethod, StepOptions};

/// Cuts every lane into steps: one entry a lane, in the order of [`Trace::lanes`]; lanes without operations are left out.
///
/// ```
/// use linktax_trace::{Classes, Lane, LaneId, Names, Op, OpKind, Rules, StepOptions, Trace, find_steps};
///
/// let mut names = Names::default();
/// let name = names.push("void some_kernel<int>()", "some_kernel");
/// let ops = [0, 20].map(|start| Op {
///     start, dur: 10, name, stream: 7, corr: 0, node: 0, bytes: 0, kind: OpKind::Kernel,
/// });
/// let id = LaneId { file: 0, global_pid: 1 << 24, device: 0 };
/// let lane = Lane { id, pid: 1, gpu: Default::default(), ops: ops.into_iter().collect() };
/// let trace = Trace { names, lanes: vec![lane], ..Trace::default() };
/// let classes = Classes::of(&trace.names, &Rules::embedded());
///
/// // Two kernels tell nothing of steps, and that is what it says.
/// let lanes = find_steps(&trace, &classes, &StepOptions::default()).unwrap();
/// assert_eq!(lanes[0].method.as_str(), "whole");
/// assert_eq!(lanes[0].wall_ns(), 30);
/// ```
///
/// # Errors
/// A window that shares no instant with the capture, or a demanded method that finds nothing.
pub fn find_steps(
    trace: &Trace,
    classes: &Classes,
    options: &StepOptions,
) -> Result<Vec<LaneSteps>, TraceError> {
    let window = select::check_window(trace, options)?;
    let mut all = Vec::with_capacity(trace.lanes.len());
    for (at, lane) in trace.lanes.iter().enumerate() {
        if let Some(extent) = extent(lane) {
            let mut steps = lane_steps(trace, at, lane, extent, classes, options)?;
            steps.notes.extend(window.clone());
            all.push(steps);
        }
    }
    Ok(all)
}

fn lane_steps(
    trace: &Trace,
    at: usize,
    lane: &Lane,
    extent: Span,
    classes: &Classes,
    options: &StepOptions,
) -> Result<LaneSteps, TraceError> {
    let launches = LaunchIndex::new(trace.process(&lane.id));
    let view = View {
        trace,
        lane,
        classes,
        launches: &launches,
        main: main_stream(lane),
    };
    let mut notes = Vec::new();
    let Some(mut found) = cascade(&view, options.method, &mut notes) else {
        if let Some(method) = options.method.filter(|&m| m != StepMethod::Whole) {
            return Err(TraceError::NoSteps {
                lane: at,
                device: lane.id.device,
                pid: lane.pid,
                method: method.as_str(),
            });
        }
        let mut whole = LaneSteps {
            lane: at,
            id: lane.id,
            method: StepMethod::Whole,
            confidence: 0.0,
            steps: Vec::new(),
            notes,
        };
        let start = Start::new(extent.start, StepKind::Unknown, 0.0);
        whole
            .steps
            .push(start.step(0, extent.end, StepMethod::Whole));
        select::apply(&mut whole, trace, options);
        return Ok(whole);
    };
    found.notes.splice(0..0, notes);
    if options.drafts {
        draft::cut(&view, &mut found);
    }
    idle::cut(&view, &mut found);
    let mut steps = found.into_steps(at, lane.id);
    select::apply(&mut steps, trace, options);
    Ok(steps)
}

/// What a step finder looks at.
pub(crate) struct View<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) lane: &'a Lane,
    pub(crate) classes: &'a Classes,
    pub(crate) launches: &'a LaunchIndex<'a>,
    /// The stream with the most time: copies on other streams run ahead or late and make no boundary.
    pub(crate) main: u32,
}

/// The start of a step that was found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Start {
    pub(crate) at: i64,
    pub(crate) kind: StepKind,
    pub(crate) confidence: f64,
    pub(crate) batch: Option<Batch>,
    pub(crate) label: Option<String>,
}

impl Start {
    pub(crate) fn new(at: i64, kind: StepKind, confidence: f64) -> Self {
        Start {
            at,
            kind,
            confidence,
            batch: None,
            label: None,
        }
    }

    fn step(self, index: u32, end: i64, method: StepMethod) -> Step {
        Step {
            index,
            start: self.at,
            end,
            kind: self.kind,
            method,
            confidence: self.confidence,
            batch: self.batch,
            label: self.label,
            overhead_ns: 0,
        }
    }
}

/// What one method found: starts in time order, and where the last step ends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) method: StepMethod,
    pub(crate) confidence: f64,
    pub(crate) starts: Vec<Start>,
    pub(crate) end: i64,
    pub(crate) notes: Vec<Note>,
}

impl Found {
    fn into_steps(self, lane: usize, id: LaneId) -> LaneSteps {
        let ends: Vec<i64> = self
            .starts
            .iter()
            .skip(1)
            .map(|s| s.at)
            .chain([self.end])
            .collect();
        let steps = (0..)
            .zip(self.starts)
            .zip(ends)
            .map(|((index, start), end)| start.step(index, end, self.method))
            .collect();
        LaneSteps {
            lane,
            id,
            method: self.method,
            confidence: self.confidence,
            steps,
            notes: self.notes,
        }
    }

    /// The median time between starts, nanoseconds; `None` with fewer than two steps.
    pub(crate) fn median_step(&self) -> Option<u64> {
        let mut times: Vec<u64> = self
            .starts
            .windows(2)
            .map(|w| w[1].at.abs_diff(w[0].at))
            .collect();
        median(&mut times)
    }
}

fn cascade(view: &View<'_>, only: Option<StepMethod>, notes: &mut Vec<Note>) -> Option<Found> {
    let wanted = |method| only.is_none_or(|only| only == method);
    let mut found = None;
    if wanted(StepMethod::Nvtx) {
        found = nvtx::find(view, notes);
    }
    if found.is_none() && wanted(StepMethod::GraphLaunch) {
        found = graph::find(view, only.is_some());
    }
    if found.is_none() && wanted(StepMethod::Anchor) {
        found = anchor::find(view);
    }
    if found.is_none() && wanted(StepMethod::Periodicity) {
        found = period::find(view);
    }
    if found.is_none() && wanted(StepMethod::Gap) {
        found = gap::find(view);
    }
    found
}

/// First start to last end of a lane's operations.
pub(crate) fn extent(lane: &Lane) -> Option<Span> {
    let ops = &lane.ops;
    let end = (0..ops.len()).map(|i| ops.end(i)).max()?;
    Some(Span {
        start: ops.start(0),
        end,
    })
}

/// The stream with the most operation time.
fn main_stream(lane: &Lane) -> u32 {
    let mut time = std::collections::BTreeMap::new();
    for i in 0..lane.ops.len() {
        *time.entry(lane.ops.stream(i)).or_insert(0u64) += lane.ops.dur(i);
    }
    time.into_iter()
        .max_by_key(|&(stream, time)| (time, std::cmp::Reverse(stream)))
        .map_or(0, |(stream, _)| stream)
}

/// The lower median. Sorts its input.
pub(crate) fn median<T: Copy + Ord>(values: &mut [T]) -> Option<T> {
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests;
