//! How the profiler recorded it: graphs, clocks, launches and marks, the file, broken rows.

use serde::{Deserialize, Serialize};

use crate::synth::Flavour;

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
