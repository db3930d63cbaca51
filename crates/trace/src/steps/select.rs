//! Which of the found steps to keep, and what is odd about them.

use linktax_records::Note;

use super::{LaneSteps, StepOptions, extent};
use crate::{Span, Trace, TraceError};

/// A window outside the capture is an error, not an empty success; one that reaches beyond it gives a note.
pub(crate) fn check_window(
    trace: &Trace,
    options: &StepOptions,
) -> Result<Option<Note>, TraceError> {
    if options.from.is_none() && options.to.is_none() {
        return Ok(None);
    }
    let spans: Vec<Span> = trace.lanes.iter().filter_map(extent).collect();
    let (Some(first), Some(last)) = (
        spans.iter().map(|s| s.start).min(),
        spans.iter().map(|s| s.end).max(),
    ) else {
        return Ok(None);
    };
    let (from, to) = (
        options.from.unwrap_or(i64::MIN),
        options.to.unwrap_or(i64::MAX),
    );
    if from >= last || to <= first || from >= to {
        return Err(TraceError::WindowOutside {
            from: options.from.unwrap_or(first),
            to: options.to.unwrap_or(last),
            first,
            last,
        });
    }
    let past =
        options.from.is_some_and(|from| from < first) || options.to.is_some_and(|to| to > last);
    Ok(past.then(|| {
        let s = |ns: i64| ns as f64 / 1e9;
        Note::new(
            "window_past_capture",
            format!(
                "the window reaches beyond the capture, which covers {:.3}-{:.3} s; shares are of the capture",
                s(first),
                s(last)
            ),
        )
    }))
}

/// Fills in what depends on the final boundaries, then drops what was not asked for.
pub(crate) fn apply(steps: &mut LaneSteps, trace: &Trace, options: &StepOptions) {
    overhead(steps, &trace.overhead);
    if trace.window.is_some() && steps.steps.len() > 1 {
        steps.notes.push(Note::new(
            "partial_steps",
            "a time window was read: its first and last step are cut by it (leave them out with --steady 1)",
        ));
    }
    let found = steps.steps.len();
    let steady = options.steady as usize;
    let mut at = 0;
    steps.steps.retain(|step| {
        at += 1;
        let steady = at > steady && at <= found.saturating_sub(steady);
        let kind = options.kinds.is_empty() || options.kinds.contains(&step.kind);
        steady
            && kind
            && options.from.is_none_or(|from| step.start >= from)
            && options.to.is_none_or(|to| step.end <= to)
    });
    let disturbed = steps
        .steps
        .iter()
        .filter(|s| s.overhead_ns * 100 > s.dur())
        .count();
    if disturbed > 0 {
        steps.notes.push(Note::new(
            "profiler_overhead",
            format!(
                "{disturbed} of {} steps contain more than 1 % profiler overhead",
                steps.steps.len()
            ),
        ));
    }
}

fn overhead(steps: &mut LaneSteps, spans: &[Span]) {
    if spans.is_empty() {
        return;
    }
    let mut spans = spans.to_vec();
    spans.sort_unstable_by_key(|s| (s.start, s.end));
    // Several threads may be in the profiler at once: count wall time.
    let mut merged: Vec<Span> = Vec::new();
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    for step in &mut steps.steps {
        let from = merged.partition_point(|s| s.end <= step.start);
        step.overhead_ns = merged[from..]
            .iter()
            .take_while(|s| s.start < step.end)
            .map(|s| s.end.min(step.end).abs_diff(s.start.max(step.start)))
            .sum();
    }
}
