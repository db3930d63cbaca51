use std::sync::OnceLock;

use proptest::prelude::*;

use super::*;
use crate::classify::{Group, Rules};
use crate::collectives::pair_collectives;
use crate::split::split;
use crate::{CollectiveOp, Lane, LaneId, NameId, Names, Op, OpKind};

const GEMM: NameId = NameId(0);
const REDUCE: NameId = NameId(1);
const FUSED: NameId = NameId(2);

/// What one collective is, and what each rank computes before it.
#[derive(Clone, Debug)]
struct Call {
    segs: Vec<u64>,
    service: u64,
    name: NameId,
}

/// Ranks that meet in every collective and leave it at the same instant, each on a clock of its own.
fn ranks(calls: &[Call], clocks: &[i64]) -> Trace {
    let mut names = Names::default();
    names.push("nvjet_tst_64x16_64x16_4x1_v_bz_TNT", "nvjet");
    names.push(
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    );
    let fused = "flashinfer::gemm_allreduce_two_shot_PersistentDenseGemmKernel";
    names.push(fused, fused);
    let op = |start: i64, end: i64, name, stream| Op {
        start,
        dur: end.abs_diff(start),
        name,
        stream,
        corr: 0,
        node: 0,
        bytes: 0,
        kind: OpKind::Kernel,
    };
    let lanes = clocks.iter().enumerate().map(|(rank, &clock)| {
        let mut now = 0;
        let mut ops = Vec::new();
        for call in calls {
            let arrive = now + call.segs[rank] as i64;
            let all_there = now + call.segs.iter().copied().max().unwrap_or(0) as i64;
            let end = all_there + call.service as i64;
            ops.push(op(now + clock, arrive + clock, GEMM, 7));
            ops.push(op(arrive + clock, end + clock, call.name, 7));
            now = end;
        }
        Lane {
            id: LaneId {
                file: 0,
                global_pid: (rank as i64 + 1) << 24,
                device: 0,
            },
            pid: rank as u32 + 1,
            gpu: crate::Gpu::default(),
            ops: ops.into_iter().collect(),
        }
    });
    Trace {
        names,
        lanes: lanes.collect(),
        ..Trace::default()
    }
}

struct Run {
    trace: Trace,
    classes: Classes,
    steps: Vec<LaneSteps>,
}

impl Run {
    fn new(trace: Trace) -> Self {
        // Every trace here has the same names, and the rules take a while to compile.
        static CLASSES: OnceLock<Classes> = OnceLock::new();
        let classes = CLASSES
            .get_or_init(|| Classes::of(&trace.names, &Rules::embedded()))
            .clone();
        let steps = (0..trace.lanes.len())
            .filter_map(|lane| LaneSteps::whole(&trace, lane))
            .collect();
        Run {
            trace,
            classes,
            steps,
        }
    }

    fn group(&self) -> CommGroup {
        let paired = pair_collectives(&self.trace, &self.classes, &self.steps).unwrap();
        assert_eq!(paired.groups.len(), 1);
        paired.groups.into_iter().next().unwrap()
    }

    fn replay(&self, scenarios: &[Scenario], options: ReplayOptions<'_>) -> Replay {
        let options = ReplayOptions {
            scenarios: scenarios.to_vec(),
            ..options
        };
        replay(
            &self.trace,
            &self.classes,
            &self.steps,
            &self.group(),
            &options,
        )
        .unwrap()
    }
}

fn call(segs: &[u64], service: u64, name: NameId) -> Call {
    Call {
        segs: segs.to_vec(),
        service,
        name,
    }
}

const COMM: fn(f64) -> Scenario = |factor| Scenario::Communication { factor };

#[test]
fn waiting_does_not_vanish_with_a_faster_link() {
    // Rank 1 is late by 100 each time: rank 0 "communicates" for 150, of which 50 are transfer.
    let calls = vec![call(&[100, 200], 50, REDUCE); 3];
    let run = Run::new(ranks(&calls, &[0, 0]));
    let scenarios = [COMM(2.0), COMM(f64::INFINITY), Scenario::NoStraggler];
    let out = run.replay(&scenarios, ReplayOptions::default());
    assert_eq!(
        (out.measured_ns, out.replayed_ns, out.collectives),
        (500, 500, 2)
    );
    let times: Vec<_> = out.projections.iter().map(|p| p.time_ns.unwrap()).collect();
    assert_eq!(times, [450.0, 400.0, 400.0]);
    // Plain Amdahl promises rank 0 twice as much as there is.
    let amdahl = out.projections[1].amdahl_ns.as_ref().unwrap();
    assert_eq!(amdahl, &[200.0, 400.0]);
    assert_eq!(
        (out.critical_ns, out.exposed_ns),
        (vec![0, 400], vec![300, 100])
    );
    let group = run.group();
    assert_eq!(group.caused_ns, [0, 300]);
    assert_eq!(
        group.collectives[0].operation,
        Some(CollectiveOp::AllReduce)
    );
}

