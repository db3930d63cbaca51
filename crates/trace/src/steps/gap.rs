//! Steps from pauses of the GPU: the last resort.

use linktax_records::Note;

use super::{Found, Start, StepKind, StepMethod, View};

/// Pauses between steps must be this many times longer than the longest one inside a step.
const KNEE: f64 = 3.0;
/// Fewer pauses show no rhythm.
const FEWEST: usize = 4;
/// Steps that differ more than this (standard deviation over mean) are no steps.
const SPREAD: f64 = 0.5;

pub(crate) fn find(view: &View<'_>) -> Option<Found> {
    let ops = &view.lane.ops;
    let mut gaps = Vec::new();
    let mut busy_until = None;
    for i in 0..ops.len() {
        let start = ops.start(i);
        if let Some(until) = busy_until
            && start > until
        {
            gaps.push((start.abs_diff(until), start));
        }
        busy_until = Some(busy_until.map_or(ops.end(i), |until: i64| until.max(ops.end(i))));
    }
    let threshold = knee(gaps.iter().map(|g| g.0).collect())?;
    let mut starts = vec![Start::new(ops.start(0), StepKind::Unknown, 0.2)];
    starts.extend(
        gaps.iter()
            .filter(|g| g.0 >= threshold)
            .map(|g| Start::new(g.1, StepKind::Unknown, 0.2)),
    );
    if spread(&starts) > SPREAD {
        return None;
    }
    Some(Found {
        method: StepMethod::Gap,
        confidence: 0.2,
        starts,
        end: busy_until?,
        notes: vec![Note::new(
            "gap_steps",
            format!(
                "steps are cut at pauses of at least {} us; they may be anything that repeats",
                threshold / 1000
            ),
        )],
    })
}

/// The shortest of the long gaps: where the sorted lengths fall by the largest factor.
fn knee(mut gaps: Vec<u64>) -> Option<u64> {
    gaps.sort_unstable_by(|a, b| b.cmp(a));
    let factor = |i: usize| gaps[i] as f64 / gaps[i + 1].max(1) as f64;
    let last = gaps.len().checked_sub(2)?;
    let at = (FEWEST - 1..=last).max_by(|&a, &b| factor(a).total_cmp(&factor(b)))?;
    (factor(at) >= KNEE).then(|| gaps[at])
}

fn spread(starts: &[Start]) -> f64 {
    let steps: Vec<f64> = starts
        .windows(2)
        .map(|w| w[1].at.abs_diff(w[0].at) as f64)
        .collect();
    let n = steps.len() as f64;
    let mean = steps.iter().sum::<f64>() / n;
    let variance = steps.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / n;
    variance.sqrt() / mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_parts_two_kinds_of_gap() {
        let mut gaps = vec![5, 7, 9, 6, 8];
        gaps.extend([900, 1100, 1000, 950]);
        assert_eq!(knee(gaps), Some(900));
        assert_eq!(knee((1..50).collect()), None);
        assert_eq!(
            knee(vec![1000, 2, 2, 2, 2, 2]),
            None,
            "one long gap is no rhythm"
        );
        assert_eq!(knee(vec![]), None);
    }
}
