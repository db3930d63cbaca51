//! Wait and service of a group of ranks.

use super::clock;
use super::groups::{Members, aligned};
use super::{Call, CommGroup, PairedCollective, RankPart, WaitMethod, operation};
use crate::Trace;
use crate::classify::Classes;

pub(crate) fn group(trace: &Trace, classes: &Classes, members: &Members<'_, '_>) -> CommGroup {
    let rows = rows(members);
    let n = members.len();
    let mut group = CommGroup {
        lanes: members.ranks.iter().map(|(r, _)| r.lane).collect(),
        method: WaitMethod::Paired,
        collectives: Vec::with_capacity(rows.len()),
        clock: Vec::new(),
        caused_ns: vec![0; n],
        parts: Vec::with_capacity(rows.len() * n),
    };
    let mut ordinal = (u32::MAX, 0);
    for (step, calls) in &rows {
        ordinal = if ordinal.0 == *step {
            (*step, ordinal.1 + 1)
        } else {
            (*step, 0)
        };
        let service = calls.iter().map(|c| c.dur).min().unwrap_or(0);
        let last = calls.iter().position(|c| c.dur == service).unwrap_or(0);
        let parts = calls.iter().map(|call| RankPart {
            op: call.op,
            start: call.start,
            dur: call.dur,
            wait: call.dur - service,
        });
        group.parts.extend(parts);
        let waited: u64 = calls.iter().map(|c| c.dur - service).sum();
        group.caused_ns[last] += waited;
        let name = calls.first().map_or(crate::NameId(u32::MAX), |c| c.name);
        group.collectives.push(PairedCollective {
            step: *step,
            ordinal: ordinal.1,
            name,
            class: classes.name(name),
            operation: operation(trace, name),
            service,
            common: members.one_clock.then(|| common(calls)),
            last: last as u32,
        });
    }
    let first = |row: &(u32, Vec<Call>)| row.1.first().copied();
    group.clock = (0..n)
        .map(|rank| {
            let pairs = rows
                .iter()
                .filter_map(|row| Some((first(row)?, *row.1.get(rank)?)));
            (rank > 0 && members.one_clock)
                .then(|| clock::offset(pairs))
                .flatten()
        })
        .collect();
    group
}

/// For each collective the step (of the first rank) and the calls of all ranks.
fn rows(members: &Members<'_, '_>) -> Vec<(u32, Vec<Call>)> {
    let Some(&(reference, _)) = members.ranks.first() else {
        return Vec::new();
    };
    let mut rows: Vec<(u32, Vec<Call>)> = reference
        .steps
        .steps
        .iter()
        .zip(&reference.by_step)
        .flat_map(|(step, range)| {
            let calls = &reference.calls[range.clone()];
            calls.iter().map(|call| (step.index, vec![*call]))
        })
        .collect();
    for (nth, &(rank, shift)) in members.ranks.iter().enumerate().skip(1) {
        for (mine, theirs) in aligned(reference, rank, shift) {
            for (row, call) in rows[mine].iter_mut().zip(&rank.calls[theirs]) {
                row.1.push(*call);
            }
        }
        // Steps that this rank lacks take no part.
        rows.iter_mut()
            .filter(|row| row.1.len() <= nth)
            .for_each(|row| row.1.clear());
    }
    rows.retain(|row| row.1.len() == members.len());
    rows
}

/// Time in which every rank was in the collective.
fn common(calls: &[Call]) -> u64 {
    let start = calls.iter().map(|c| c.start).max().unwrap_or(0);
    let end = calls.iter().map(Call::end).min().unwrap_or(0);
    u64::try_from(end.saturating_sub(start)).unwrap_or(0)
}
