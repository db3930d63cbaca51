use proptest::prelude::*;

use super::*;
use crate::split::{Buckets, ByGroup, CommTime};
use crate::{Group, NameId, OpKind};

/// An operation of an activity, hidden in its name.
fn op(start: i64, dur: u64, activity: Activity, wait: u64) -> Op {
    Op {
        start,
        dur,
        name: NameId(activity as u32),
        stream: 7,
        corr: 0,
        node: wait,
        bytes: 0,
        kind: OpKind::Kernel,
    }
}

fn part(_: usize, op: &Op) -> Part {
    Part {
        activity: Activity::ALL[op.name.0 as usize],
        wait: op.node,
    }
}

fn run(ops: &[Op], windows: &[(i64, i64)]) -> (Vec<Swept>, Vec<Gap>) {
    let ops: Ops = ops.iter().copied().collect();
    let mut gaps = Vec::new();
    let swept = sweep(&ops, windows, part, |gap| gaps.push(gap));
    (swept, gaps)
}

/// The set at every elementary interval, found by looking at every operation.
fn oracle(ops: &[Op], window: (i64, i64)) -> Vec<(Mask, u64)> {
    let mut pieces = Vec::new();
    for op in ops {
        let Part { activity, wait } = part(0, op);
        let served = op.start + wait.min(op.dur) as i64;
        if activity == Activity::CommService {
            pieces.push((op.start, served, Activity::CommWait));
            pieces.push((served, op.end(), activity));
        } else {
            pieces.push((op.start, op.end(), activity));
        }
    }
    let mut cuts: Vec<i64> = pieces.iter().flat_map(|p| [p.0, p.1]).collect();
    cuts.extend([window.0, window.1]);
    cuts.retain(|c| (window.0..=window.1).contains(c));
    cuts.sort_unstable();
    cuts.dedup();
    let mut histogram = std::collections::BTreeMap::new();
    for cut in cuts.windows(2) {
        let mask = pieces
            .iter()
            .filter(|p| p.0 <= cut[0] && p.1 >= cut[1])
            .fold(0, |mask, p| mask | Mask::of(p.2).0);
        *histogram.entry(Mask(mask)).or_insert(0) += cut[1].abs_diff(cut[0]);
    }
    histogram.into_iter().collect()
}

const MS: i64 = 1_000_000;

#[test]
fn fr_15_overlapping_kernels_are_not_summed_into_the_wall() {
    let ops = [
        op(0, 100 * MS as u64, Activity::Linear, 0),
        op(60 * MS, 70 * MS as u64, Activity::CommService, 0),
    ];
    let (swept, gaps) = run(&ops, &[(0, 130 * MS)]);
    let ms = |ns: u64| ns / MS as u64;
    let buckets = Buckets::of(&swept[0].histogram, false);
    assert_eq!(ms(buckets.linear_ns), 100);
    assert_eq!((ms(buckets.comm_ns), buckets.idle_ns), (30, 0));
    assert_eq!(ms(buckets.total()), 130);
    let comm = CommTime::of(&swept[0].histogram, false);
    assert_eq!(
        [comm.total_ns, comm.overlapped_ns, comm.exposed_ns].map(ms),
        [70, 40, 30]
    );
    assert_eq!(ms(ByGroup::summed(&swept[0].summed).total()), 170);
    assert_eq!(
        ms(ByGroup::unioned(&swept[0].histogram).get(Group::Comm)),
        70
    );
    assert!(gaps.is_empty());
}

#[test]
fn fr_19_a_kernel_across_a_boundary_is_clipped() {
    let ops = [op(8 * MS, 5 * MS as u64, Activity::Attention, 0)];
    let (swept, _) = run(&ops, &[(0, 10 * MS), (10 * MS, 20 * MS)]);
    let attention = |k: usize| Buckets::of(&swept[k].histogram, false).attention_ns / MS as u64;
    assert_eq!((attention(0), attention(1)), (2, 3));
    let summed = |k: usize| swept[k].summed[Activity::Attention as usize] / MS as u64;
    assert_eq!((summed(0), summed(1)), (2, 3));
    assert_eq!((swept[0].ops, swept[1].ops), (1, 0));
}

#[test]
fn idle_stretches_know_their_neighbours() {
    let ops = [
        op(0, 10, Activity::Linear, 0),
        op(2, 3, Activity::Copy, 0),
        op(15, 5, Activity::Linear, 0),
    ];
    let (_, gaps) = run(&ops, &[(0, 12), (12, 30)]);
    let seen: Vec<_> = gaps
        .iter()
        .map(|g| (g.window, g.start, g.end, g.closes, g.prev, g.next))
        .collect();
    assert_eq!(
        seen,
        [
            (0, 10, 12, true, Some(0), Some(2)),
            (1, 12, 15, false, Some(0), Some(2)),
            (1, 20, 30, true, Some(2), None),
        ]
    );
}

