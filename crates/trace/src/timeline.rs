//! The lanes of a trace: what ran on each GPU, in the order of its start.

use std::collections::BTreeMap;
use std::path::PathBuf;

use linktax_records::Note;
use serde::Serialize;

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

/// The operations of one lane, struct of arrays, about 27 bytes a row; sorted by start once read.
///
/// Rare wide values (a duration over 4.29 s, a node id over 32 bits, bytes) live in side tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ops {
    start: Vec<i64>,
    dur: Vec<u32>,
    name: Vec<NameId>,
    stream: Vec<u16>,
    streams: Vec<u32>,
    corr: Vec<u32>,
    node: Vec<u32>,
    kind: Vec<OpKind>,
    long: BTreeMap<u32, u64>,
    wide_node: BTreeMap<u32, u64>,
    bytes: BTreeMap<u32, u64>,
}

impl Ops {
    /// Number of operations.
    pub fn len(&self) -> usize {
        self.start.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.start.is_empty()
    }

    /// Appends one operation.
    pub fn push(&mut self, op: Op) {
        let at = self.start.len() as u32;
        self.start.push(op.start);
        self.dur.push(u32::try_from(op.dur).unwrap_or_else(|_| {
            self.long.insert(at, op.dur);
            u32::MAX
        }));
        self.name.push(op.name);
        let stream = self.stream_index(op.stream);
        self.stream.push(stream);
        self.corr.push(op.corr);
        self.node.push(u32::try_from(op.node).unwrap_or_else(|_| {
            self.wide_node.insert(at, op.node);
            u32::MAX
        }));
        self.kind.push(op.kind);
        if op.bytes > 0 {
            self.bytes.insert(at, op.bytes);
        }
    }

    /// There are a handful of streams, and the last one used is nearly always the right one.
    fn stream_index(&mut self, stream: u32) -> u16 {
        if let Some(&last) = self.stream.last()
            && self.streams.get(usize::from(last)) == Some(&stream)
        {
            return last;
        }
        let at = match self.streams.iter().position(|&s| s == stream) {
            Some(at) => at,
            None => {
                self.streams.push(stream);
                self.streams.len() - 1
            }
        };
        u16::try_from(at).unwrap_or(u16::MAX)
    }

    /// Start of operation `i` in nanoseconds.
    pub fn start(&self, i: usize) -> i64 {
        self.start[i]
    }

    /// Duration of operation `i` in nanoseconds.
    pub fn dur(&self, i: usize) -> u64 {
        match self.dur[i] {
            u32::MAX => self
                .long
                .get(&(i as u32))
                .copied()
                .unwrap_or(u64::from(u32::MAX)),
            dur => u64::from(dur),
        }
    }

    /// End of operation `i` in nanoseconds.
    pub fn end(&self, i: usize) -> i64 {
        self.start(i).saturating_add_unsigned(self.dur(i))
    }

    /// Name of operation `i`.
    pub fn name(&self, i: usize) -> NameId {
        self.name[i]
    }

    /// What operation `i` is.
    pub fn kind(&self, i: usize) -> OpKind {
        self.kind[i]
    }

    /// Correlation id of operation `i`; 0 if unknown.
    pub fn corr(&self, i: usize) -> u32 {
        self.corr[i]
    }

    /// Graph node of operation `i`; 0 outside a graph.
    pub fn node(&self, i: usize) -> u64 {
        match self.node[i] {
            u32::MAX => self
                .wide_node
                .get(&(i as u32))
                .copied()
                .unwrap_or(u64::from(u32::MAX)),
            node => u64::from(node),
        }
    }

    /// Stream of operation `i`.
    pub fn stream(&self, i: usize) -> u32 {
        self.streams
            .get(usize::from(self.stream[i]))
            .copied()
            .unwrap_or(0)
    }

    /// Bytes that operation `i` moved, or the graph id of an opaque graph.
    pub fn bytes(&self, i: usize) -> u64 {
        self.bytes.get(&(i as u32)).copied().unwrap_or(0)
    }

    /// Operation `i` as a whole.
    pub fn get(&self, i: usize) -> Op {
        Op {
            start: self.start(i),
            dur: self.dur(i),
            name: self.name(i),
            stream: self.stream(i),
            corr: self.corr(i),
            node: self.node(i),
            bytes: self.bytes(i),
            kind: self.kind(i),
        }
    }

    /// All operations in stored order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Op> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }

    /// Whether the operations are in the order of their start.
    pub fn is_sorted(&self) -> bool {
        self.start.is_sorted()
    }

    /// Puts the operations into a canonical order (start, then end, stream, name, node), whatever the order of rows
    /// was: nothing downstream may depend on it. Returns whether anything moved.
    pub fn sort(&mut self) -> bool {
        let key = |i: &u32| {
            let op = self.get(*i as usize);
            (op.start, op.dur, op.stream, op.name, op.node, op.corr)
        };
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        // Rows are nearly sorted already, which is the best case of the stable sort.
        order.sort_by_key(key);
        if order.is_sorted() {
            return false;
        }
        let mut sorted = Ops::default();
        for &i in &order {
            sorted.push(self.get(i as usize));
        }
        *self = sorted;
        true
    }
}

impl FromIterator<Op> for Ops {
    /// Collects and sorts.
    fn from_iter<I: IntoIterator<Item = Op>>(ops: I) -> Self {
        let mut all = Ops::default();
        ops.into_iter().for_each(|op| all.push(op));
        all.sort();
        all
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

#[cfg(test)]
mod tests {
    use super::*;

    fn op(start: i64, dur: u64, stream: u32, node: u64) -> Op {
        Op {
            start,
            dur,
            name: NameId(0),
            stream,
            corr: 7,
            node,
            bytes: node,
            kind: OpKind::Kernel,
        }
    }

    #[test]
    fn wide_values_survive_storage_and_sorting() {
        let ops = [
            op(50, 5_000_000_000, 20, 0),
            op(-10, 3, 7, u64::from(u32::MAX) + 5),
            op(20, u64::from(u32::MAX), 7, u64::from(u32::MAX)),
        ];
        let stored: Ops = ops.into_iter().collect();
        assert!(stored.is_sorted());
        assert_eq!(stored.iter().collect::<Vec<_>>(), [ops[1], ops[2], ops[0]]);
        assert_eq!(stored.end(2), 5_000_000_050);
    }
}
