//! The truth of a recording, by unions of intervals: another algorithm than the analysis uses, on purpose.

use std::collections::BTreeMap;

use super::catalog::Role;
use super::program::{Load, StepProgram};
use super::record::{Kind, Rec, Recorded};
use super::schedule::Schedule;
use super::spec::{GraphMode, PhaseKind, Spec};
use super::truth::{BatchTruth, CollectiveTruth, LaneTruth, StepTruth, Truth, TruthVerdict};

/// Version of the truth's layout.
const VERSION: u32 = 1;

/// The truth of a recording; `repeats` and `period` say how often it is written.
pub(crate) fn truth(
    spec: &Spec,
    steps: &[StepProgram],
    schedule: Schedule,
    recorded: &[Recorded],
    (repeats, period_ns): (u64, u64),
) -> Truth {
    let kernels: usize = recorded
        .iter()
        .flat_map(|lane| &lane.recs)
        .filter(|rec| matches!(rec.kind, Kind::Kernel(_)))
        .count();
    let collectives = schedule.collectives;
    Truth {
        version: VERSION,
        seed: spec.seed,
        verdict: verdict(spec),
        ranks_align: spec.faults.missing_collective.is_none()
            && recorded.len() as u32 == spec.ranks(),
        repeats,
        period_ns: if repeats > 1 { period_ns } else { 0 },
        kernel_rows: kernels as u64 * repeats,
        secrets: spec.secrets.clone(),
        lanes: recorded
            .iter()
            .map(|lane| {
                let period = (repeats > 1).then_some(period_ns);
                lane_truth(spec, steps, lane, &collectives, period)
            })
            .collect(),
        collectives,
    }
}

fn verdict(spec: &Spec) -> TruthVerdict {
    let modes = || {
        spec.phase
            .iter()
            .map(|phase| phase.graph.unwrap_or(spec.graph.mode))
    };
    if modes().any(|m| m == GraphMode::GraphNoTable) {
        TruthVerdict::InvisibleGraphs
    } else if modes().any(|m| matches!(m, GraphMode::Graph | GraphMode::MixedLevel)) {
        TruthVerdict::OpaqueGraphs
    } else {
        TruthVerdict::Splittable
    }
}

fn lane_truth(
    spec: &Spec,
    steps: &[StepProgram],
    lane: &Recorded,
    collectives: &[CollectiveTruth],
    period: Option<u64>,
) -> LaneTruth {
    let at = |list: &[i64]| list.get(lane.rank as usize).copied().unwrap_or(0);
    let recs: Vec<&Rec> = lane.recs.iter().filter(|rec| !rec.unfinished).collect();
    let by_step: Vec<&[&Rec]> = recs.chunk_by(|a, b| a.step == b.step).collect();
    let starts: Vec<i64> = by_step
        .iter()
        .map(|ops| ops.iter().map(|op| op.start).min().unwrap_or_default())
        .collect();
    let finish = match (period, starts.first()) {
        (Some(period), Some(first)) => first + period as i64,
        _ => recs.iter().map(|rec| rec.end).max().unwrap_or_default(),
    };
    let steps = by_step
        .iter()
        .enumerate()
        .map(|(i, ops)| {
            let end = starts.get(i + 1).copied().unwrap_or(finish);
            let index = ops.first().map_or(0, |op| op.step);
            let mut truth = step_truth(&steps[index as usize], index, starts[i], end, ops);
            add_collectives(&mut truth, lane, spec.parallel.tensor, collectives);
            truth
        })
        .collect();
    LaneTruth {
        rank: lane.rank,
        communicator: lane.communicator,
        pid: lane.pid,
        global_pid: lane.global_pid,
        device: lane.device,
        clock_offset_ns: at(&spec.clock.offset_ns),
        clock_drift_ns_per_s: at(&spec.clock.drift_ns_per_s),
        steps,
    }
}

fn add_collectives(
    step: &mut StepTruth,
    lane: &Recorded,
    tensor: u32,
    collectives: &[CollectiveTruth],
) {
    let rank = (lane.rank % tensor) as usize;
    let from =
        collectives.partition_point(|c| (c.communicator, c.step) < (lane.communicator, step.index));
    for collective in collectives[from..]
        .iter()
        .take_while(|c| (c.communicator, c.step) == (lane.communicator, step.index))
    {
        step.service_ns += collective.service_ns;
        step.wait_ns += collective.wait_ns.get(rank).copied().unwrap_or(0);
    }
}

