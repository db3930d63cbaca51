use std::sync::LazyLock;

use super::*;
use crate::classify::Rules;
use crate::steps::StepMethod;
use crate::{Lane, LaneId, Names, Op, OpKind, find_steps, pair_collectives, split};

/// Compiled once: it takes most of a test.
static RULES: LazyLock<Rules> = LazyLock::new(Rules::embedded);

const GEMM: &str = "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT";
const ALL_REDUCE: &str =
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)";

/// What one step did: kind, batch, nanoseconds of linear layers, of the all-reduce on each rank, of idle time.
#[derive(Clone, Copy)]
struct Did {
    kind: StepKind,
    tokens: Option<u64>,
    linear: u64,
    comm: [u64; 2],
    idle: u64,
}

const fn decode(tokens: u64, linear: u64, comm: [u64; 2], idle: u64) -> Did {
    Did {
        kind: StepKind::Decode,
        tokens: Some(tokens),
        linear,
        comm,
        idle,
    }
}

/// A capture of two ranks and its steps.
struct Made {
    trace: Trace,
    classes: Classes,
    steps: Vec<LaneSteps>,
}

fn made(did: &[Did], ranks: usize) -> Made {
    let mut names = Names::default();
    let (gemm, comm) = (names.push(GEMM, GEMM), names.push(ALL_REDUCE, ALL_REDUCE));
    let mut trace = Trace::default();
    for rank in 0..ranks {
        let mut at = 0;
        let mut ops = Vec::new();
        for step in did {
            let mut add = |name, dur: u64, then: u64| {
                ops.push(Op {
                    start: at,
                    dur,
                    name,
                    stream: 7,
                    corr: 0,
                    node: 0,
                    bytes: 0,
                    kind: OpKind::Kernel,
                });
                at += (dur + then) as i64;
            };
            // The rank with the longer all-reduce arrives early.
            let early = step.comm[1 - rank].saturating_sub(step.comm[rank]);
            add(gemm, step.linear + early, 0);
            add(comm, step.comm[rank], step.idle);
        }
        let id = LaneId {
            file: 0,
            global_pid: (rank as i64 + 1) << 24,
            device: rank as u32,
        };
        trace.lanes.push(Lane {
            id,
            pid: rank as u32 + 1,
            gpu: Default::default(),
            ops: ops.into_iter().collect(),
        });
    }
    trace.names = names;
    let classes = Classes::of(&trace.names, &RULES);
    let steps = (0..ranks).map(|lane| cut(&trace, lane, did)).collect();
    Made {
        trace,
        classes,
        steps,
    }
}

fn cut(trace: &Trace, lane: usize, did: &[Did]) -> LaneSteps {
    let mut all = LaneSteps::whole(trace, lane).unwrap();
    all.method = StepMethod::Nvtx;
    all.confidence = 1.0;
    let whole = all.steps.remove(0);
    let ops = &trace.lanes[lane].ops;
    for (at, step) in did.iter().enumerate() {
        all.steps.push(Step {
            index: at as u32,
            start: ops.start(at * 2),
            end: match at + 1 == did.len() {
                true => ops.end(at * 2 + 1) + step.idle as i64,
                false => ops.start(at * 2 + 2),
            },
            kind: step.kind,
            batch: step.tokens.map(|tokens| Batch {
                generation_requests: tokens as u32,
                generation_tokens: Some(tokens),
                // Grows from step to step and must not keep steps apart.
                generation_kv_tokens: Some(1_000 + at as u64),
                ..Batch::default()
            }),
            ..whole.clone()
        });
    }
    all
}

impl Made {
    fn against(&self, other: &Made, by: MatchBy) -> Diff {
        let (splits, comm) = self.analysed();
        let (other_splits, other_comm) = other.analysed();
        diff(
            &self.side("a", &splits, &comm),
            &other.side("b", &other_splits, &other_comm),
            by,
        )
        .unwrap()
    }

    fn analysed(&self) -> (Vec<LaneSplit>, Collectives) {
        let comm = pair_collectives(&self.trace, &self.classes, &self.steps).unwrap();
        let one = |lane| split(&self.trace, &self.classes, lane, Some(&comm)).unwrap();
        (self.steps.iter().map(one).collect(), comm)
    }

