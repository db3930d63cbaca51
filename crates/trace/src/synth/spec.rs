//! The specification file of a synthetic export: text in, validated [`Spec`] out.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::schema::Flavour;
use crate::TraceError;

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

/// Layers and kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelSpec {
    /// Layers of full attention.
    pub attention_layers: u32,
    /// Layers of linear attention (Gated DeltaNet); interleaved with the others.
    pub ssm_layers: u32,
    /// Whether the feed-forward part of each layer is a mixture of experts.
    pub moe: bool,
    /// Draft passes after each target pass (MTP depth).
    pub mtp: u32,
    /// Whose kernel names.
    pub arch: Arch,
}

impl Default for ModelSpec {
    fn default() -> Self {
        ModelSpec {
            attention_layers: 4,
            ssm_layers: 0,
            moe: false,
            mtp: 0,
            arch: Arch::Hopper,
        }
    }
}

impl ModelSpec {
    /// Layers of the target model.
    pub fn layers(&self) -> u32 {
        self.attention_layers + self.ssm_layers
    }
}

/// GPU generation, for kernel names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arch {
    /// H100, H200.
    Hopper,
    /// A100, A6000.
    Ampere,
}

/// Ranks and communicators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ParallelSpec {
    /// Ranks of one communicator, 1 to 8.
    pub tensor: u32,
    /// Independent copies of the model, each with a communicator of its own.
    pub replicas: u32,
    /// How the ranks talk.
    pub comm: CommKind,
    /// Whether every process calls its device 0 (one `CUDA_VISIBLE_DEVICES` a worker).
    pub all_device_zero: bool,
    /// Only this many ranks leave rows, as when the profiler followed one worker only; 0 for all.
    pub traced_ranks: u32,
}

impl Default for ParallelSpec {
    fn default() -> Self {
        ParallelSpec {
            tensor: 2,
            replicas: 1,
            comm: CommKind::Nccl,
            all_device_zero: false,
            traced_ranks: 0,
        }
    }
}

/// What a collective looks like in the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommKind {
    /// `ncclDevKernel_AllReduce_Sum_bf16_RING_LL`.
    Nccl,
    /// `ncclDevKernel_AllReduce_bf16_RING`, NCCL 2.28.
    NcclShort,
    /// `ncclKernel_AllReduce_RING_LL_Sum_half`, NCCL before 2.19.
    NcclLegacy,
    /// `ncclSymkDevKernel_AllReduce_…`.
    NcclSymmetric,
    /// `vllm::cross_device_reduce_1stage`.
    CustomAllReduce,
    /// All-reduce fused with residual and norm.
    Fused,
    /// GEMM and all-reduce in one kernel.
    FusedGemm,
    /// A peer-to-peer copy and no kernel.
    PeerCopy,
    /// Dispatch and combine of expert parallelism instead of all-reduces after the experts.
    ExpertParallel,
}

/// A run of equal steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhaseSpec {
    /// How many.
    pub steps: u32,
    /// What they do.
    #[serde(default)]
    pub kind: PhaseKind,
    /// Sequences that decode.
    #[serde(default = "one")]
    pub concurrency: u32,
    /// Prompt tokens in each step (`mixed`, `prefill`): one chunk.
    #[serde(default)]
    pub prefill_tokens: u32,
    /// Sequences those tokens belong to.
    #[serde(default = "one")]
    pub prefill_requests: u32,
    /// Another graph mode for these steps (vLLM replays pure decode steps only).
    #[serde(default)]
    pub graph: Option<GraphMode>,
    /// Nanoseconds a step and lane, by bucket: `linear`, `attention`, `ssm`, `moe`, `comm` (service), `copy`, `other`.
    #[serde(default)]
    pub time_ns: BTreeMap<Bucket, u64>,
    /// Nothing runs for this long after the phase.
    #[serde(default)]
    pub pause_after_ns: u64,
}

fn one() -> u32 {
    1
}

/// What a step does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseKind {
    /// Only decoding sequences.
    #[default]
    Decode,
    /// Decoding sequences and a prompt chunk.
    Mixed,
    /// Only prompt tokens.
    Prefill,
}

/// Where a kernel's time is accounted in the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bucket {
    /// Dense matrix products.
    Linear,
    /// Full attention.
    Attention,
    /// Linear attention.
    Ssm,
    /// Expert matrix products.
    Moe,
    /// Collectives: the service time, without waiting.
    Comm,
    /// Copies and fills.
    Copy,
    /// Everything else: norms, activations, sampling, preparation.
    Other,
}

/// CUDA graphs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GraphSpec {
    /// How the steps ran and what the profiler left of it.
    pub mode: GraphMode,
    /// The last opaque graph has no end (`end = 0`), as when the capture was cut.
    pub unfinished: bool,
}

