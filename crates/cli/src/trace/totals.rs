//! Kernel time by name and by class, inside chosen steps.

use std::collections::BTreeMap;

use linktax_trace::{Class, Classes, Lane, NameId, OpKind, Step};

/// How often and how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Total {
    /// Operations that start in the steps.
    pub(crate) count: u64,
    /// Their durations, cut to the steps: one that reaches into another step counts there too.
    pub(crate) ns: u64,
}

/// Sums over the operations of chosen steps; those that overlap count twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) by_name: BTreeMap<NameId, Total>,
    pub(crate) by_class: BTreeMap<Class, Total>,
}

impl Totals {
    /// Adds the operations of a lane in `steps`, which are in time order and do not overlap.
    pub(crate) fn add(&mut self, lane: &Lane, classes: &Classes, steps: &[&Step]) {
        let mut first = 0;
        for op in lane.ops.iter() {
            // Operations come by their start, so a step that ended before this one ended before all that follow.
            while steps.get(first).is_some_and(|step| step.end <= op.start) {
                first += 1;
            }
            let class = classes.op(&op);
            for step in &steps[first..] {
                if step.start > op.start && step.start >= op.end() {
                    break;
                }
                let ns = overlap((op.start, op.end()), (step.start, step.end));
                let count = u64::from(op.start >= step.start);
                let add = |total: &mut Total| {
                    total.count += count;
                    total.ns += ns;
                };
                add(self.by_class.entry(class).or_default());
                if op.kind == OpKind::Kernel {
                    add(self.by_name.entry(op.name).or_default());
                }
            }
        }
    }

    /// Names with most time first.
    pub(crate) fn top(&self) -> Vec<(NameId, Total)> {
        let mut names: Vec<_> = self.by_name.iter().map(|(&id, &t)| (id, t)).collect();
        names.sort_by_key(|&(id, total)| (std::cmp::Reverse(total.ns), id));
        names
    }

    /// Kernel time of all names.
    pub(crate) fn kernel_ns(&self) -> u64 {
        self.by_name.values().map(|total| total.ns).sum()
    }
}

fn overlap(a: (i64, i64), b: (i64, i64)) -> u64 {
    let (start, end) = (a.0.max(b.0), a.1.min(b.1));
    u64::try_from(end.saturating_sub(start)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linktax_trace::{LaneId, Names, Op, Rules, StepKind, StepMethod};

    fn step(start: i64, end: i64) -> Step {
        Step {
            index: 0,
            start,
            end,
            kind: StepKind::Decode,
            method: StepMethod::Nvtx,
            confidence: 1.0,
            batch: None,
            label: None,
            overhead_ns: 0,
        }
    }

    #[test]
    fn fr_19_a_kernel_over_a_boundary_counts_once_and_its_time_in_both_steps() {
        let mut names = Names::default();
        let name = names.push("nvjet_x", "nvjet_x");
        let op = |start, dur, kind| Op {
            start,
            dur,
            name,
            stream: 7,
            corr: 0,
            node: 0,
            bytes: 0,
            kind,
        };
        let lane = Lane {
            id: LaneId {
                file: 0,
                global_pid: 0,
                device: 0,
            },
            pid: 0,
            gpu: linktax_trace::Gpu::default(),
            ops: [
                op(0, 1, OpKind::Kernel),
                op(8, 5, OpKind::Kernel),
                op(19, 3, OpKind::Memset),
                op(40, 1, OpKind::Kernel),
            ]
            .into_iter()
            .collect(),
        };
        let classes = Classes::of(&names, &Rules::embedded());
        let steps = [step(0, 10), step(10, 20), step(20, 30)];
        let total = |chosen: &[&Step]| {
            let mut totals = Totals::default();
            totals.add(&lane, &classes, chosen);
            (totals.by_name[&name], totals.by_class)
        };
        let (first, _) = total(&[&steps[0]]);
        assert_eq!((first.count, first.ns), (2, 1 + 2));
        let (second, _) = total(&[&steps[1]]);
        assert_eq!((second.count, second.ns), (0, 3));
        let (all, classes) = total(&[&steps[0], &steps[1], &steps[2]]);
        assert_eq!((all.count, all.ns), (2, 6));
        let memset = classes[&Class::MEMSET];
        assert_eq!((memset.count, memset.ns), (1, 3));
    }
}
