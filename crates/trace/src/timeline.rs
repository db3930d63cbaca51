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
/// Node ids carry the graph in their upper half, so (stream, graph) is kept as an index into the few such places.
/// Rare wide values (a duration over 4.29 s, bytes) live in side tables. Two are equal when they hold the same
/// operations in the same order.
#[derive(Clone, Debug, Default)]
pub struct Ops {
    start: Vec<i64>,
    dur: Vec<u32>,
    name: Vec<NameId>,
    place: Vec<u16>,
    places: Vec<Place>,
    place_index: BTreeMap<Place, u16>,
    corr: Vec<u32>,
    node: Vec<u32>,
    kind: Vec<OpKind>,
    long: BTreeMap<u32, u64>,
    far: BTreeMap<u32, Place>,
    bytes: BTreeMap<u32, u64>,
}

/// Stream and upper half of the node id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    stream: u32,
    graph: u32,
}

/// Index of a place beyond the 65,535 that have one: it is in the side table.
const FAR: u16 = u16::MAX;

impl PartialEq for Ops {
    fn eq(&self, other: &Ops) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Ops {}

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
        self.dur.push(u32::try_from(op.dur).unwrap_or(u32::MAX));
        if op.dur >= u64::from(u32::MAX) {
            self.long.insert(at, op.dur);
        }
        self.name.push(op.name);
        let place = Place {
            stream: op.stream,
            graph: (op.node >> 32) as u32,
        };
        let index = self.index_of(place);
        if index == FAR {
            self.far.insert(at, place);
        }
        self.place.push(index);
        self.corr.push(op.corr);
        self.node.push(op.node as u32);
        self.kind.push(op.kind);
        if op.bytes > 0 && op.kind != OpKind::Kernel {
            self.bytes.insert(at, op.bytes);
        }
    }

    /// There are a handful of places, and the last one used is nearly always the right one.
    fn index_of(&mut self, place: Place) -> u16 {
        if let Some(&last) = self.place.last()
            && self.places.get(usize::from(last)) == Some(&place)
        {
            return last;
        }
        if let Some(&known) = self.place_index.get(&place) {
            return known;
        }
        match u16::try_from(self.places.len()) {
            Ok(new) if new != FAR => {
                self.places.push(place);
                self.place_index.insert(place, new);
                new
            }
            _ => FAR,
        }
    }

    fn place(&self, i: usize) -> Place {
        match self.place[i] {
            FAR => self.far.get(&(i as u32)).copied().unwrap_or_default(),
            near => self
                .places
                .get(usize::from(near))
                .copied()
                .unwrap_or_default(),
        }
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
        u64::from(self.place(i).graph) << 32 | u64::from(self.node[i])
    }

    /// Stream of operation `i`.
    pub fn stream(&self, i: usize) -> u32 {
        self.place(i).stream
    }

    /// Bytes that operation `i` moved, or the graph id of an opaque graph.
    pub fn bytes(&self, i: usize) -> u64 {
        match self.kind[i] {
            OpKind::Kernel => 0,
            _ => self.bytes.get(&(i as u32)).copied().unwrap_or(0),
        }
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
        let rest = |i: usize| {
            let op = self.get(i);
            (
                op.dur, op.stream, op.name, op.node, op.corr, op.kind, op.bytes,
            )
        };
        let compare = |&a: &u32, &b: &u32| {
            let (a, b) = (a as usize, b as usize);
            self.start[a]
                .cmp(&self.start[b])
                .then_with(|| rest(a).cmp(&rest(b)))
        };
        let rows = self.len() as u32;
        if (1..rows).all(|i| compare(&(i - 1), &i).is_le()) {
            return false;
        }
        let mut order: Vec<u32> = (0..rows).collect();
        // Each table comes nearly sorted, and long runs are the best case of the stable sort.
        order.sort_by(compare);
        self.permute(&order);
        true
    }

    /// Column by column, so that no second copy of all rows is ever held.
    fn permute(&mut self, order: &[u32]) {
        fn column<T: Copy>(column: &mut Vec<T>, order: &[u32]) {
            *column = order.iter().map(|&i| column[i as usize]).collect();
        }
        fn side<T: Copy>(side: &mut BTreeMap<u32, T>, order: &[u32]) {
            if side.is_empty() {
                return;
            }
            *side = (0..)
                .zip(order)
                .filter_map(|(new, old)| Some((new, *side.get(old)?)))
                .collect();
        }
        column(&mut self.start, order);
        column(&mut self.dur, order);
        column(&mut self.name, order);
        column(&mut self.place, order);
        column(&mut self.corr, order);
        column(&mut self.node, order);
        column(&mut self.kind, order);
        side(&mut self.long, order);
        side(&mut self.far, order);
        side(&mut self.bytes, order);
    }

    /// Gives every kernel a new name id: `new[old]`.
    pub(crate) fn rename(&mut self, new: &[NameId]) {
        for (name, kind) in self.name.iter_mut().zip(&self.kind) {
            if *kind == OpKind::Kernel
                && let Some(&to) = new.get(name.0 as usize)
            {
                *name = to;
            }
        }
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
            kind: OpKind::Memset,
        }
    }

    #[test]
    fn wide_values_survive_storage_and_sorting() {
        let ops = [
            op(50, 5_000_000_000, 20, 0),
            op(-10, 3, 7, 5_278_514_806_784),
            op(20, u64::from(u32::MAX), 7, u64::from(u32::MAX)),
        ];
        let stored: Ops = ops.into_iter().collect();
        assert!(stored.is_sorted());
        assert_eq!(stored.iter().collect::<Vec<_>>(), [ops[1], ops[2], ops[0]]);
        assert_eq!(stored.end(2), 5_000_000_050);
    }

    #[test]
    fn more_places_than_the_index_holds() {
        let ops: Vec<Op> = (0..70_000).map(|i| op(i64::from(i), 1, i, 9)).collect();
        let stored: Ops = ops.iter().rev().copied().collect();
        assert!(stored.iter().eq(ops));
    }

    #[test]
    fn sorting_is_independent_of_the_order_of_rows() {
        let ops: Vec<Op> = (0..50u32)
            .map(|i| {
                op(
                    i64::from(i / 5),
                    u64::from(i % 3),
                    i % 4,
                    u64::from(i % 2) << 32,
                )
            })
            .collect();
        let forth: Ops = ops.iter().copied().collect();
        let back: Ops = ops.iter().rev().copied().collect();
        assert_eq!(forth, back);
    }
}
