//! What each capture is, and what differs between the two before any time is looked at.

use std::collections::BTreeSet;

use linktax_records::Note;
use serde::Serialize;

use super::{Diff, DiffSide, MatchBy};
use crate::OpKind;
use crate::classify::{Class, Group};
use crate::collectives::WaitMethod;
use crate::steps::{StepKind, StepMethod};

/// What a capture is, as far as it bears on a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideFacts {
    /// What it is called.
    pub label: String,
    /// Lanes: one a process and GPU.
    pub gpus: usize,
    /// Processes that have lanes.
    pub processes: usize,
    /// Names of its GPUs, each once; empty where the export has none.
    pub gpu_names: Vec<String>,
    /// Ranks of each group whose collectives belong together; empty without collectives.
    pub ranks: Vec<usize>,
    /// How wait and service were told apart, each way once.
    pub wait_methods: Vec<WaitMethod>,
    /// What found the steps, each method once.
    pub methods: Vec<StepMethod>,
    /// The lowest confidence of a lane's steps.
    pub confidence: f64,
    /// Classes of communication in its steps.
    pub communication: Vec<Class>,
    /// Whether kernels ran from CUDA graphs.
    pub graphs: bool,
    /// Steps over all lanes.
    pub steps: usize,
}

impl SideFacts {
    pub(super) fn of(side: &DiffSide<'_>) -> Self {
        let lanes: Vec<_> = side
            .splits
            .iter()
            .filter_map(|split| side.trace.lanes.get(split.lane))
            .collect();
        let processes: BTreeSet<_> = lanes.iter().map(|l| (l.id.file, l.id.global_pid)).collect();
        let gpu_names: BTreeSet<_> = lanes.iter().filter_map(|l| l.gpu.name.clone()).collect();
        let methods: BTreeSet<_> = side.steps.iter().map(|lane| lane.method).collect();
        let groups = side.collectives.map_or(&[][..], |c| &c.groups);
        let mut wait_methods: Vec<WaitMethod> = groups.iter().map(|g| g.method).collect();
        wait_methods.sort_by_key(|method| *method as u8);
        wait_methods.dedup();
        let mut ranks: Vec<usize> = groups.iter().map(|g| g.lanes.len()).collect();
        ranks.sort_unstable();
        let (communication, graphs) = used(side);
        SideFacts {
            label: side.label.to_owned(),
            gpus: lanes.len(),
            processes: processes.len(),
            gpu_names: gpu_names.into_iter().collect(),
            ranks,
            wait_methods,
            methods: methods.into_iter().collect(),
            confidence: side
                .steps
                .iter()
                .map(|lane| lane.confidence)
                .fold(1.0, f64::min),
            communication,
            graphs,
            steps: side.splits.iter().map(|lane| lane.steps.len()).sum(),
        }
    }
}

/// Classes of communication within the steps, and whether anything there ran from a graph.
fn used(side: &DiffSide<'_>) -> (Vec<Class>, bool) {
    let mut classes = BTreeSet::new();
    let mut graphs = false;
    for split in side.splits {
        let (Some(lane), Some(first), Some(last)) = (
            side.trace.lanes.get(split.lane),
            split.steps.first(),
            split.steps.last(),
        ) else {
            continue;
        };
        let range = first.step.start..last.step.end;
        for op in lane.ops.iter().filter(|op| range.contains(&op.start)) {
            graphs |= op.node != 0 || op.kind == OpKind::Graph;
            let class = side.classes.op(&op);
            if class.group() == Group::Comm {
                classes.insert(class);
            }
        }
    }
    (classes.into_iter().collect(), graphs)
}

/// A fact that the two captures do not share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Which fact.
    pub what: &'static str,
    /// In the first capture.
    pub a: String,
    /// In the second.
    pub b: String,
}

/// A fact in words.
type Fact = fn(&SideFacts) -> String;

pub(super) fn differences(a: &SideFacts, b: &SideFacts) -> Vec<Difference> {
    let facts: [(&'static str, Fact); 7] = [
        ("GPUs", |s| s.gpus.to_string()),
        ("processes", |s| s.processes.to_string()),
        ("GPU names", |s| listed(&s.gpu_names)),
        ("ranks that communicate", |s| listed(&s.ranks)),
        ("communication kernels", |s| listed(&s.communication)),
        ("CUDA graphs", |s| {
            if s.graphs { "yes" } else { "no" }.to_owned()
        }),
        ("steps found by", |s| {
            let words: Vec<&str> = s.methods.iter().map(|m| m.as_str()).collect();
            listed(&words)
        }),
    ];
    let compare = |(what, fact): (&'static str, Fact)| {
        let (a, b) = (fact(a), fact(b));
        (a != b).then_some(Difference { what, a, b })
    };
    facts.into_iter().filter_map(compare).collect()
}

fn listed<T: ToString>(items: &[T]) -> String {
    let words: Vec<String> = items.iter().map(T::to_string).collect();
    match words.is_empty() {
        true => "none".to_owned(),
        false => words.join(", "),
    }
}

/// Below this confidence the steps of a capture may be cut in the wrong places.
const SURE: f64 = 0.8;

pub(super) fn notes(diff: &mut Diff, by: MatchBy, by_kind: &[StepKind]) {
    let mut notes = Vec::new();
    if diff.differences.len() > 1 {
        let what: Vec<&str> = diff.differences.iter().map(|d| d.what).collect();
        notes.push(Note::new(
            "several_differences",
            format!(
                "the captures differ in {} facts ({}): a change in time has no single cause",
                what.len(),
                what.join(", ")
            ),
        ));
    }
    for side in [&diff.a, &diff.b] {
        if side.confidence < SURE {
            notes.push(Note::new(
                "unsure_steps",
                format!(
                    "{}: steps are found with confidence {:.2} only, so they may be cut in the wrong places",
                    side.label, side.confidence
                ),
            ));
        }
        if side.wait_methods.contains(&WaitMethod::LowerBound) {
            notes.push(Note::new(
                "wait_lower_bound",
                format!(
                    "{}: other ranks were not traced, so its wait is a lower bound and its service an upper one",
                    side.label
                ),
            ));
        }
    }
    if by == MatchBy::Batch {
        let blind: Vec<&str> = diff
            .compared
            .iter()
            .map(|c| c.kind)
            .filter(|kind| by_kind.contains(kind))
            .map(StepKind::as_str)
            .collect();
        if !blind.is_empty() {
            notes.push(Note::new(
                "batch_unknown",
                format!(
                    "a capture has no batches for steps of kind {}: they are matched by kind alone, whatever they worked on",
                    blind.join(", ")
                ),
            ));
        }
    }
    if diff.compared.is_empty() {
        notes.push(Note::new(
            "nothing_matched",
            match by {
                MatchBy::Batch => "no kind of step with the same batch is in both captures: nothing is compared (match by kind to ignore the batch)",
                MatchBy::Kind => "no kind of step is in both captures: nothing is compared",
            },
        ));
    }
    diff.notes.extend(notes);
}
