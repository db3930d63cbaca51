use super::*;
use crate::classify::Rules;
use crate::{Lane, LaneId, Launch, NameId, Names, Op, OpKind, Process};

fn trace(ops: Vec<Op>, launches: Vec<Launch>) -> Trace {
    let mut names = Names::default();
    names.push(
        "void _topk_topp_sampling_kernel()",
        "_topk_topp_sampling_kernel",
    );
    let id = LaneId {
        file: 0,
        global_pid: 5 << 24,
        device: 0,
    };
    Trace {
        names,
        lanes: vec![Lane {
            id,
            pid: 5,
            gpu: crate::Gpu::default(),
            ops: ops.into_iter().collect(),
        }],
        processes: vec![Process {
            file: 0,
            global_pid: 5 << 24,
            name: None,
            launches,
        }],
        ..Trace::default()
    }
}

fn op(start: i64, dur: u64, kind: OpKind, corr: u32) -> Op {
    Op {
        start,
        dur,
        name: NameId(0),
        stream: 7,
        corr,
        node: 0,
        bytes: if kind == OpKind::Graph { 5 } else { 0 },
        kind,
    }
}

fn look(trace: &Trace) -> GraphLevel {
    let classes = Classes::of(&trace.names, &Rules::embedded());
    graph_level(trace, &classes, 0).unwrap()
}

#[test]
fn fr_14_opaque_graphs_are_busy_and_refused() {
    let ops = (0..80).flat_map(|k| {
        let at = k * 31_000_000;
        [
            op(at, 30_000_000, OpKind::Graph, k as u32 * 3 + 1),
            op(at + 30_000_000, 50_000, OpKind::Kernel, k as u32 * 3 + 2),
            op(at + 30_100_000, 50_000, OpKind::Kernel, k as u32 * 3 + 3),
        ]
    });
    let found = look(&trace(ops.collect(), Vec::new()));
    assert_eq!(
        (found.opaque_ns, found.busy_ns),
        (2_400_000_000, 2_408_000_000)
    );
    let refusal = found.refusal().unwrap();
    assert!(
        refusal.contains("99.7 % of GPU busy time (2,400 of 2,408 ms) is inside opaque graphs; re-record with `--cuda-graph-trace=node`"),
        "{refusal}"
    );
}

#[test]
fn replays_without_rows_are_found_from_their_launches() {
    let launch = |corr, kind| Launch {
        corr,
        start: i64::from(corr) * 100,
        dur: 10,
        tid: 5,
        kind,
    };
    let mut launches: Vec<Launch> = (1..=20).map(|c| launch(c, LaunchKind::Graph)).collect();
    launches.push(launch(21, LaunchKind::Kernel));
    let kernel = op(3000, 50, OpKind::Kernel, 21);
    let found = look(&trace(vec![kernel], launches.clone()));
    assert_eq!((found.graph_launches, found.invisible_launches), (20, 20));
    let refusal = found.refusal().unwrap();
    assert!(
        refusal.contains("20 of 20 graph launches left no GPU row"),
        "{refusal}"
    );

    // One replay cut off by the end of the capture is no such case.
    let node = |c: u32| Op {
        node: 9,
        ..op(i64::from(c) * 100, 50, OpKind::Kernel, c)
    };
    let ops = (1..20).map(node).chain([kernel]).collect();
    let found = look(&trace(ops, launches));
    assert_eq!((found.invisible_launches, found.refusal()), (1, None));
}

#[test]
fn numbers_are_grouped_by_thousands() {
    assert_eq!(
        [0, 999, 1000, 2_408_000].map(thousands),
        ["0", "999", "1,000", "2,408,000"]
    );
}
