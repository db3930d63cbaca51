//! Steps, and what to look for.

use linktax_records::Note;
use serde::{Deserialize, Serialize};

use super::{Batch, Found, Start, extent};
use crate::{LaneId, Trace};

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Only decoding requests.
    Decode,
    /// Prefill chunks and decoding requests together.
    Mixed,
    /// Only prefill.
    Prefill,
    /// The passes of a draft model.
    Draft,
    /// The GPU had nothing to do and nothing was launched.
    Idle,
    /// Not known.
    Unknown,
}

impl StepKind {
    /// All kinds, in the order of reports.
    pub const ALL: [StepKind; 6] = [
        StepKind::Decode,
        StepKind::Mixed,
        StepKind::Prefill,
        StepKind::Draft,
        StepKind::Idle,
        StepKind::Unknown,
    ];

    /// The name used in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            StepKind::Decode => "decode",
            StepKind::Mixed => "mixed",
            StepKind::Prefill => "prefill",
            StepKind::Draft => "draft",
            StepKind::Idle => "idle",
            StepKind::Unknown => "unknown",
        }
    }
}

/// What found a step; see the module for the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepMethod {
    /// An NVTX mark of the engine, by launch.
    Nvtx,
    /// A launch of the target model's CUDA graph.
    GraphLaunch,
    /// A kernel that runs once a step.
    Anchor,
    /// The sequence of kernel names repeats.
    Periodicity,
    /// A pause of the GPU.
    Gap,
    /// Nothing: the whole lane is one step.
    Whole,
}

impl StepMethod {
    /// The name used in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            StepMethod::Nvtx => "nvtx",
            StepMethod::GraphLaunch => "graph_launch",
            StepMethod::Anchor => "anchor",
            StepMethod::Periodicity => "periodicity",
            StepMethod::Gap => "gap",
            StepMethod::Whole => "whole",
        }
    }
}

/// One step of one lane.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Position among all steps of the lane, before any selection.
    pub index: u32,
    /// Start of its first GPU operation, nanoseconds on the export's clock.
    pub start: i64,
    /// Start of the next step; for the last one the end of its last operation.
    pub end: i64,
    /// What it did.
    pub kind: StepKind,
    /// What found it.
    pub method: StepMethod,
    /// How sure that is, 0 to 1.
    pub confidence: f64,
    /// What it worked on, where a mark says so.
    pub batch: Option<Batch>,
    /// The mark's text.
    pub label: Option<String>,
    /// Time of profiler overhead within it, nanoseconds; over 1 % of the step is a reason to leave it out.
    pub overhead_ns: u64,
}

impl Step {
    /// `end - start` in nanoseconds.
    pub fn dur(&self) -> u64 {
        u64::try_from(self.end.saturating_sub(self.start)).unwrap_or(0)
    }
}

/// The steps of one lane.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaneSteps {
    /// Position of the lane in [`Trace::lanes`].
    pub lane: usize,
    /// Its key.
    pub id: LaneId,
    /// What found the steps.
    pub method: StepMethod,
    /// How sure that is, 0 to 1.
    pub confidence: f64,
    /// The steps, in time order, without overlap. After a selection there may be holes between them.
    pub steps: Vec<Step>,
    /// What the reader should know: partial first and last steps, marks without operations, a method that did not apply.
    pub notes: Vec<Note>,
}

impl LaneSteps {
    /// Sum of the steps, nanoseconds: the wall time from the first to the last where nothing was left out.
    pub fn wall_ns(&self) -> u64 {
        self.steps.iter().map(Step::dur).sum()
    }

    /// A lane as one step of unknown kind, from its first operation to the end of its last.
    pub fn whole(trace: &Trace, lane: usize) -> Option<LaneSteps> {
        let at = trace.lanes.get(lane)?;
        let extent = extent(at)?;
        let found = Found {
            method: StepMethod::Whole,
            confidence: 0.0,
            starts: vec![Start::new(extent.start, StepKind::Unknown, 0.0)],
            end: extent.end,
            notes: Vec::new(),
        };
        Some(found.into_steps(lane, at.id))
    }
}

/// What to look for and what to keep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StepOptions {
    /// Keep only these kinds; all if empty.
    pub kinds: Vec<StepKind>,
    /// Keep only steps that start at or after this time (nanoseconds on the export's clock).
    pub from: Option<i64>,
    /// Keep only steps that end at or before this time.
    pub to: Option<i64>,
    /// Leave out this many steps at both ends.
    pub steady: u32,
    /// Cut the draft model's passes off as steps of their own.
    pub drafts: bool,
    /// Use only this method.
    pub method: Option<StepMethod>,
}
