//! Steps from the repetition of the sequence of kernel names.

use linktax_records::Note;

use super::{Found, Start, StepKind, StepMethod, View};
use crate::{Group, NameId, OpKind};

/// The longest period looked for, and how many kernels are compared.
const LONGEST: usize = 4096;
const COMPARED: usize = 8192;
/// Share of kernels that must have the same name one period later.
const MATCH: f64 = 0.98;
/// Layers repeat too, with a few per cent of mismatch where a step ends; a period within this of the best is the step's.
const SLACK: f64 = 0.002;
const FEWEST: usize = 3;

pub(crate) fn find(view: &View<'_>) -> Option<Found> {
    let ops = &view.lane.ops;
    let at: Vec<usize> = (0..ops.len())
        .filter(|&i| ops.kind(i) == OpKind::Kernel && ops.stream(i) == view.main)
        .collect();
    let names: Vec<NameId> = at.iter().map(|&i| ops.name(i)).collect();
    let (period, matched) = period(&names)?;
    // One attention kernel a period is a layer, not a step.
    let mixers = names[..period]
        .iter()
        .filter(|&&n| matches!(view.classes.name(n).group(), Group::Attention | Group::Ssm))
        .count();
    if mixers == 1 {
        return None;
    }
    let phase = phase(&names, period);
    let confidence = 0.5 * matched;
    let start = |i: usize, confidence| Start::new(ops.start(i), StepKind::Unknown, confidence);
    // What runs before the first full period is the rest of one, and counts: its collectives have partners.
    let rest = at.first().filter(|_| phase > 0).map(|_| start(0, 0.0));
    let starts: Vec<Start> = rest
        .into_iter()
        .chain(
            at.iter()
                .skip(phase)
                .step_by(period)
                .map(|&i| start(i, confidence)),
        )
        .collect();
    let end = (0..ops.len()).map(|i| ops.end(i)).max()?;
    Some(Found {
        method: StepMethod::Periodicity,
        confidence,
        starts,
        end,
        notes: vec![Note::new(
            "periodic_steps",
            format!(
                "steps are repetitions of {period} kernel names ({:.1} % alike); they may be parts of a step",
                matched * 100.0
            ),
        )],
    })
}

/// The smallest period whose match is nearly the best there is, with its match.
fn period(names: &[NameId]) -> Option<(usize, f64)> {
    let names = &names[..names.len().min(COMPARED)];
    let longest = (names.len() / FEWEST).min(LONGEST);
    let matched = |period: usize| {
        let same = names
            .iter()
            .zip(&names[period..])
            .filter(|(a, b)| a == b)
            .count();
        same as f64 / (names.len() - period) as f64
    };
    // Two names tell nothing; a period shorter than this is a loop inside a layer.
    let all: Vec<(usize, f64)> = (4..=longest).map(|p| (p, matched(p))).collect();
    let best = all.iter().map(|&(_, m)| m).fold(0.0, f64::max);
    if best < MATCH {
        return None;
    }
    let (period, matched) = all.into_iter().find(|&(_, m)| m >= best - SLACK)?;
    let mut distinct = names[..period].to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    (distinct.len() >= 3).then_some((period, matched))
}

/// Where in the period a step begins: at a name that occurs once a period, the first one there is.
fn phase(names: &[NameId], period: usize) -> usize {
    let one = &names[..period];
    (0..period)
        .find(|&i| one.iter().filter(|&&n| n == one[i]).count() == 1)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(steps: usize, layers: usize) -> Vec<NameId> {
        let step = [10, 11]
            .into_iter()
            .chain((0..layers).flat_map(|_| [0, 1, 2, 3, 4]))
            .chain([12]);
        let step: Vec<NameId> = step.map(NameId).collect();
        step.iter()
            .copied()
            .cycle()
            .take(steps * step.len())
            .collect()
    }

    #[test]
    fn the_step_not_the_layer() {
        let (period, matched) = period(&sequence(12, 36)).unwrap();
        assert_eq!((period, matched), (36 * 5 + 3, 1.0));
    }

    #[test]
    fn no_period_in_noise_or_in_too_little() {
        let noise: Vec<NameId> = (0..600u32)
            .map(|i| NameId(i.wrapping_mul(2_654_435_761) >> 24))
            .collect();
        assert_eq!(period(&noise), None);
        assert_eq!(period(&sequence(2, 36)), None);
        assert_eq!(period(&[NameId(1); 400]), None);
    }

    #[test]
    fn a_step_begins_at_a_name_of_its_own() {
        let names = sequence(4, 3);
        assert_eq!(phase(&names[4..], 18), 13);
    }
}
