//! Pauses in which nothing was launched: no request was there, so they are no step's time.

use super::{Found, Start, StepKind, View};

/// The shortest pause that is one; and it lasts several steps.
const SHORTEST_NS: u64 = 100_000_000;
const STEPS: u64 = 5;

/// Cuts the pause off the end of the step before it.
pub(crate) fn cut(view: &View<'_>, found: &mut Found) {
    let threshold = found
        .median_step()
        .map_or(SHORTEST_NS, |m| (m * STEPS).max(SHORTEST_NS));
    let launches = view.launches.launches();
    if launches.is_empty() {
        return;
    }
    let ops = &view.lane.ops;
    let mut pauses = Vec::new();
    let mut busy_until = i64::MIN;
    for i in 0..ops.len() {
        let start = ops.start(i);
        if busy_until != i64::MIN && start.saturating_sub(busy_until) > threshold as i64 {
            let next = launches.partition_point(|l| l.start < busy_until);
            let launched = launches.get(next).map_or(i64::MAX, |l| l.start);
            if launched.saturating_sub(busy_until) > threshold as i64 {
                pauses.push((busy_until, start));
            }
        }
        busy_until = busy_until.max(ops.end(i));
    }
    for (from, to) in pauses {
        let next = found.starts.partition_point(|s| s.at < to);
        let ends_a_step = found.starts.get(next).is_some_and(|s| s.at == to);
        if ends_a_step && next > 0 && found.starts[next - 1].at < from {
            let sure = found.starts[next - 1].confidence;
            found
                .starts
                .insert(next, Start::new(from, StepKind::Idle, sure));
        }
    }
}