#[test]
fn bandwidth_leaves_the_fixed_cost_of_a_message() {
    // 20 ns a message and 1 ns a byte; the sizes are known from elsewhere.
    let calls: Vec<Call> = [30u64, 80, 30, 80]
        .iter()
        .map(|bytes| call(&[100, 100], 20 + bytes, REDUCE))
        .collect();
    let run = Run::new(ranks(&calls, &[0, 0]));
    let sizes: Vec<Sized> = [30, 80, 30, 80]
        .into_iter()
        .enumerate()
        .map(|(collective, bytes)| Sized {
            collective,
            bytes,
            bus_bytes_per_second: 0.0,
        })
        .collect();
    let scenario = [Scenario::Bandwidth { factor: 2.0 }];
    let fitted = run.replay(
        &scenario,
        ReplayOptions {
            sizes: &sizes,
            ..ReplayOptions::default()
        },
    );
    let expected = 300.0 + 3.0 * 20.0 + (80.0 + 30.0 + 80.0) / 2.0;
    assert!((fitted.projections[0].time_ns.unwrap() - expected).abs() < 1e-6);
    let given = run.replay(
        &scenario,
        ReplayOptions {
            alpha_ns: Some(20.0),
            ..ReplayOptions::default()
        },
    );
    assert_eq!(given.projections[0].time_ns, Some(expected));
    let one_size = run.replay(
        &scenario,
        ReplayOptions {
            sizes: &sizes[..1],
            ..ReplayOptions::default()
        },
    );
    assert_eq!(one_size.projections[0].time_ns, None);
    let reason = one_size.projections[0].reason.as_ref().unwrap();
    assert!(reason.contains("1 distinct message size"), "{reason}");
}

#[test]
fn faster_kernels_shorten_the_slowest_rank_only_as_far_as_it_has_them() {
    let calls = vec![call(&[100, 200], 50, REDUCE); 2];
    let run = Run::new(ranks(&calls, &[0, 0]));
    let compute = |group| Scenario::Compute { group, factor: 2.0 };
    let scenarios = [compute(Group::Linear), compute(Group::Attention)];
    let out = run.replay(&scenarios, ReplayOptions::default());
    let times: Vec<_> = out.projections.iter().map(|p| p.time_ns.unwrap()).collect();
    assert_eq!(times, [150.0, 250.0]);
}

#[test]
fn a_product_fused_with_its_collective_takes_no_factor() {
    let calls = [
        call(&[10, 10], 5, REDUCE),
        call(&[10, 10], 40, FUSED),
        call(&[10, 10], 5, REDUCE),
    ];
    let run = Run::new(ranks(&calls, &[0, 0]));
    assert_eq!(run.classes.name(FUSED), Class::COMM_FUSED_GEMM);
    let out = run.replay(&[COMM(f64::INFINITY)], ReplayOptions::default());
    assert_eq!(out.replayed_ns, 65);
    assert_eq!(out.projections[0].time_ns, Some(60.0));
    assert_eq!(out.notes[0].code, "fused_gemm");
}

#[test]
fn compute_under_a_collective_stays_when_the_link_gets_faster() {
    let mut trace = ranks(&vec![call(&[100, 100], 50, REDUCE); 2], &[0, 0]);
    for lane in &mut trace.lanes {
        let beside = Op {
            start: 265,
            dur: 30,
            stream: 9,
            ..lane.ops.get(0)
        };
        lane.ops = lane.ops.iter().chain([beside]).collect();
    }
    let run = Run::new(trace);
    let out = run.replay(&[COMM(f64::INFINITY)], ReplayOptions::default());
    assert_eq!((out.replayed_ns, out.exposed_ns[0]), (150, 20));
    assert_eq!(out.projections[0].time_ns, Some(130.0));
}