    fn side<'a>(
        &'a self,
        label: &'a str,
        splits: &'a [LaneSplit],
        comm: &'a Collectives,
    ) -> DiffSide<'a> {
        DiffSide {
            label,
            trace: &self.trace,
            classes: &self.classes,
            rules: RULES.hash(),
            steps: &self.steps,
            splits,
            collectives: Some(comm),
        }
    }
}

fn codes(diff: &Diff) -> Vec<&str> {
    diff.notes.iter().map(|n| n.code.as_str()).collect()
}

fn means(diff: &Diff, at: usize, part: Part) -> (f64, f64) {
    let row = diff.compared[at].row(part).unwrap();
    (row.a.unwrap().mean_ns, row.b.unwrap().mean_ns)
}

#[test]
fn a_slower_link_shows_in_service_and_not_in_wait() {
    // Rank 1 is 40 ns early, whatever the link.
    let fast = made(&[decode(16, 1_000, [100, 140], 10); 4], 2);
    let slow = made(&[decode(16, 1_000, [300, 340], 10); 6], 2);
    let found = fast.against(&slow, MatchBy::Batch);
    assert_eq!(found.compared.len(), 1);
    let kind = &found.compared[0];
    assert_eq!(
        (kind.kind, kind.matched_by),
        (StepKind::Decode, MatchBy::Batch)
    );
    assert_eq!(kind.batch.unwrap().generation_tokens, Some(16));
    assert_eq!((kind.a.gpus, kind.a.steps, kind.a.samples), (2, 4, 8));
    assert_eq!((kind.b.gpus, kind.b.steps, kind.b.samples), (2, 6, 12));
    assert_eq!(means(&found, 0, Part::CommService), (100.0, 300.0));
    assert_eq!(means(&found, 0, Part::CommWait), (20.0, 20.0));
    assert_eq!(means(&found, 0, Part::Group(Group::Comm)), (120.0, 320.0));
    assert_eq!(means(&found, 0, Part::Idle), (10.0, 10.0));
    let change = kind.row(Part::CommService).unwrap().change.unwrap();
    assert_eq!((change.mean_ns, change.mean_percent), (200.0, Some(200.0)));
    assert_eq!(change.is_shown(), Some(true));
    let idle = kind.row(Part::Idle).unwrap().change.unwrap();
    assert_eq!(
        (idle.mean_percent, idle.is_shown()),
        (Some(0.0), Some(false))
    );
    // What neither has is not listed, and nothing else differs.
    assert_eq!(kind.row(Part::Group(Group::Attention)), None);
    assert_eq!((found.differences.len(), codes(&found)), (0, vec![]));
}

#[test]
fn the_disjoint_parts_of_a_row_sum_to_the_step() {
    let a = made(
        &[
            decode(16, 1_000, [100, 140], 10),
            decode(16, 1_100, [90, 95], 3),
        ],
        2,
    );
    let found = a.against(&a, MatchBy::Batch);
    let kind = &found.compared[0];
    let sum: f64 = Part::all()
        .filter(|p| matches!(p, Part::Group(_) | Part::Idle))
        .filter_map(|p| Some(kind.row(p)?.a?.mean_ns))
        .sum();
    assert_eq!(
        Some(sum),
        kind.row(Part::Step).unwrap().a.map(|l| l.mean_ns)
    );
    assert!(kind.rows.iter().all(|r| r.change.unwrap().mean_ns == 0.0));
}

