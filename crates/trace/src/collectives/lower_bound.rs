//! A rank whose peers were not traced: the fastest runs of the same kernel stand for the service.

use std::collections::HashMap;

use super::groups::Members;
use super::{CommGroup, Named, PairedCollective, RankPart, WaitMethod};
use crate::classify::Classes;
use crate::{NameId, Trace};

pub(crate) fn group(trace: &Trace, classes: &Classes, members: &Members<'_, '_>) -> CommGroup {
    let mut group = CommGroup {
        lanes: Vec::new(),
        method: WaitMethod::LowerBound,
        collectives: Vec::new(),
        clock: vec![None],
        caused_ns: vec![0],
        parts: Vec::new(),
    };
    let Some(&(rank, _)) = members.ranks.first() else {
        return group;
    };
    group.lanes.push(rank.lane);
    let mut durations: HashMap<NameId, Vec<u64>> = HashMap::new();
    for call in rank.range(&(0..rank.calls.len())) {
        durations.entry(call.name).or_default().push(call.dur);
    }
    let tenth: HashMap<NameId, u64> = durations
        .into_iter()
        .map(|(name, mut all)| {
            all.sort_unstable();
            (name, all[(all.len() - 1) / 10])
        })
        .collect();
    let mut named = Named::new(trace, classes);
    for (step, range) in rank.steps.steps.iter().zip(&rank.by_step) {
        for (ordinal, call) in (0..).zip(rank.range(range)) {
            let service = call
                .dur
                .min(tenth.get(&call.name).copied().unwrap_or(call.dur));
            group.parts.push(RankPart {
                op: call.op,
                start: call.start,
                dur: call.dur,
                wait: call.dur - service,
            });
            let (class, operation) = named.of(call.name);
            group.collectives.push(PairedCollective {
                step: step.index,
                ordinal,
                name: call.name,
                class,
                operation,
                service,
                common: None,
                last: 0,
            });
        }
    }
    group
}