fn step_truth(
    program: &StepProgram,
    index: u32,
    start_ns: i64,
    end_ns: i64,
    ops: &[&Rec],
) -> StepTruth {
    let count = |role: Role| ops.iter().filter(|op| op.role == Some(role)).count() as u32;
    let clip = |op: &&Rec| {
        (
            op.start.clamp(start_ns, end_ns),
            op.end.clamp(start_ns, end_ns),
        )
    };
    let union_of = |wanted: &dyn Fn(&str) -> bool| {
        union(
            ops.iter()
                .filter(|op| wanted(op.kind.class()))
                .map(clip)
                .collect(),
        )
    };
    let mut class_sum_ns = BTreeMap::new();
    for op in ops {
        let (from, to) = clip(op);
        *class_sum_ns.entry(op.kind.class().to_owned()).or_default() += from.abs_diff(to);
    }
    let class_union_ns = class_sum_ns
        .keys()
        .map(|class: &String| (class.clone(), union_of(&|c| c == class)))
        .collect();
    let compute_ns = union_of(&is_compute);
    let kernels = union_of(&|c| is_compute(c) || is_comm(c));
    let named = union_of(&|c| c != "graph");
    let all = union_of(&|_| true);
    let length = start_ns.abs_diff(end_ns);
    StepTruth {
        index,
        start_ns,
        end_ns,
        kind: kind(program.kind).to_owned(),
        batch: batch(&program.load),
        class_sum_ns,
        class_union_ns,
        together_ns: together(start_ns, end_ns, ops),
        compute_ns,
        comm_ns: union_of(&is_comm),
        exposed_comm_ns: kernels - compute_ns,
        copy_ns: named - kernels,
        opaque_ns: all - named,
        idle_ns: length - all,
        wait_ns: 0,
        service_ns: 0,
        all_reduces: count(Role::AllReduce),
        all_gathers: count(Role::AllGather),
        ops: ops.len() as u32,
    }
}

fn kind(kind: PhaseKind) -> &'static str {
    match kind {
        PhaseKind::Decode => "decode",
        PhaseKind::Mixed => "mixed",
        PhaseKind::Prefill => "prefill",
    }
}

fn batch(load: &Load) -> BatchTruth {
    BatchTruth {
        prefill_requests: load.prefill_requests,
        prefill_tokens: load.prefill_tokens,
        decode_requests: load.decode_requests,
        decode_tokens: load.decode_tokens,
    }
}

fn is_comm(class: &str) -> bool {
    class.starts_with("comm")
}

fn is_compute(class: &str) -> bool {
    !is_comm(class) && class != "copy" && class != "graph"
}

/// Length of the union of intervals.
fn union(mut intervals: Vec<(i64, i64)>) -> u64 {
    intervals.sort_unstable();
    let mut total = 0;
    let mut reached = i64::MIN;
    for (start, end) in intervals {
        let from = start.max(reached);
        if end > from {
            total += from.abs_diff(end);
            reached = end;
        }
    }
    total
}

/// The partition of a step by the set of classes that run.
fn together(start: i64, end: i64, ops: &[&Rec]) -> BTreeMap<String, u64> {
    let mut turns: Vec<(i64, &'static str, i32)> = ops
        .iter()
        .flat_map(|op| {
            [
                (op.start, op.kind.class(), 1),
                (op.end, op.kind.class(), -1),
            ]
        })
        .collect();
    turns.sort_unstable_by_key(|turn| turn.0);
    let mut running: BTreeMap<&'static str, i32> = BTreeMap::new();
    let mut times = BTreeMap::new();
    let mut now = start;
    let mut spend = |running: &BTreeMap<&'static str, i32>, now: i64, next: i64| {
        if next > now {
            let classes: Vec<&str> = running.keys().copied().collect();
            let key = if classes.is_empty() {
                "idle".to_owned()
            } else {
                classes.join("+")
            };
            *times.entry(key).or_default() += now.abs_diff(next);
        }
    };
    for (at, class, change) in turns {
        let at = at.clamp(start, end);
        spend(&running, now, at);
        now = now.max(at);
        let count = running.entry(class).or_default();
        *count += change;
        if *count == 0 {
            running.remove(class);
        }
    }
    spend(&running, now, end);
    times
}
