//! Nsight Systems SQLite exports of an LLM server: lanes, steps, split, wait and service, what-if.
//!
//! The flow is one way: `ingest` reads an export into a [`Trace`] (struct-of-arrays lanes keyed by process and
//! device), `classify` gives every used kernel name a class, `steps` cuts each lane into steps, `split` sweeps a
//! step into disjoint buckets that sum to it exactly, `collectives` pairs collectives across ranks into service and
//! wait, `whatif` replays the ranks with faster links. `diff` compares two analysed captures; `svg` and `perfetto` show
//! steps.
//!
//! ```
//! use linktax_trace::{Classes, ReadOptions, Rules, find_steps, read};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let capture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/nsys/vllm-qwen3-4b-decode-c16.sqlite.zst").into();
//! let trace = read(&[capture], &ReadOptions::default())?;
//! let classes = Classes::of(&trace.names, &Rules::embedded());
//! let steps = find_steps(&trace, &classes, &Default::default())?;
//! let decode = &steps[0].steps[1];
//! println!("{} took {} ns", decode.index, decode.dur());
//! assert_eq!(decode.batch.and_then(|batch| batch.tokens()), Some(16));
//! # Ok(())
//! # }
//! ```

mod classify;
mod collectives;
mod diff;
mod doctor;
mod error;
mod graphlevel;
mod ingest;
mod perfetto;
mod scrub;
mod split;
mod steps;
mod svg;
pub mod synth;
mod timeline;
mod tracks;
mod whatif;

pub use classify::{
    Class, Classes, Collective, CollectiveOp, Decided, Explanation, Group, Match, RuleRef, Rules,
    TableRow, UNKNOWN_WARN_SHARE, UnknownName, UnknownReport, collective_of, unknown_report,
};
pub use collectives::{
    ClockOffset, Collectives, CommGroup, PairedCollective, RankPart, Sized as SizedCollective,
    StepCounts, WaitMethod, counts_by_step, pair_collectives, sizes,
};
pub use diff::{
    Change, Count, Diff, DiffRow, DiffSide, Difference, KindDiff, Level, MatchBy, Part as DiffPart,
    SideFacts, Unmatched, diff,
};
pub use doctor::{
    Answer, Answered, Finding, GraphMode, Graphs, Inspection, LaneSummary, MarkForm,
    ProcessSummary, Severity, TableState, inspect,
};
pub use error::TraceError;
pub use graphlevel::{
    Estimate, EstimatedStep, GraphLevel, GraphProfile, ProfileMatch, graph_level,
};
pub use ingest::{
    ExportInfo, OnProgress, Progress, ReadOptions, coverage_notes, read, read_with_info,
};
pub use perfetto::{ChromeOptions, ChromeTrace};
pub use scrub::{Removed, Scrubbed, scrub};
pub use split::{
    Activity, Buckets, ByGroup, CommTime, IdleSplit, LaneSplit, Mask, StepSplit, split,
};
pub use steps::{
    Batch, LaneSteps, Step, StepKind, StepMark, StepMethod, StepOptions, find_steps,
    parse_step_mark,
};
pub use svg::{SvgOptions, step_svg};
pub use timeline::{
    CopyKind, Gpu, Lane, LaneId, Launch, LaunchKind, Mark, NameId, Names, Op, OpKind, Ops, Process,
    Span, Trace,
};
pub use whatif::{Projection, REPLAY_TOLERANCE, Replay, ReplayOptions, Scenario, replay};
