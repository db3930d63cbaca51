//! What a faster link, a faster kernel or equal ranks would change: a replay of the ranks, not a subtraction.
//!
//! Each lane is cut at its collectives. Before collective `j` rank `r` works for `seg(j, r)`, by its own clock; the
//! collective then serves all of them at once. So a step takes
//!
//! ```text
//! T = sum over j of ( max over r of seg(j, r)  +  service(j) )
//! ```
//!
//! Waiting is in the maximum, where a faster link does not shorten it; plain Amdahl on the communication time of the
//! rank that waits promises it away. At factor 1 the replay must give the measured time to 2 %, or it is refused.

mod links;
mod scenario;

use linktax_linkmodel::amdahl;
use linktax_records::Note;
use serde::Serialize;

use crate::classify::{Class, Classes};
use crate::collectives::{CommGroup, Sized};
use crate::steps::{LaneSteps, StepKind};
use crate::{Trace, TraceError};

use links::Link;
pub use scenario::Scenario;

/// How far the replay at factor 1 may be from the measured time.
pub const REPLAY_TOLERANCE: f64 = 0.02;

/// What to replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplayOptions<'a> {
    /// Only steps of these kinds; all if empty.
    pub kinds: Vec<StepKind>,
    /// What to project; if empty communication and bandwidth 2x, 4x and infinite, no straggler, and each compute group 2x.
    pub scenarios: Vec<Scenario>,
    /// Message sizes (see [`sizes`](crate::sizes)), from which the fixed cost of a message is fitted.
    pub sizes: &'a [Sized],
    /// The fixed cost of a message in nanoseconds, measured elsewhere; takes the place of the fit.
    pub alpha_ns: Option<f64>,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Projection {
    /// The question.
    pub scenario: Scenario,
    /// The question in words.
    pub name: String,
    /// Replayed time of all steps, nanoseconds; `None` where it cannot be told.
    pub time_ns: Option<f64>,
    /// Replay at factor 1 over this time.
    pub speedup: Option<f64>,
    /// For communication: plain Amdahl on each rank's exposed communication, waiting included, nanoseconds; an upper
    /// bound of the gain.
    pub amdahl_ns: Option<Vec<f64>>,
    /// Why there is no time.
    pub reason: Option<String>,
}

/// A replay of one group of ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replay {
    /// Positions of the lanes.
    pub lanes: Vec<usize>,
    /// Steps it covers.
    pub steps: usize,
    /// Collectives it covers; the first of a stretch only opens it.
    pub collectives: usize,
    /// Measured time from the end of the opening collective to the end of the last one: the longest over the ranks.
    pub measured_ns: i64,
    /// The replay at factor 1.
    pub replayed_ns: i64,
    /// Time of each rank's exposed communication in it, waiting included.
    pub exposed_ns: Vec<u64>,
    /// For each rank the time of the stretches in which it was the last to arrive: what the step waited for.
    pub critical_ns: Vec<i64>,
    /// The answers.
    pub projections: Vec<Projection>,
    /// What the reader should know.
    pub notes: Vec<Note>,
}

impl Replay {
    /// Relative difference of the replay at factor 1 from the measured time.
    pub fn error(&self) -> f64 {
        self.replayed_ns as f64 / self.measured_ns as f64 - 1.0
    }
}

/// Replays a group of ranks.
///
/// # Errors
/// A group of one rank or without two collectives in a row; a replay at factor 1 that misses the measured time by more
/// than [`REPLAY_TOLERANCE`].
pub fn replay(
    trace: &Trace,
    classes: &Classes,
    steps: &[LaneSteps],
    group: &CommGroup,
    options: &ReplayOptions<'_>,
) -> Result<Replay, TraceError> {
    let refuse = |why: &str| TraceError::NoReplay {
        why: why.to_owned(),
    };
    if group.lanes.len() < 2 {
        return Err(refuse(
            "one rank only; the waiting of the others is not known, plain Amdahl is all there is",
        ));
    }
    let links = links::find(trace, classes, steps, group, &options.kinds)?;
    if links.is_empty() {
        return Err(refuse("no two collectives in a row in the chosen steps"));
    }
    let ranks = group.lanes.len();
    let measured = (0..ranks)
        .map(|r| links.iter().map(|l| l.ranks[r].span).sum::<i64>())
        .max()
        .unwrap_or(0);
    let mut replayed = 0;
    let mut critical = vec![0; ranks];
    for link in &links {
        let (rank, seg) = link.slowest();
        critical[rank] += seg;
        replayed += seg + link.service as i64;
    }
    let error = replayed as f64 / measured as f64 - 1.0;
    if measured <= 0 || error.abs() > REPLAY_TOLERANCE {
        return Err(TraceError::ReplayMismatch {
            replayed_ns: replayed,
            measured_ns: measured,
        });
    }
    let exposed: Vec<u64> = (0..ranks)
        .map(|r| links.iter().map(|l| l.ranks[r].exposed).sum())
        .collect();
    let mut covered: Vec<u32> = links.iter().map(|l| l.step).collect();
    covered.dedup();
    let mut out = Replay {
        lanes: group.lanes.clone(),
        steps: covered.len(),
        collectives: links.len(),
        measured_ns: measured,
        replayed_ns: replayed,
        exposed_ns: exposed,
        critical_ns: critical,
        projections: Vec::new(),
        notes: notes(&links),
    };
    let scenarios = if options.scenarios.is_empty() {
        Scenario::standard(&links)
    } else {
        options.scenarios.clone()
    };
    let alpha = scenario::alpha(group, options);
    out.projections = scenarios
        .into_iter()
        .map(|scenario| project(&out, &links, scenario, &alpha))
        .collect();
    Ok(out)
}

fn project(
    replay: &Replay,
    links: &[Link],
    scenario: Scenario,
    alpha: &Result<f64, String>,
) -> Projection {
    let time = scenario.replay(links, alpha);
    let amdahl_ns = match scenario {
        Scenario::Communication { factor } => {
            let span = |r: usize| links.iter().map(|l| l.ranks[r].span).sum::<i64>() as f64;
            let each = replay.exposed_ns.iter().enumerate();
            Some(
                each.map(|(r, &comm)| amdahl(span(r), comm as f64, factor))
                    .collect(),
            )
        }
        _ => None,
    };
    Projection {
        scenario,
        name: scenario.to_string(),
        time_ns: time.as_ref().ok().copied(),
        speedup: time
            .as_ref()
            .ok()
            .filter(|t| **t > 0.0)
            .map(|t| replay.replayed_ns as f64 / t),
        amdahl_ns,
        reason: time.err(),
    }
}

fn notes(links: &[Link]) -> Vec<Note> {
    let count = |class| links.iter().filter(|l| l.class == class).count();
    let mut notes = Vec::new();
    let gemm = count(Class::COMM_FUSED_GEMM);
    if gemm > 0 {
        notes.push(Note::new(
            "fused_gemm",
            format!(
                "{gemm} of {} collectives are fused with a matrix product: no factor is applied to them",
                links.len()
            ),
        ));
    }
    let fused = count(Class::COMM_FUSED);
    if fused > 0 {
        notes.push(Note::new(
            "fused_norm",
            format!(
                "{fused} of {} collectives contain a norm, whose time a faster link does not shorten: projections are upper bounds",
                links.len()
            ),
        ));
    }
    notes
}

#[cfg(test)]
mod tests;
