//! Wait and service of a group of ranks.

use super::groups::{Members, aligned};
use super::{
    Call, ClockOffset, CommGroup, Named, PairedCollective, Rank, RankPart, WaitMethod, clock,
};
use crate::Trace;
use crate::classify::Classes;

pub(crate) fn group(trace: &Trace, classes: &Classes, members: &Members<'_, '_>) -> CommGroup {
    let n = members.len();
    let mut group = CommGroup {
        lanes: members.ranks.iter().map(|(r, _)| r.lane).collect(),
        method: WaitMethod::Paired,
        collectives: Vec::new(),
        clock: Vec::new(),
        caused_ns: vec![0; n],
        parts: Vec::new(),
    };
    let Some(&(reference, _)) = members.ranks.first() else {
        return group;
    };
    let partners = partners(members);
    let paired = |at: usize| {
        members.ranks[1..]
            .iter()
            .zip(&partners)
            .all(|(_, p)| p[at] != ALONE)
    };
    let count = (0..reference.calls.len()).filter(|&at| paired(at)).count();
    group.collectives.reserve_exact(count);
    group.parts.reserve_exact(count * n);
    let mut named = Named::new(trace, classes);
    let mut calls = Vec::with_capacity(n);
    for (step, range) in reference.steps.steps.iter().zip(&reference.by_step) {
        for (ordinal, at) in (0..).zip(range.clone().filter(|&at| paired(at))) {
            calls.clear();
            calls.extend(reference.call(at));
            let others = members.ranks[1..].iter().zip(&partners);
            calls.extend(others.filter_map(|((rank, _), p)| rank.call(p[at] as usize)));
            let Some(name) = calls.first().map(|c| c.name) else {
                continue;
            };
            let (service, last) = share(&mut group, &calls);
            let (class, operation) = named.of(name);
            group.collectives.push(PairedCollective {
                step: step.index,
                ordinal,
                name,
                class,
                operation,
                service,
                common: members.one_clock.then(|| common(&calls)),
                last: last as u32,
            });
        }
    }
    group.clock = clocks(members, reference, &partners);
    group
}

/// Splits the calls of one collective into wait and service; returns the service and who was last.
fn share(group: &mut CommGroup, calls: &[Call]) -> (u64, usize) {
    let service = calls.iter().map(|c| c.dur).min().unwrap_or(0);
    let last = calls.iter().position(|c| c.dur == service).unwrap_or(0);
    for call in calls {
        let wait = call.dur - service;
        group.caused_ns[last] += wait;
        group.parts.push(RankPart {
            op: call.op,
            start: call.start,
            dur: call.dur,
            wait,
        });
    }
    (service, last)
}

/// A call in a step that the other rank lacks.
const ALONE: u32 = u32::MAX;

/// For each rank but the first the position of its partner of each of the first rank's calls.
fn partners(members: &Members<'_, '_>) -> Vec<Vec<u32>> {
    let Some((&(reference, _), others)) = members.ranks.split_first() else {
        return Vec::new();
    };
    let each = others.iter().map(|&(rank, shift)| {
        let mut partners = vec![ALONE; reference.calls.len()];
        for (mine, theirs) in aligned(reference, rank, shift) {
            for (partner, at) in partners[mine].iter_mut().zip(theirs) {
                *partner = at as u32;
            }
        }
        partners
    });
    each.collect()
}

fn clocks(
    members: &Members<'_, '_>,
    reference: &Rank<'_>,
    partners: &[Vec<u32>],
) -> Vec<Option<ClockOffset>> {
    let others = members.ranks[1..].iter().zip(partners);
    let offset = |((rank, _), partners): (&(&Rank<'_>, i64), &Vec<u32>)| {
        let pairs = partners.iter().enumerate();
        let pairs =
            pairs.filter_map(|(mine, &at)| Some((reference.call(mine)?, rank.call(at as usize)?)));
        members.one_clock.then(|| clock::offset(pairs)).flatten()
    };
    [None].into_iter().chain(others.map(offset)).collect()
}

/// Time in which every rank was in the collective.
fn common(calls: &[Call]) -> u64 {
    let start = calls.iter().map(|c| c.start).max().unwrap_or(0);
    let end = calls.iter().map(Call::end).min().unwrap_or(0);
    u64::try_from(end.saturating_sub(start)).unwrap_or(0)
}