impl Default for GraphSpec {
    fn default() -> Self {
        GraphSpec {
            mode: GraphMode::Node,
            unfinished: false,
        }
    }
}

/// How the steps ran and what the profiler left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GraphMode {
    /// One full graph a pass; every kernel carries its launch's correlation id and a node id.
    Node,
    /// One graph between two attentions, which run eagerly.
    Piecewise,
    /// No graph.
    Eager,
    /// One opaque row a replay in the table of graphs.
    Graph,
    /// Replays that left no GPU row at all.
    GraphNoTable,
    /// Target passes opaque, draft passes node by node.
    MixedLevel,
}

/// Gaps between operations on a lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GapSpec {
    /// Between nodes of a graph.
    pub graph_ns: u64,
    /// Before an operation launched on its own.
    pub eager_ns: u64,
    /// Between steps.
    pub step_ns: u64,
    /// Relative spread of durations around their mean, 0 to 1; totals a step stay exact.
    pub jitter: f64,
}

impl Default for GapSpec {
    fn default() -> Self {
        GapSpec {
            graph_ns: 320,
            eager_ns: 1_500,
            step_ns: 60_000,
            jitter: 0.0,
        }
    }
}

/// Extra idle time of a rank before a collective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SkewSpec {
    /// How it is drawn.
    pub kind: SkewKind,
    /// The delay of the straggler (`fixed`), or the median delay of every rank (`lognormal`).
    pub delay_ns: u64,
    /// Spread of `lognormal`: standard deviation of the logarithm.
    pub sigma: f64,
    /// Rank within its communicator that is late (`fixed`).
    pub straggler: u32,
    /// The straggler moves to the next rank after so many steps; 0 for never.
    pub switch_every: u32,
}

impl Default for SkewSpec {
    fn default() -> Self {
        SkewSpec {
            kind: SkewKind::None,
            delay_ns: 0,
            sigma: 0.5,
            straggler: 0,
            switch_every: 0,
        }
    }
}

/// How late ranks are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkewKind {
    /// All ranks arrive together.
    None,
    /// One rank is late by the same time before every collective.
    Fixed,
    /// Each rank is late by a drawn time before every collective.
    Lognormal,
}

/// Communication beside compute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OverlapSpec {
    /// How a collective lies to the next kernel.
    pub kind: OverlapKind,
    /// Every how many-th all-reduce.
    pub every: u32,
    /// A kernel starts so much before its predecessor on the stream ends (programmatic dependent launch).
    pub pdl_ns: u64,
    /// Whether collectives do so too.
    pub pdl_comm: bool,
}

impl Default for OverlapSpec {
    fn default() -> Self {
        OverlapSpec {
            kind: OverlapKind::None,
            every: 1,
            pdl_ns: 0,
            pdl_comm: false,
        }
    }
}

/// How a collective on a second stream lies to the next kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverlapKind {
    /// One stream, no overlap.
    None,
    /// The next kernel starts in the middle of the collective and goes on after it.
    Partial,
    /// The collective lies inside the next kernel, which is stretched as needed.
    Nested,
    /// Both have the same start and end.
    Identical,
}

/// Clocks of the devices against the host's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClockSpec {
    /// Offset of each rank's device (missing ones are 0).
    pub offset_ns: Vec<i64>,
    /// Drift of each rank's device, nanoseconds a second.
    pub drift_ns_per_s: Vec<i64>,
}

/// Launch calls and marks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostSpec {
    /// How far launches run ahead of the GPU, in steps (asynchronous scheduling: 0.25 to 0.75).
    pub async_lag: f64,
    /// How steps are marked.
    pub nvtx: NvtxForm,
    /// Whose texts.
    pub nvtx_style: NvtxStyle,
    /// Whether runtime calls wrap driver calls with the same correlation id.
    pub driver_rows: bool,
    /// Whether processes use the same correlation ids.
    pub colliding_ids: bool,
    /// Other API calls a step (event queries), which put nothing on the GPU.
    pub noise_calls: u32,
    /// Ranges of other NVTX domains a step.
    pub noise_ranges: u32,
    /// Whether global ids are negative (hardware id of 128 or more).
    pub negative_ids: bool,
}

impl Default for HostSpec {
    fn default() -> Self {
        HostSpec {
            async_lag: 0.25,
            nvtx: NvtxForm::Text,
            nvtx_style: NvtxStyle::Vllm,
            driver_rows: true,
            colliding_ids: true,
            noise_calls: 3,
            noise_ranges: 2,
            negative_ids: false,
        }
    }
}

