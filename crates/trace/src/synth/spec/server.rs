//! How the server ran: model, ranks, steps, gaps, lateness, overlap.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::GraphMode;

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

impl Bucket {
    /// The key in a specification.
    pub const fn as_str(self) -> &'static str {
        match self {
            Bucket::Linear => "linear",
            Bucket::Attention => "attention",
            Bucket::Ssm => "ssm",
            Bucket::Moe => "moe",
            Bucket::Comm => "comm",
            Bucket::Copy => "copy",
            Bucket::Other => "other",
        }
    }
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
