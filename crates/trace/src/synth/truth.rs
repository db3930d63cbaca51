//! What a perfect analysis of the synthetic export answers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a perfect analysis of the synthetic export answers; all times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// Version of this layout.
    pub version: u32,
    /// Seed of the specification.
    pub seed: u64,
    /// Whether the steps can be split.
    pub verdict: TruthVerdict,
    /// Whether every collective has a partner on every rank.
    pub ranks_align: bool,
    /// The file holds the steps so many times, `period_ns` apart.
    pub repeats: u64,
    /// Distance between repetitions, 0 without any. With repetitions a lane's last step ends where the next
    /// repetition starts; only in the last one it ends with its own last operation.
    pub period_ns: u64,
    /// Kernel rows in the file, broken rows left out.
    pub kernel_rows: u64,
    /// Strings that no output may repeat.
    pub secrets: Vec<String>,
    /// One a rank, in the order of ranks.
    pub lanes: Vec<LaneTruth>,
    /// Every collective with rows of its own, by communicator, step and ordinal, without repetitions.
    pub collectives: Vec<CollectiveTruth>,
}

/// Whether the steps can be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TruthVerdict {
    /// Every kernel is in the file.
    Splittable,
    /// Graphs are opaque rows.
    OpaqueGraphs,
    /// Graph replays left no rows.
    InvisibleGraphs,
}

/// One rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaneTruth {
    /// Rank over all communicators.
    pub rank: u32,
    /// Which communicator.
    pub communicator: u32,
    /// Operating-system process.
    pub pid: u32,
    /// The export's `globalPid`.
    pub global_pid: i64,
    /// The export's `deviceId`.
    pub device: u32,
    /// Offset of the device's clock to the host's at the start.
    pub clock_offset_ns: i64,
    /// Drift of the device's clock.
    pub clock_drift_ns_per_s: i64,
    /// Its steps.
    pub steps: Vec<StepTruth>,
}

/// One step of one lane.
///
/// `compute_ns + exposed_comm_ns + copy_ns + opaque_ns + idle_ns` is the step's length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTruth {
    /// Position, from 0.
    pub index: u32,
    /// Start of its first operation, on the device's clock.
    pub start_ns: i64,
    /// Start of the next step's first operation; of the last step, end of its last operation.
    pub end_ns: i64,
    /// `decode`, `mixed` or `prefill`.
    pub kind: String,
    /// Sequences and tokens.
    pub batch: BatchTruth,
    /// Summed durations by fine class, clipped to the step.
    pub class_sum_ns: BTreeMap<String, u64>,
    /// Time in which at least one operation of the class runs.
    pub class_union_ns: BTreeMap<String, u64>,
    /// The exact partition by the set of classes that run together: classes joined by `+`, `idle` for none.
    pub together_ns: BTreeMap<String, u64>,
    /// Time with any compute kernel.
    pub compute_ns: u64,
    /// Time with any communication.
    pub comm_ns: u64,
    /// Time with communication and no compute kernel.
    pub exposed_comm_ns: u64,
    /// Time with copies or fills and neither communication nor compute.
    pub copy_ns: u64,
    /// Time with an opaque graph and nothing else.
    pub opaque_ns: u64,
    /// Time with nothing.
    pub idle_ns: u64,
    /// Waiting in collectives, summed.
    pub wait_ns: u64,
    /// Service time of collectives, summed.
    pub service_ns: u64,
    /// All-reduces.
    pub all_reduces: u32,
    /// All-gathers.
    pub all_gathers: u32,
    /// Operations that start in the step.
    pub ops: u32,
}

impl StepTruth {
    /// Length of the step.
    pub fn length_ns(&self) -> u64 {
        self.start_ns.abs_diff(self.end_ns)
    }
}

/// Sequences and tokens of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchTruth {
    /// Sequences in prefill.
    pub prefill_requests: u32,
    /// Their tokens.
    pub prefill_tokens: u32,
    /// Sequences in decode.
    pub decode_requests: u32,
    /// Their tokens, drafts included.
    pub decode_tokens: u32,
}

/// One collective over the ranks of its communicator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectiveTruth {
    /// Which communicator.
    pub communicator: u32,
    /// Step.
    pub step: u32,
    /// Position in the step.
    pub ordinal: u32,
    /// Kernel name.
    pub name: String,
    /// From the last arrival to the end.
    pub service_ns: u64,
    /// Waiting of each rank of the communicator.
    pub wait_ns: Vec<u64>,
    /// The rank (within the communicator) that came last; null when several did.
    pub last: Option<u32>,
}