#[test]
fn batches_are_matched_and_the_rest_is_listed() {
    let mixed = Did {
        kind: StepKind::Mixed,
        ..decode(99, 5_000, [100, 100], 0)
    };
    let a = made(
        &[
            decode(16, 1_000, [100, 100], 0),
            decode(4, 500, [50, 50], 0),
            mixed,
        ],
        2,
    );
    let b = made(
        &[decode(4, 700, [50, 50], 0), decode(8, 600, [60, 60], 0)],
        2,
    );
    let found = a.against(&b, MatchBy::Batch);
    assert_eq!(found.compared.len(), 1);
    assert_eq!(means(&found, 0, Part::Group(Group::Linear)), (500.0, 700.0));
    let list: Vec<_> = found
        .unmatched
        .iter()
        .map(|u| {
            (
                u.side,
                u.kind,
                u.batch.unwrap().generation_tokens,
                u.count.samples,
            )
        })
        .collect();
    assert_eq!(
        list,
        [
            ('b', StepKind::Decode, Some(8), 2),
            ('a', StepKind::Decode, Some(16), 2),
            ('a', StepKind::Mixed, Some(99), 2),
        ]
    );
    // By kind the batch does not matter.
    let found = a.against(&b, MatchBy::Kind);
    assert_eq!(means(&found, 0, Part::Group(Group::Linear)), (750.0, 650.0));
    assert_eq!(
        (found.compared[0].batch, found.compared[0].matched_by),
        (None, MatchBy::Kind)
    );
    assert_eq!(found.unmatched.len(), 1);
}

#[test]
fn a_side_without_batches_is_matched_by_kind_and_says_so() {
    let blind = Did {
        tokens: None,
        ..decode(0, 900, [100, 100], 0)
    };
    let a = made(&[decode(16, 1_000, [100, 100], 0); 3], 2);
    let b = made(&[blind; 3], 2);
    let found = a.against(&b, MatchBy::Batch);
    assert_eq!(found.compared[0].matched_by, MatchBy::Kind);
    assert_eq!(codes(&found), ["batch_unknown"]);
}

#[test]
fn fr_20_fewer_ranks_are_a_difference_and_a_lower_bound() {
    let both = made(&[decode(16, 1_000, [100, 140], 10); 20], 2);
    let one = made(&[decode(16, 1_000, [100, 140], 10); 20], 1);
    let found = both.against(&one, MatchBy::Batch);
    let differ: Vec<_> = found
        .differences
        .iter()
        .map(|d| (d.what, d.a.as_str(), d.b.as_str()))
        .collect();
    assert_eq!(
        differ,
        [
            ("GPUs", "2", "1"),
            ("processes", "2", "1"),
            ("ranks that communicate", "2", "1")
        ]
    );
    assert_eq!(codes(&found), ["several_differences", "wait_lower_bound"]);
}

#[test]
fn nothing_in_common_is_said_and_is_no_table_of_zeros() {
    let a = made(&[decode(16, 1_000, [100, 100], 0)], 2);
    let b = made(&[decode(4, 500, [50, 50], 0)], 2);
    let found = a.against(&b, MatchBy::Batch);
    assert!(found.compared.is_empty());
    assert_eq!(
        (found.unmatched.len(), codes(&found)),
        (2, vec!["nothing_matched"])
    );
}

#[test]
fn other_rules_are_refused() {
    let made = made(&[decode(16, 1_000, [100, 100], 0)], 2);
    let (splits, comm) = made.analysed();
    let a = made.side("a", &splits, &comm);
    let b = DiffSide {
        rules: "0000000000000000",
        ..a
    };
    let error = diff(&a, &b, MatchBy::Batch).unwrap_err();
    assert!(
        error.to_string().contains("against 0000000000000000"),
        "{error}"
    );
}

#[test]
fn without_collectives_wait_and_service_are_not_known() {
    let made = made(&[decode(16, 1_000, [100, 140], 0); 2], 2);
    let steps = find_steps(&made.trace, &made.classes, &Default::default()).unwrap();
    let splits: Vec<_> = made
        .steps
        .iter()
        .map(|lane| split(&made.trace, &made.classes, lane, None).unwrap())
        .collect();
    let side = DiffSide {
        label: "a",
        trace: &made.trace,
        classes: &made.classes,
        rules: RULES.hash(),
        steps: &steps,
        splits: &splits,
        collectives: None,
    };
    let found = diff(&side, &side, MatchBy::Batch).unwrap();
    let row = |part| found.compared[0].row(part);
    assert_eq!(row(Part::CommService), None);
    assert_eq!(means(&found, 0, Part::Group(Group::Comm)), (120.0, 120.0));
}
