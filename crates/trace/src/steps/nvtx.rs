//! Steps from the engine's NVTX marks, attributed by launch.

use linktax_records::Note;

use super::mark::{StepMark, parse_step_mark};
use super::{Found, Start, StepMethod, View};
use crate::Mark;

/// The thread bits of a `globalTid`.
pub(crate) const THREAD: i64 = 0xFF_FFFF;

/// What the operations of one marked step amount to.
#[derive(Clone, Copy, Default)]
struct Owned {
    first_main: Option<i64>,
    first: Option<i64>,
    end: i64,
    ops: u64,
}

impl Owned {
    fn start(&self) -> Option<i64> {
        self.first_main.or(self.first)
    }
}

pub(crate) fn find(view: &View<'_>, notes: &mut Vec<Note>) -> Option<Found> {
    let (thread, marks) = step_marks(view)?;
    if view.launches.launches().is_empty() {
        notes.push(Note::new(
            "nvtx_without_launches",
            "step marks are there but no launch calls (API trace off?), so they cannot be tied to GPU work",
        ));
        return None;
    }
    let owned = owned(view, thread, &marks);
    let mut starts = Vec::with_capacity(marks.len());
    let mut end = i64::MIN;
    let (mut empty, mut disordered) = (0, 0);
    for ((mark, parsed), owned) in marks.iter().zip(&owned) {
        let Some(at) = owned.start() else {
            empty += 1;
            continue;
        };
        if starts.last().is_some_and(|last: &Start| last.at >= at) {
            disordered += 1;
            continue;
        }
        starts.push(Start {
            batch: parsed.batch,
            label: Some(mark.text.clone()),
            ..Start::new(at, parsed.kind, 0.0)
        });
        end = owned.end;
    }
    let kept = starts.len() as f64 / marks.len() as f64;
    if starts.is_empty() || kept < 0.5 && empty > disordered + 1 {
        notes.push(Note::new(
            "marks_without_operations",
            format!(
                "{empty} of {} marked steps launched nothing that left a GPU row",
                marks.len()
            ),
        ));
        if starts.is_empty() {
            return None;
        }
    }
    let confidence = kept * attributed(view, &owned, starts.first()?.at, end);
    starts.iter_mut().for_each(|s| s.confidence = confidence);
    let mut found = Found {
        method: StepMethod::Nvtx,
        confidence,
        starts,
        end,
        notes: Vec::new(),
    };
    add_notes(view, &mut found, &marks, empty, disordered);
    Some(found)
}

/// The marks of this lane's process on the thread that has the most of them, nested ones left out.
fn step_marks<'a>(view: &View<'a>) -> Option<(u32, Vec<(&'a Mark, StepMark)>)> {
    let id = view.lane.id;
    let mut threads = std::collections::BTreeMap::<u32, Vec<(&Mark, StepMark)>>::new();
    for mark in &view.trace.marks {
        if mark.file != id.file || mark.global_tid & !THREAD != id.global_pid {
            continue;
        }
        let Some(parsed) = parse_step_mark(&mark.text) else {
            continue;
        };
        let tid = (mark.global_tid & THREAD) as u32;
        let marks = threads.entry(tid).or_default();
        let nested = marks
            .last()
            .is_some_and(|(last, _)| last.end.is_some_and(|end| mark.start < end));
        if !nested {
            marks.push((mark, parsed));
        }
    }
    threads
        .into_iter()
        .max_by_key(|(tid, marks)| (marks.len(), std::cmp::Reverse(*tid)))
}

/// Every launch of the thread belongs to the last mark that started before it: what a step launches after its range has
/// ended (sampling, drafts) is its own.
fn owned(view: &View<'_>, thread: u32, marks: &[(&Mark, StepMark)]) -> Vec<Owned> {
    let launches = view.launches.launches();
    let mut step_of = vec![u32::MAX; launches.len()];
    let mut next = 0;
    for (launch, step) in launches.iter().zip(&mut step_of) {
        while marks
            .get(next)
            .is_some_and(|(m, _)| m.start <= launch.start)
        {
            next += 1;
        }
        if launch.tid == thread && next > 0 {
            *step = (next - 1) as u32;
        }
    }
    let mut owned = vec![Owned::default(); marks.len()];
    let ops = &view.lane.ops;
    let mut hint = 0;
    for i in 0..ops.len() {
        let step = view
            .launches
            .position(ops.corr(i), &mut hint)
            .and_then(|at| step_of.get(at));
        let Some(step) = step.and_then(|&step| owned.get_mut(step as usize)) else {
            continue;
        };
        // Operations come by start, so the first one seen is the first one run.
        step.first.get_or_insert(ops.start(i));
        if ops.stream(i) == view.main {
            step.first_main.get_or_insert(ops.start(i));
        }
        step.end = if step.ops == 0 {
            ops.end(i)
        } else {
            step.end.max(ops.end(i))
        };
        step.ops += 1;
    }
    owned
}

/// Share of the operations in the stepped range that some mark owns.
fn attributed(view: &View<'_>, owned: &[Owned], from: i64, to: i64) -> f64 {
    let ops = &view.lane.ops;
    let inside = (0..ops.len())
        .filter(|&i| (from..to).contains(&ops.start(i)))
        .count();
    let mine: u64 = owned.iter().map(|o| o.ops).sum();
    (mine as f64 / inside.max(1) as f64).min(1.0)
}

fn add_notes(
    view: &View<'_>,
    found: &mut Found,
    marks: &[(&Mark, StepMark)],
    empty: u32,
    disordered: u32,
) {
    let mut note = |code: &str, message: String| found.notes.push(Note::new(code, message));
    if empty > 0 {
        note(
            "empty_steps",
            format!(
                "{empty} of {} marked steps have no GPU operation and are left out",
                marks.len()
            ),
        );
    }
    if disordered > 0 {
        note(
            "disordered_steps",
            format!(
                "{disordered} marked steps start on the GPU before the one before them; they are merged into it"
            ),
        );
    }
    let ops = &view.lane.ops;
    let first = found.starts.first().map_or(i64::MIN, |s| s.at);
    let before = (0..ops.len()).take_while(|&i| ops.start(i) < first).count();
    if before > 0 {
        note(
            "before_first_step",
            format!("{before} operations run before the first marked step and belong to none"),
        );
    }
    if let Some((last, _)) = marks.last()
        && last.end.is_none()
    {
        note(
            "last_step_partial",
            "the capture ends inside the last marked step".to_owned(),
        );
    }
}
