//! The lanes of a trace: what ran on each GPU, in the order of its start.

use std::path::PathBuf;

use linktax_records::Note;
use serde::Serialize;

mod ops;

pub use ops::Ops;

/// Index of a name in [`Names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct NameId(pub u32);

/// The distinct names of the operations in a trace: 10² to 10³, so that a name is looked at once and a row never.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    full: Vec<String>,
    short: Vec<String>,
}

impl Names {
    /// Adds a name: the demangled one and the short one (which may be the same). No deduplication.
    pub fn push(&mut self, full: impl Into<String>, short: impl Into<String>) -> NameId {
        let id = NameId(self.full.len() as u32);
        self.full.push(full.into());
        self.short.push(short.into());
        id
    }

    /// The demangled name.
    pub fn full(&self, id: NameId) -> &str {
        self.full.get(id.0 as usize).map_or("", String::as_str)
    }

    /// The name without namespaces, template arguments and parameters.
    pub fn short(&self, id: NameId) -> &str {
        self.short.get(id.0 as usize).map_or("", String::as_str)
    }

    /// Number of names.
    pub fn len(&self) -> usize {
        self.full.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.full.is_empty()
    }

    /// All names with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (NameId, &str)> + '_ {
        (0..).map(NameId).zip(self.full.iter().map(String::as_str))
    }
}

/// Direction of a copy, from the export's `copyKind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyKind {
    /// Host to device.
    HostToDevice,
    /// Device to host.
    DeviceToHost,
    /// Within one device.
    DeviceToDevice,
    /// Between two devices.
    PeerToPeer,
    /// Any other kind (unified memory, arrays).
    Other,
}

/// What an operation on a GPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OpKind {
    /// A kernel.
    Kernel,
    /// A copy.
    Memcpy(CopyKind),
    /// A fill.
    Memset,
    /// A whole CUDA graph seen as one opaque span (graph-level capture).
    Graph,
}

/// One operation, for reading; [`Ops`] stores them column by column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Op {
    /// Start on the export's clock, nanoseconds; may be negative.
    pub start: i64,
    /// Duration in nanoseconds, never negative.
    pub dur: u64,
    /// Kernel name; meaningless for other kinds.
    pub name: NameId,
    /// CUDA stream.
    pub stream: u32,
    /// Correlation id within the process; 0 if unknown.
    pub corr: u32,
    /// Graph node id; 0 outside a graph.
    pub node: u64,
    /// Bytes moved by a copy or fill; graph id of an opaque graph; 0 otherwise.
    pub bytes: u64,
    /// What it is.
    pub kind: OpKind,
}

impl Op {
    /// `start + dur`.
    pub fn end(&self) -> i64 {
        self.start.saturating_add_unsigned(self.dur)
    }
}

/// What makes a lane: one process's use of one device. `deviceId` alone is the process's own ordinal and collides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct LaneId {
    /// Which input file (several files of one run may be read together).
    pub file: u32,
    /// The export's `globalPid` (thread bits zero).
    pub global_pid: i64,
    /// CUDA ordinal within the process.
    pub device: u32,
}

/// What is known of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Gpu {
    /// Name, such as `NVIDIA H200`.
    pub name: Option<String>,
    /// Physical index on the machine, if the export maps it.
    pub index: Option<u32>,
    /// Memory bandwidth in bytes a second.
    pub memory_bandwidth: Option<u64>,
    /// Multiprocessors.
    pub sm_count: Option<u32>,
}

/// One rank's GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    /// Its key.
    pub id: LaneId,
    /// Operating-system process id.
    pub pid: u32,
    /// The GPU, as far as the export tells.
    pub gpu: Gpu,
    /// What ran on it, sorted by start.
    pub ops: Ops,
}

/// What a launch call was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchKind {
    /// A kernel launch.
    Kernel,
    /// A graph launch.
    Graph,
    /// A copy or fill.
    Memory,
    /// A profiler start or stop.
    Profiler,
}

/// One API call that put work on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Launch {
    /// Correlation id within the process.
    pub corr: u32,
    /// Start of the call, nanoseconds.
    pub start: i64,
    /// Duration of the call, nanoseconds.
    pub dur: u32,
    /// Thread id (the 24 low bits of `globalTid`).
    pub tid: u32,
    /// What was launched.
    pub kind: LaunchKind,
}

/// A traced process and its launch calls, sorted by start. Of a runtime call that wraps a driver call with the same
/// correlation id only the outer one is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Which input file.
    pub file: u32,
    /// The export's `globalPid`.
    pub global_pid: i64,
    /// Name, if the export has it.
    pub name: Option<String>,
    /// Launch calls, sorted by start.
    pub launches: Vec<Launch>,
}

/// An NVTX range that a step finder may use (see `steps` for which texts those are).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// Which input file.
    pub file: u32,
    /// The export's `globalTid`.
    pub global_tid: i64,
    /// Start, nanoseconds.
    pub start: i64,
    /// End; `None` for a range that was still open.
    pub end: Option<i64>,
    /// The text.
    pub text: String,
}

/// An interval on the export's clock, such as profiler overhead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// Start, nanoseconds.
    pub start: i64,
    /// End, nanoseconds.
    pub end: i64,
}

/// An export, read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The input files, in the order of [`LaneId::file`].
    pub files: Vec<PathBuf>,
    /// Names of kernels.
    pub names: Names,
    /// One lane a process and device, sorted by id.
    pub lanes: Vec<Lane>,
    /// The traced processes, sorted by (file, `global_pid`).
    pub processes: Vec<Process>,
    /// Step marks, sorted by start.
    pub marks: Vec<Mark>,
    /// Intervals of profiler overhead.
    pub overhead: Vec<Span>,
    /// The window that was asked for, cut to the capture; operations are clipped to it. `None`: the whole capture.
    pub window: Option<Span>,
    /// What was odd about the input (dropped events, rows that were repaired, an unknown schema).
    pub notes: Vec<Note>,
}

impl Trace {
    /// The process that a lane belongs to.
    pub fn process(&self, lane: &LaneId) -> Option<&Process> {
        self.processes
            .iter()
            .find(|p| p.file == lane.file && p.global_pid == lane.global_pid)
    }
}