#[test]
fn waiting_comes_before_service_in_a_collective() {
    let ops = [
        op(0, 10, Activity::CommService, 6),
        op(4, 4, Activity::Linear, 0),
    ];
    let (swept, _) = run(&ops, &[(0, 10)]);
    let buckets = Buckets::of(&swept[0].histogram, true);
    assert_eq!((buckets.linear_ns, buckets.comm_wait_ns), (4, Some(4)));
    assert_eq!(buckets.comm_service_ns, Some(2));
    let comm = CommTime::of(&swept[0].histogram, true);
    assert_eq!((comm.wait_ns, comm.service_ns), (Some(6), Some(4)));
    assert_eq!(swept[0].summed[Activity::CommWait as usize], 6);
}

fn any_ops() -> impl Strategy<Value = Vec<Op>> {
    let any_op = (
        -50i64..400,
        0u64..120,
        0usize..Activity::ALL.len(),
        0u64..60,
    );
    let any_op = any_op.prop_map(|(start, dur, activity, wait)| {
        // Waiting is a phase of a service, not an operation of its own.
        let activity = match Activity::ALL[activity] {
            Activity::CommWait => Activity::CommService,
            other => other,
        };
        op(start, dur, activity, wait)
    });
    proptest::collection::vec(any_op, 0..40)
}

fn any_windows() -> impl Strategy<Value = Vec<(i64, i64)>> {
    proptest::collection::btree_set(-60i64..500, 2..12).prop_flat_map(|cuts| {
        let cuts: Vec<i64> = cuts.into_iter().collect();
        let windows: Vec<_> = cuts.windows(2).map(|w| (w[0], w[1])).collect();
        let holes = proptest::collection::vec(any::<bool>(), windows.len());
        holes.prop_map(move |keep| {
            let kept = windows.iter().zip(keep).filter(|(_, keep)| *keep);
            kept.map(|(w, _)| *w).collect()
        })
    })
}

proptest! {
    #[test]
    fn the_sweep_agrees_with_looking_at_everything(ops in any_ops(), windows in any_windows()) {
        let (swept, _) = run(&ops, &windows);
        prop_assert_eq!(swept.len(), windows.len());
        for (swept, &window) in swept.iter().zip(&windows) {
            prop_assert_eq!(&swept.histogram, &oracle(&ops, window));
        }
    }

    #[test]
    fn buckets_sum_and_unions_stay_below_sums(ops in any_ops(), windows in any_windows()) {
        let (swept, gaps) = run(&ops, &windows);
        let mut clipped = 0;
        for (at, (swept, &(start, end))) in swept.iter().zip(&windows).enumerate() {
            let buckets = Buckets::of(&swept.histogram, true);
            prop_assert_eq!(buckets.total(), end.abs_diff(start));
            let idle: u64 = gaps.iter().filter(|g| g.window == at).map(|g| g.end.abs_diff(g.start)).sum();
            prop_assert_eq!(buckets.idle_ns, idle);
            let (summed, unioned) = (ByGroup::summed(&swept.summed), ByGroup::unioned(&swept.histogram));
            let comm = CommTime::of(&swept.histogram, true);
            for group in Group::ALL {
                prop_assert!(unioned.get(group) <= summed.get(group));
                prop_assert!(buckets.get(group) <= unioned.get(group));
            }
            prop_assert!(comm.exposed_ns <= comm.total_ns);
            prop_assert_eq!(comm.exposed_ns + comm.overlapped_ns, comm.total_ns);
            prop_assert_eq!(comm.wait_ns.unwrap() + comm.service_ns.unwrap(), comm.total_ns);
            prop_assert_eq!(comm.exposed_ns, buckets.comm_ns);
            clipped += summed.total();
        }
        let whole: u64 = ops.iter().map(|o| windows.iter().map(|w| {
            (o.end().min(w.1) - o.start.max(w.0)).max(0) as u64
        }).sum::<u64>()).sum();
        prop_assert_eq!(clipped, whole);
    }

    #[test]
    fn the_order_of_rows_never_matters(
        (ops, shuffled) in any_ops().prop_flat_map(|ops| (Just(ops.clone()), Just(ops).prop_shuffle())),
        windows in any_windows(),
    ) {
        prop_assert_eq!(run(&ops, &windows), run(&shuffled, &windows));
    }
}
