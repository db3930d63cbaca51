//! What the profiler leaves of a schedule: operations on their device's clock, opaque graphs, launch calls, marks.

use super::catalog::{Kernel, Role};
use super::host::{self, Call, MarkRow};
use super::program::{How, StepProgram};
use super::schedule::{LaneSchedule, Placed, Schedule, What};
use super::spec::Spec;

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Kernel(Kernel),
    Copy { kind: u8, bytes: u64 },
    Graph(u32),
}

impl Kind {
    /// Fine class of trace's classification.
    pub(crate) fn class(&self) -> &'static str {
        match self {
            Kind::Kernel(kernel) => kernel.class,
            Kind::Copy { kind: 10, .. } => "comm.copy",
            Kind::Copy { .. } => "copy",
            Kind::Graph(_) => "graph",
        }
    }
}

/// One GPU row, on its device's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rec {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) kind: Kind,
    pub(crate) stream: u32,
    pub(crate) node: u64,
    pub(crate) graph: u32,
    pub(crate) corr: u32,
    pub(crate) step: u32,
    pub(crate) role: Option<Role>,
    /// The row of a graph whose end was lost: written with `end = 0`, not part of the truth.
    pub(crate) unfinished: bool,
}

/// One rank as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) rank: u32,
    pub(crate) communicator: u32,
    pub(crate) pid: u32,
    pub(crate) global_pid: i64,
    pub(crate) device: u32,
    pub(crate) recs: Vec<Rec>,
    pub(crate) calls: Vec<Call>,
    pub(crate) marks: Vec<MarkRow>,
}

/// The process of a rank.
fn pid(rank: u32) -> u32 {
    4_001 + rank
}

/// The export's `globalPid`: hardware, virtual machine, process and thread packed into 64 bits, kept as signed.
fn global_pid(spec: &Spec, pid: u32) -> i64 {
    let hardware = if spec.host.negative_ids { 0x80_u64 } else { 0 };
    (hardware << 56 | 1 << 48 | u64::from(pid) << 24) as i64
}

/// Records every traced rank.
pub(crate) fn record(spec: &Spec, steps: &[StepProgram], schedule: &Schedule) -> Vec<Recorded> {
    let traced = match spec.parallel.traced_ranks {
        0 => schedule.lanes.len(),
        some => some as usize,
    };
    schedule
        .lanes
        .iter()
        .enumerate()
        .take(traced)
        .map(|(rank, lane)| one(spec, steps, rank as u32, lane))
        .collect()
}

fn one(spec: &Spec, steps: &[StepProgram], rank: u32, lane: &LaneSchedule) -> Recorded {
    let process = pid(rank);
    let global_pid = global_pid(spec, process);
    let host = host::calls(spec, steps, rank, process, lane);
    let clock = Clock::of(spec, rank);
    let mut recs: Vec<Rec> = Vec::with_capacity(lane.ops.len());
    for op in lane.ops.iter().filter(|op| !missing(spec, rank, op)) {
        let how = lane.units[op.launch as usize].how;
        let corr = host.corr[op.launch as usize];
        let start = clock.read(op.start);
        match how {
            How::Invisible(_) => {}
            How::Opaque(graph) => match recs.last_mut() {
                Some(open) if open.corr == corr => open.end = open.end.max(clock.read(op.end())),
                _ => recs.push(Rec {
                    end: clock.read(op.end()),
                    kind: Kind::Graph(graph),
                    ..row(op, start, corr, graph)
                }),
            },
            How::Eager => recs.push(row(op, start, corr, 0)),
            How::Nodes(graph) => recs.push(row(op, start, corr, graph)),
        }
    }
    if spec.graph.unfinished
        && let Some(last) = recs
            .iter_mut()
            .rev()
            .find(|r| matches!(r.kind, Kind::Graph(_)))
    {
        last.unfinished = true;
    }
    Recorded {
        rank,
        communicator: rank / spec.parallel.tensor,
        pid: process,
        global_pid,
        device: if spec.parallel.all_device_zero {
            0
        } else {
            rank
        },
        recs,
        calls: host.calls,
        marks: host.marks,
    }
}

fn row(op: &Placed, start: i64, corr: u32, graph: u32) -> Rec {
    Rec {
        start,
        // The duration is measured on one clock and survives; only positions shift.
        end: start + op.dur as i64,
        kind: match op.what {
            What::Kernel(kernel) => Kind::Kernel(kernel),
            What::Copy { kind, bytes } => Kind::Copy { kind, bytes },
        },
        stream: op.stream,
        node: op.node,
        graph,
        corr,
        step: op.step,
        role: op.role,
        unfinished: false,
    }
}

fn missing(spec: &Spec, rank: u32, op: &Placed) -> bool {
    spec.faults.missing_collective.as_ref().is_some_and(|gone| {
        gone.rank == rank && gone.step == op.step && Some(gone.ordinal) == op.collective
    })
}

/// A device's clock against the host's.
struct Clock {
    offset: i64,
    drift: i64,
}

impl Clock {
    fn of(spec: &Spec, rank: u32) -> Self {
        let at = |list: &[i64]| list.get(rank as usize).copied().unwrap_or(0);
        Clock {
            offset: at(&spec.clock.offset_ns),
            drift: at(&spec.clock.drift_ns_per_s),
        }
    }

    fn read(&self, host: i64) -> i64 {
        let drifted = i128::from(host) * i128::from(self.drift) / 1_000_000_000;
        // Nanoseconds a second times seconds of a capture.
        host + self.offset + drifted as i64
    }
}
