//! Waiting that a GPU causes in the others.

use std::collections::BTreeSet;

use linktax_trace::{StepKind, WaitMethod};

use super::chosen::Chosen;
use super::session::Session;

/// Waiting of the other ranks, summed, in the collectives of the chosen steps of this kind in which this GPU came last;
/// `None` where the ranks are not paired.
pub(crate) fn caused_ns(
    session: &Session,
    chosen: &Chosen,
    lane: usize,
    kind: StepKind,
) -> Option<u64> {
    let group = chosen.collectives.as_ref()?.group_of(lane)?;
    if group.method != WaitMethod::Paired {
        return None;
    }
    let rank = group.lanes.iter().position(|&other| other == lane)?;
    // Collectives are numbered by the steps of the group's first lane.
    let first = session
        .steps
        .iter()
        .find(|steps| Some(&steps.lane) == group.lanes.first())?;
    let steps: BTreeSet<u32> = first
        .steps
        .iter()
        .filter(|step| step.kind == kind)
        .map(|step| step.index)
        .collect();
    let late = group
        .collectives
        .iter()
        .enumerate()
        .filter(|(_, c)| c.last as usize == rank && steps.contains(&c.step));
    let waits = late
        .flat_map(|(at, _)| group.parts(at))
        .map(|part| part.wait);
    Some(waits.sum())
}
