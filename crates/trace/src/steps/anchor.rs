//! Steps from kernels that run once in each: preparation at its start, sampling at its end.

use std::collections::BTreeMap;

use super::{Found, Start, StepKind, StepMethod, View, graph};
use crate::classify::Class;
use crate::{NameId, OpKind};

/// Fewer steps than this prove no repetition.
const FEWEST: usize = 3;

/// Eager kernels of one name.
struct Anchor {
    class: Class,
    at: Vec<usize>,
}

/// How many steps the anchors speak of: the most common count among their names.
pub(crate) fn count(view: &View<'_>) -> Option<u64> {
    Some(modal(&anchors(view))? as u64)
}

fn anchors(view: &View<'_>) -> BTreeMap<NameId, Anchor> {
    let ops = &view.lane.ops;
    let mut anchors = BTreeMap::<NameId, Anchor>::new();
    for i in 0..ops.len() {
        if ops.kind(i) != OpKind::Kernel || ops.node(i) != 0 {
            continue;
        }
        let name = ops.name(i);
        let class = view.classes.name(name);
        if class == Class::PREP || class == Class::SAMPLE {
            let new = || Anchor {
                class,
                at: Vec::new(),
            };
            anchors.entry(name).or_insert_with(new).at.push(i);
        }
    }
    anchors.retain(|_, anchor| anchor.at.len() >= FEWEST);
    anchors
}

/// The count that most names share; of equally many the smallest, because kernels may run several times a step.
fn modal(anchors: &BTreeMap<NameId, Anchor>) -> Option<usize> {
    let mut counts = BTreeMap::<usize, usize>::new();
    for anchor in anchors.values() {
        *counts.entry(anchor.at.len()).or_default() += 1;
    }
    counts
        .into_iter()
        .max_by_key(|&(count, names)| (names, std::cmp::Reverse(count)))
        .map(|(count, _)| count)
}

pub(crate) fn find(view: &View<'_>) -> Option<Found> {
    let anchors = anchors(view);
    let count = modal(&anchors)?;
    let candidates = || anchors.values().filter(|a| a.at.len() == count);
    // The earliest preparation kernel opens a step; without one, the last sampling kernel closes it.
    let prep = candidates()
        .filter(|a| a.class == Class::PREP)
        .min_by_key(|a| a.at.first().copied());
    let ops = &view.lane.ops;
    let at: Vec<usize> = match prep {
        Some(prep) => prep.at.clone(),
        None => {
            let sampler = candidates().max_by_key(|a| a.at.last().copied())?;
            let behind = sampler.at.iter().map(|&i| i + 1);
            // What runs before the first sampler has lost its start, but it is a step all the same.
            let first = sampler.at.first().filter(|&&i| i > 0).map(|_| 0);
            first
                .into_iter()
                .chain(behind)
                .filter(|&i| i < ops.len())
                .collect()
        }
    };
    let agreeing = candidates().count() as f64;
    let multiples = anchors.values().filter(|a| a.at.len() % count == 0).count() as f64;
    let all = anchors.len() as f64;
    let confidence = (0.4 + 0.2 * multiples / all + 0.05 * agreeing).min(0.8);
    let mut starts: Vec<Start> = at
        .iter()
        .map(|&i| Start::new(ops.start(i), StepKind::Unknown, confidence))
        .collect();
    starts.dedup_by_key(|s| s.at);
    name_decode_steps(view, &mut starts);
    let end = (at.last().copied()?..ops.len()).map(|i| ops.end(i)).max()?;
    Some(Found {
        method: StepMethod::Anchor,
        confidence,
        starts,
        end,
        notes: Vec::new(),
    })
}

/// Engines replay the whole model as one graph only when no prefill is in the batch.
fn name_decode_steps(view: &View<'_>, starts: &mut [Start]) {
    let launched = graph::launches(view.lane);
    let Some(target) = graph::Target::of(&launched) else {
        return;
    };
    let mut passes = vec![0u32; starts.len()];
    for l in launched.iter().filter(|l| target.matches(l)) {
        if let Some(k) = starts.partition_point(|s| s.at <= l.start).checked_sub(1) {
            passes[k] += 1;
        }
    }
    // Pieces of a graph around eager attention repeat within a step.
    let pieces = passes.iter().filter(|&&n| n > 1).count() * 2 > passes.len();
    for (start, n) in starts.iter_mut().zip(passes) {
        if n == 1 && !pieces {
            start.kind = StepKind::Decode;
        }
    }
}