/// How steps are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NvtxForm {
    /// Push and pop with the text in the row.
    Text,
    /// Push and pop with a registered string.
    TextId,
    /// None.
    None,
    /// In a table with a version in its name.
    V2,
    /// The last range is still open.
    Open,
    /// Start and end, the end on another thread.
    OtherThread,
}

/// Texts of step marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NvtxStyle {
    /// `execute_context_0(0)_generation_16(16)`.
    Vllm,
    /// `execute_new_0_cached_16`, vLLM in autumn 2025.
    VllmNew,
    /// `step[DECODE bs=16]`.
    Sglang,
    /// `[Executor] _forward_step 7: 0 ctx reqs, 16 gen reqs`.
    Trtllm,
}

/// Form of the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FileSpec {
    /// Which version's tables and columns.
    pub flavour: Flavour,
    /// A schema version to claim instead of the flavour's.
    pub claim_version: Option<String>,
    /// Create every table, also those without rows (`--lazy=false`).
    pub eager_tables: bool,
    /// Columns and tables that no version has.
    pub unknown_extras: bool,
    /// Shuffle the order of columns.
    pub shuffle_columns: bool,
    /// Shuffle the order of rows.
    pub shuffle_rows: bool,
    /// Renumber strings and correlation ids.
    pub shuffle_ids: bool,
    /// Kernel names as text in the row instead of an id.
    pub text_names: bool,
    /// Tables to leave out.
    pub without_tables: Vec<String>,
    /// Write the steps over and over until there are so many kernel rows; 0 for once.
    pub kernel_rows: u64,
    /// Keep only this share of the bytes, 0 to 1.
    pub truncate_to: Option<f64>,
}

/// Broken rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultSpec {
    /// A collective that one rank lacks.
    pub missing_collective: Option<MissingCollective>,
    /// Kernels of no duration.
    pub zero_durations: u32,
    /// Kernels that end before they start.
    pub negative_durations: u32,
    /// Kernels with start and end 0.
    pub zero_times: u32,
    /// Launch rows to leave out, from the first step on.
    pub orphan_kernels: u32,
}

/// A collective that one rank lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MissingCollective {
    /// Rank over all replicas.
    pub rank: u32,
    /// Step, counted from 0.
    pub step: u32,
    /// Collective within the step, counted from 0.
    pub ordinal: u32,
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
        let rules = [
            (
                (1..=8).contains(&self.parallel.tensor),
                "parallel.tensor must be 1 to 8",
            ),
            (
                (1..=8).contains(&self.parallel.replicas),
                "parallel.replicas must be 1 to 8",
            ),
            (
                self.parallel.traced_ranks <= self.ranks(),
                "parallel.traced_ranks must be at most tensor x replicas",
            ),
            (
                (1..=1024).contains(&self.model.layers()),
                "model needs 1 to 1024 layers",
            ),
            (self.model.mtp <= 16, "model.mtp must be at most 16"),
            (self.steps() > 0, "phase: at least one step"),
            (
                self.phase
                    .iter()
                    .all(|p| p.kind == PhaseKind::Decode || p.prefill_tokens > 0),
                "phase: mixed and prefill steps need prefill_tokens",
            ),
            (
                self.phase
                    .iter()
                    .all(|p| p.kind != PhaseKind::Decode || p.prefill_tokens == 0),
                "phase: decode steps have no prefill_tokens",
            ),
            (
                (0.0..1.0).contains(&self.gaps.jitter),
                "gaps.jitter must be 0 to less than 1",
            ),
            (
                (0.0..=8.0).contains(&self.host.async_lag),
                "host.async_lag must be 0 to 8 steps",
            ),
            (self.overlap.every > 0, "overlap.every must be at least 1"),
            (
                (0.0..=4.0).contains(&self.skew.sigma),
                "skew.sigma must be 0 to 4",
            ),
            (
                self.skew.straggler < self.parallel.tensor,
                "skew.straggler must be a rank of the communicator",
            ),
            (
                self.file
                    .truncate_to
                    .is_none_or(|t| (0.0..1.0).contains(&t)),
                "file.truncate_to must be 0 to less than 1",
            ),
            (
                self.file.kernel_rows == 0 || !self.file.shuffle_rows,
                "file.kernel_rows and file.shuffle_rows exclude each other",
            ),
            (
                self.file.kernel_rows == 0 || !self.file.shuffle_ids,
                "file.kernel_rows and file.shuffle_ids exclude each other",
            ),
            (
                self.file.kernel_rows == 0 || self.clock.drift_ns_per_s.is_empty(),
                "file.kernel_rows and clock.drift_ns_per_s exclude each other",
            ),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, message)) => Err((*message).to_owned()),
            None => Ok(()),
        }
    }
}
