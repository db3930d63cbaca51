//! What can be answered from an export.

use serde::Serialize;

use super::Inspection;
use super::graphs::Graphs;

/// Whether a question can be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answered {
    /// Yes.
    Yes,
    /// With less certainty or detail.
    Partly,
    /// No.
    No,
}

/// A question, whether this export answers it, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Stable identifier, for machines.
    pub question: String,
    /// Whether it can be answered.
    pub answered: Answered,
    /// Why.
    pub why: String,
}

const QUESTIONS: [&str; 5] = ["steps", "batch", "split", "wait_service", "what_if"];

fn answer(question: &str, answered: Answered, why: impl Into<String>) -> Answer {
    Answer {
        question: question.to_owned(),
        answered,
        why: why.into(),
    }
}

/// All questions of a file that cannot be read.
pub(crate) fn none(why: &str) -> Vec<Answer> {
    QUESTIONS
        .iter()
        .map(|question| answer(question, Answered::No, why))
        .collect()
}

pub(crate) fn of(inspection: &Inspection, collectives: usize) -> Vec<Answer> {
    let marked: u64 = inspection
        .step_marks
        .iter()
        .filter(|form| form.is_step)
        .map(|form| form.count)
        .sum();
    let lanes = inspection
        .lanes
        .iter()
        .filter(|lane| lane.kernels + lane.graphs > 0)
        .count();
    let comm = Comm {
        lanes,
        collectives,
        hidden: inspection.graphs.unsplittable(),
    };
    vec![
        steps(marked, inspection.graphs.launches),
        batch(marked),
        split(&inspection.graphs),
        comm.wait_service(),
        comm.what_if(),
    ]
}

fn steps(marked: u64, graph_launches: u64) -> Answer {
    match (marked, graph_launches) {
        (0, 0) => answer(
            "steps",
            Answered::Partly,
            "no step marks and no graph launches: only from repeating kernels or gaps",
        ),
        (0, graphs) => answer(
            "steps",
            Answered::Partly,
            format!("no step marks: from {graphs} CUDA graph launches"),
        ),
        (marks, _) => answer("steps", Answered::Yes, format!("{marks} NVTX step marks")),
    }
}

fn batch(marked: u64) -> Answer {
    match marked {
        0 => answer("batch", Answered::No, "only step marks give the batch"),
        _ => answer("batch", Answered::Yes, "as far as the step marks give it"),
    }
}

fn split(graphs: &Graphs) -> Answer {
    let opaque = 100.0 * graphs.opaque_share();
    let unnamed = format!("{opaque:.1} % of the busy time has no kernel names");
    match (graphs.hidden, graphs.unsplittable()) {
        (true, _) => {
            let why = "graphs were launched of which no work is here";
            answer("split", Answered::No, why)
        }
        (false, true) => answer("split", Answered::No, unnamed),
        (false, false) if graphs.opaque_ns > 0 => answer("split", Answered::Partly, unnamed),
        (false, false) => answer("split", Answered::Yes, "every operation has a row"),
    }
}

struct Comm {
    lanes: usize,
    collectives: usize,
    hidden: bool,
}

impl Comm {
    fn wait_service(&self) -> Answer {
        let (answered, why) = match self {
            Comm { hidden: true, .. } => (
                Answered::No,
                "collectives may be inside graphs without rows",
            ),
            Comm { collectives: 0, .. } => (Answered::No, "no collectives"),
            Comm { lanes: 1, .. } => (
                Answered::No,
                "collectives of one rank only: waiting shows only beside the other ranks",
            ),
            _ => (Answered::Yes, "collectives of several ranks"),
        };
        answer("wait_service", answered, why)
    }

    fn what_if(&self) -> Answer {
        let (answered, why) = match self {
            Comm { hidden: true, .. } => (Answered::No, "the step cannot be split"),
            Comm { collectives: 0, .. } => (
                Answered::Partly,
                "no communication to make faster; compute groups only",
            ),
            Comm { lanes: 1, .. } => (
                Answered::Partly,
                "one rank only: Amdahl's bound, no replay of the ranks",
            ),
            _ => (Answered::Yes, "replay of the ranks"),
        };
        answer("what_if", answered, why)
    }
}
