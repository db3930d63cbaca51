//! The draft model's passes as steps of their own.

use super::graph::{self, Launched};
use super::mark::scope;
use super::nvtx::THREAD;
use super::{Found, Start, StepKind, StepMethod, View};

/// Cuts each step at the first operation of its draft passes, where those are known: launched in the runner's scope
/// `draft`, or a smaller graph behind the target's.
pub(crate) fn cut(view: &View<'_>, found: &mut Found) {
    let firsts = match found.method {
        StepMethod::Nvtx => by_scope(view),
        StepMethod::GraphLaunch => by_graph(view),
        _ => return,
    };
    let mut cut = Vec::new();
    for at in firsts {
        let next = found.starts.partition_point(|s| s.at <= at);
        let Some(step) = next.checked_sub(1).map(|k| &found.starts[k]) else {
            continue;
        };
        if at < found.end && step.at < at && step.kind != StepKind::Draft {
            cut.push(Start::new(at, StepKind::Draft, step.confidence));
        }
    }
    // Several passes of one step are one draft step: the first of them, as long as no other start lies between.
    let mut starts = std::mem::take(&mut found.starts);
    starts.extend(cut);
    starts.sort_by_key(|s| s.at);
    starts.dedup_by(|later, earlier| {
        later.kind == StepKind::Draft && earlier.kind == StepKind::Draft
    });
    found.starts = starts;
}

/// First operation of each `draft` scope that launched kernels.
fn by_scope(view: &View<'_>) -> Vec<i64> {
    let id = view.lane.id;
    let scopes: Vec<_> = view
        .trace
        .marks
        .iter()
        .filter(|m| m.file == id.file && m.global_tid & !THREAD == id.global_pid)
        .filter(|m| scope(&m.text) == Some("draft"))
        .filter_map(|m| Some((m.start, m.end?, (m.global_tid & THREAD) as u32)))
        .collect();
    let mut firsts = vec![None; scopes.len()];
    let ops = &view.lane.ops;
    let mut hint = 0;
    for i in 0..ops.len() {
        if ops.stream(i) != view.main {
            continue;
        }
        let Some(launch) = view.launches.get(ops.corr(i), &mut hint) else {
            continue;
        };
        let at = scopes.partition_point(|s| s.0 <= launch.start);
        if let Some(at) = at.checked_sub(1)
            && launch.start <= scopes[at].1
            && launch.tid == scopes[at].2
        {
            firsts[at].get_or_insert(ops.start(i));
        }
    }
    firsts.into_iter().flatten().collect()
}

/// Starts of the graphs that are smaller than the target's.
fn by_graph(view: &View<'_>) -> Vec<i64> {
    let launched = graph::launches(view.lane);
    let Some(target) = graph::Target::of(&launched) else {
        return Vec::new();
    };
    launched
        .iter()
        .filter(|l| !target.matches(l))
        .map(|l: &Launched| l.start)
        .collect()
}