#[test]
fn ranks_that_do_not_leave_together_are_refused() {
    // Each is slow in turn, and neither waits for the other: these are no barriers.
    let mut trace = ranks(&vec![call(&[100, 100], 200, REDUCE); 8], &[0, 0]);
    for (rank, lane) in trace.lanes.iter_mut().enumerate() {
        let mut now = 0;
        let mut ops = Vec::new();
        for (at, op) in lane.ops.iter().enumerate() {
            let slow = (at / 2 + rank) % 2 == 0;
            let dur = match op.name {
                REDUCE => 200,
                _ if slow => 100,
                _ => 10,
            };
            ops.push(Op {
                start: now,
                dur,
                ..op
            });
            now += dur as i64;
        }
        lane.ops = ops.into_iter().collect();
    }
    let run = Run::new(trace);
    let options = ReplayOptions::default();
    let refused = replay(&run.trace, &run.classes, &run.steps, &run.group(), &options);
    let Err(TraceError::ReplayMismatch {
        replayed_ns,
        measured_ns,
    }) = refused
    else {
        panic!("{refused:?}");
    };
    // Rank 0 is the slower one in three of the seven, rank 1 in four.
    assert_eq!((replayed_ns, measured_ns), (7 * 300, 4 * 300 + 3 * 210));
}

fn any_calls() -> impl Strategy<Value = (Vec<Call>, Vec<i64>)> {
    (2usize..5).prop_flat_map(|ranks| {
        let segs = proptest::collection::vec(1_000u64..50_000, ranks);
        let one =
            (segs, 100_000u64..200_000).prop_map(|(segs, service)| call(&segs, service, REDUCE));
        let clocks = proptest::collection::vec(-20_000i64..20_000, ranks);
        (proptest::collection::vec(one, 2..12), clocks)
    })
}

proptest! {
    #[test]
    fn ranks_that_meet_replay_to_the_nanosecond((calls, clocks) in any_calls()) {
        let run = Run::new(ranks(&calls, &clocks));
        let group = run.group();
        let scenarios = [COMM(1.0), COMM(2.0), COMM(4.0), COMM(f64::INFINITY), Scenario::NoStraggler];
        let out = run.replay(&scenarios, ReplayOptions::default());
        let slowest: u64 = calls[1..].iter().map(|c| c.segs.iter().max().unwrap()).sum();
        let service: u64 = calls[1..].iter().map(|c| c.service).sum();
        prop_assert_eq!(out.replayed_ns, out.measured_ns);
        prop_assert_eq!(out.replayed_ns as u64, slowest + service);
        let times: Vec<f64> = out.projections.iter().map(|p| p.time_ns.unwrap()).collect();
        prop_assert_eq!(times[0], out.replayed_ns as f64);
        prop_assert!(times.windows(2).take(3).all(|w| w[0] >= w[1]), "faster links never hurt");
        prop_assert_eq!(times[3], slowest as f64);
        prop_assert!(times[4] <= times[0], "equal ranks never hurt");
        prop_assert_eq!(out.critical_ns.iter().sum::<i64>() as u64, slowest);
        // Each rank's wait is what it came too early, whatever its clock says.
        for (at, (found, call)) in group.collectives.iter().zip(&calls).enumerate() {
            prop_assert_eq!(found.service, call.service);
            let late = call.segs.iter().max().unwrap();
            for (part, seg) in group.parts(at).iter().zip(&call.segs) {
                prop_assert_eq!(part.wait, late - seg);
            }
        }
        for (rank, clock) in group.clock.iter().enumerate() {
            if let Some(clock) = clock {
                prop_assert_eq!(clock.offset_ns, clocks[0] - clocks[rank]);
            }
        }
        // The split of each lane knows the same.
        let collectives = pair_collectives(&run.trace, &run.classes, &run.steps).unwrap();
        for (rank, steps) in run.steps.iter().enumerate() {
            let split = split(&run.trace, &run.classes, steps, Some(&collectives)).unwrap();
            let (total, _) = split.total(|_| true);
            prop_assert_eq!(total.comm_wait_ns, Some(group.wait_ns(rank)));
            prop_assert_eq!(total.comm_service_ns, Some(group.service_ns()));
        }
    }
}
