//! The specification file of a synthetic export: text in, validated [`Spec`] out.

mod capture;
mod server;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::TraceError;

pub use capture::{
    ClockSpec, FaultSpec, FileSpec, GraphMode, GraphSpec, HostSpec, MissingCollective, NvtxForm,
    NvtxStyle,
};
pub use server::{
    Arch, Bucket, CommKind, GapSpec, ModelSpec, OverlapKind, OverlapSpec, ParallelSpec, PhaseKind,
    PhaseSpec, SkewKind, SkewSpec,
};

/// What to generate. Unknown keys are errors; every key but `[[phase]]` has a default.
///
/// Times are integer nanoseconds, as in an export. `docs/guide/trace-synth.md` explains every key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Seed of everything that is drawn.
    #[serde(default)]
    pub seed: u64,
    /// The model that the server runs.
    #[serde(default)]
    pub model: ModelSpec,
    /// How it is spread over GPUs.
    #[serde(default)]
    pub parallel: ParallelSpec,
    /// What the steps are, one after the other.
    pub phase: Vec<PhaseSpec>,
    /// How CUDA graphs were used and captured.
    #[serde(default)]
    pub graph: GraphSpec,
    /// Gaps between operations.
    #[serde(default)]
    pub gaps: GapSpec,
    /// Late ranks.
    #[serde(default)]
    pub skew: SkewSpec,
    /// Communication beside compute.
    #[serde(default)]
    pub overlap: OverlapSpec,
    /// Clocks of the devices.
    #[serde(default)]
    pub clock: ClockSpec,
    /// Launch calls and marks.
    #[serde(default)]
    pub host: HostSpec,
    /// Form of the file.
    #[serde(default)]
    pub file: FileSpec,
    /// Broken rows.
    #[serde(default)]
    pub faults: FaultSpec,
    /// Strings that no output may repeat, planted where real exports hold environments, paths and logs.
    #[serde(default)]
    pub secrets: Vec<String>,
}

impl Spec {
    /// Parses and checks a specification; `path` is for messages only.
    ///
    /// # Errors
    /// Bad TOML, an unknown key or word, and values outside their range.
    pub fn from_toml(text: &str, path: &Path) -> Result<Spec, TraceError> {
        let spec: Spec = toml::from_str(text).map_err(|source| TraceError::SpecSyntax {
            path: path.to_owned(),
            source: Box::new(source),
        })?;
        spec.check().map_err(|what| TraceError::Spec {
            path: path.to_owned(),
            what,
        })?;
        Ok(spec)
    }

    /// Number of ranks over all replicas.
    pub fn ranks(&self) -> u32 {
        self.parallel.tensor * self.parallel.replicas
    }

    /// Number of steps, without repetition.
    pub fn steps(&self) -> u32 {
        self.phase.iter().map(|p| p.steps).sum()
    }

    fn check(&self) -> Result<(), String> {
        let rules = self.server_rules().into_iter().chain(self.capture_rules());
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, message)) => Err(message.to_owned()),
            None => Ok(()),
        }
    }

    fn server_rules(&self) -> [(bool, &'static str); 9] {
        let ParallelSpec { tensor, .. } = self.parallel;
        let phases = |rule: fn(&PhaseSpec) -> bool| self.phase.iter().all(rule);
        [
            ((1..=8).contains(&tensor), "parallel.tensor must be 1 to 8"),
            (
                (1..=8).contains(&self.parallel.replicas),
                "parallel.replicas must be 1 to 8",
            ),
            (
                (1..=1024).contains(&self.model.layers()),
                "model needs 1 to 1024 layers",
            ),
            (self.model.mtp <= 16, "model.mtp must be at most 16"),
            (self.steps() > 0, "phase: at least one step"),
            (
                phases(|p| (p.kind == PhaseKind::Decode) == (p.prefill_tokens == 0)),
                "phase: mixed and prefill steps need prefill_tokens, decode steps have none",
            ),
            (
                (0.0..1.0).contains(&self.gaps.jitter),
                "gaps.jitter must be 0 to less than 1",
            ),
            (
                (0.0..=4.0).contains(&self.skew.sigma),
                "skew.sigma must be 0 to 4",
            ),
            (
                self.skew.straggler < tensor,
                "skew.straggler must be a rank of the communicator",
            ),
        ]
    }

    fn capture_rules(&self) -> [(bool, &'static str); 7] {
        let file = &self.file;
        let once = file.kernel_rows == 0;
        [
            (
                self.parallel.traced_ranks <= self.ranks(),
                "parallel.traced_ranks must be at most tensor x replicas",
            ),
            (self.overlap.every > 0, "overlap.every must be at least 1"),
            (
                (0.0..=8.0).contains(&self.host.async_lag),
                "host.async_lag must be 0 to 8 steps",
            ),
            (
                file.truncate_to.is_none_or(|t| (0.0..1.0).contains(&t)),
                "file.truncate_to must be 0 to less than 1",
            ),
            (
                once || !file.shuffle_rows,
                "file.kernel_rows and file.shuffle_rows exclude each other",
            ),
            (
                once || !file.shuffle_ids,
                "file.kernel_rows and file.shuffle_ids exclude each other",
            ),
            (
                once || self.clock.drift_ns_per_s.is_empty(),
                "file.kernel_rows and clock.drift_ns_per_s exclude each other",
            ),
        ]
    }
}
