//! Cuts a lane into steps.

mod mark;

use serde::{Deserialize, Serialize};

#[allow(unused_imports, reason = "used by ingest once it lands")]
pub(crate) use mark::is_step_mark;
pub use mark::{Batch, StepMark, parse_step_mark};

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
