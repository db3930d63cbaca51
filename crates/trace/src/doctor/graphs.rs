//! How CUDA graphs show in an export. The capture's own word for it does not count: it says `Graph` even for a program
//! without graphs.

use serde::Serialize;

use crate::ingest::Joined;
use crate::timeline::{OpKind, Ops, Trace};

/// How CUDA graphs were captured, from what the rows show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GraphMode {
    /// No graph was launched.
    #[default]
    None,
    /// Every kernel of a graph has a row.
    Node,
    /// A whole graph is one row without names.
    Graph,
    /// Both kinds of rows.
    Mixed,
    /// Graphs were launched and left no row of any kind.
    Invisible,
}

impl GraphMode {
    /// The name used in files and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            GraphMode::None => "none",
            GraphMode::Node => "node",
            GraphMode::Graph => "graph",
            GraphMode::Mixed => "mixed",
            GraphMode::Invisible => "invisible",
        }
    }
}

/// From this share of the busy time inside opaque graphs on, a split says nothing.
const OPAQUE: f64 = 0.05;

/// CUDA graphs of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Graphs {
    /// How they were captured.
    pub mode: GraphMode,
    /// Launch calls of graphs.
    pub launches: u64,
    /// Launch calls that left no row of any kind.
    pub invisible: u64,
    /// Whether those are too many to be replays cut off by the end of the capture.
    pub hidden: bool,
    /// Rows that are a whole graph.
    pub opaque_rows: u64,
    /// Operations inside graphs that have rows of their own.
    pub node_rows: u64,
    /// Time in which anything ran, summed over lanes, nanoseconds.
    pub busy_ns: u64,
    /// The part of it inside opaque graphs.
    pub opaque_ns: u64,
}

impl Graphs {
    pub(crate) fn of(trace: &Trace, joined: Joined) -> Self {
        let mut graphs = Graphs {
            launches: joined.graph_launches,
            invisible: joined.invisible_graphs,
            hidden: joined.hides_graphs(),
            ..Graphs::default()
        };
        for lane in &trace.lanes {
            let ops = &lane.ops;
            for i in 0..ops.len() {
                graphs.opaque_rows += u64::from(ops.kind(i) == OpKind::Graph);
                graphs.node_rows += u64::from(ops.node(i) != 0);
            }
            graphs.busy_ns += covered(ops, |_| true);
            graphs.opaque_ns += covered(ops, |kind| kind == OpKind::Graph);
        }
        graphs.mode = match (graphs.opaque_rows > 0, graphs.node_rows > 0) {
            (true, true) => GraphMode::Mixed,
            (true, false) => GraphMode::Graph,
            _ if joined.hides_graphs() => GraphMode::Invisible,
            (false, true) => GraphMode::Node,
            (false, false) => GraphMode::None,
        };
        graphs
    }

    /// Whether so much is inside graphs without rows that a split would say nothing.
    pub fn unsplittable(&self) -> bool {
        self.hidden || self.opaque_share() >= OPAQUE
    }

    /// Share of the busy time inside opaque graphs, 0 to 1.
    pub fn opaque_share(&self) -> f64 {
        match self.busy_ns {
            0 => 0.0,
            busy => self.opaque_ns as f64 / busy as f64,
        }
    }
}

/// Time in which an operation of these kinds runs; overlapping ones count once. `ops` are sorted by start.
fn covered(ops: &Ops, of: impl Fn(OpKind) -> bool) -> u64 {
    let (mut sum, mut until) = (0u64, i64::MIN);
    for i in (0..ops.len()).filter(|&i| of(ops.kind(i))) {
        let (start, end) = (ops.start(i).max(until), ops.end(i));
        if end > start {
            sum += end.abs_diff(start);
            until = end;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{NameId, Op};

    #[test]
    fn the_doctor_and_the_split_refuse_the_same_captures() {
        for launches in 0..60u64 {
            for invisible in 0..=launches {
                let joined = Joined {
                    graph_launches: launches,
                    invisible_graphs: invisible,
                    ..Joined::default()
                };
                for opaque_ns in [0, 49, 50, 1_000] {
                    let doctor = Graphs {
                        busy_ns: 1_000,
                        opaque_ns,
                        ..Graphs::of(&Trace::default(), joined)
                    };
                    let split = crate::GraphLevel {
                        lane: 0,
                        opaque_ns,
                        busy_ns: 1_000,
                        graph_launches: launches as usize,
                        invisible_launches: invisible as usize,
                    };
                    assert_eq!(doctor.unsplittable(), split.is_unsplittable(), "{split:?}");
                }
            }
        }
    }

    #[test]
    fn overlapping_operations_are_covered_once() {
        let op = |start: i64, dur: u64, kind: OpKind| Op {
            start,
            dur,
            name: NameId(0),
            stream: 7,
            corr: 0,
            node: 0,
            bytes: 0,
            kind,
        };
        let ops: Ops = [
            op(0, 100, OpKind::Kernel),
            op(60, 70, OpKind::Graph),
            op(70, 10, OpKind::Kernel),
            op(200, 5, OpKind::Kernel),
        ]
        .into_iter()
        .collect();
        assert_eq!(covered(&ops, |_| true), 135);
        assert_eq!(covered(&ops, |kind| kind == OpKind::Graph), 70);
    }
}
