//! The lanes of a group, cut at their collectives.

use crate::classify::{Class, Classes};
use crate::collectives::CommGroup;
use crate::split::{Activity, Mask, Part, activity, lane_of, sweep};
use crate::steps::{LaneSteps, StepKind};
use crate::{Trace, TraceError};

/// One rank between the end of the collective before and the end of this one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RankLink {
    /// From the end of the collective before to the start of this one; negative where the two overlap.
    pub(crate) seg: i64,
    /// From the end of the collective before to the end of this one.
    pub(crate) span: i64,
    /// Time of the segment by activity, as it is booked.
    pub(crate) booked: [u64; Activity::ALL.len()],
    /// Compute that ran beside the service: it stays when the service gets faster.
    pub(crate) hidden: u64,
    /// Time of the collective without compute beside it, waiting included.
    pub(crate) exposed: u64,
}

/// One collective with what leads to it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Link {
    pub(crate) step: u32,
    /// Position in the group's collectives.
    pub(crate) class: Class,
    pub(crate) service: u64,
    pub(crate) ranks: Vec<RankLink>,
}

impl Link {
    /// The rank with the longest segment, and its length.
    pub(crate) fn slowest(&self) -> (usize, i64) {
        let mut slowest = (0, i64::MIN);
        for (rank, link) in self.ranks.iter().enumerate() {
            if link.seg > slowest.1 {
                slowest = (rank, link.seg);
            }
        }
        slowest
    }

    /// Compute under the service on the rank that has the most of it.
    pub(crate) fn hidden(&self) -> u64 {
        self.ranks.iter().map(|r| r.hidden).max().unwrap_or(0)
    }
}

pub(crate) fn find(
    trace: &Trace,
    classes: &Classes,
    steps: &[LaneSteps],
    group: &CommGroup,
    kinds: &[StepKind],
) -> Result<Vec<Link>, TraceError> {
    let wanted = wanted(steps, group, kinds);
    let mut links = Vec::new();
    for (at, collective) in group.collectives.iter().enumerate() {
        // A collective needs its predecessor; after a step that was left out there is none.
        let follows = at.checked_sub(1).is_some_and(|before| {
            let before = group.collectives[before].step;
            before == collective.step || before + 1 == collective.step
        });
        if !follows || !wanted(collective.step) {
            continue;
        }
        let (before, now) = (group.parts(at - 1), group.parts(at));
        let ranks = before.iter().zip(now).map(|(before, now)| RankLink {
            seg: now.start.saturating_sub(before.end()),
            span: now.end().saturating_sub(before.end()),
            ..RankLink::default()
        });
        links.push((
            at,
            Link {
                step: collective.step,
                class: collective.class,
                service: collective.service,
                ranks: ranks.collect(),
            },
        ));
    }
    for (rank, &lane) in group.lanes.iter().enumerate() {
        book(trace, classes, group, lane, rank, &mut links)?;
    }
    Ok(links.into_iter().map(|l| l.1).collect())
}

/// Whether a step of the group's first lane is of a wanted kind.
fn wanted<'a>(
    steps: &'a [LaneSteps],
    group: &CommGroup,
    kinds: &'a [StepKind],
) -> impl Fn(u32) -> bool + use<'a> {
    let first = group.lanes.first().copied();
    let lane = steps.iter().find(|s| Some(s.lane) == first);
    move |index| {
        let kind = lane.and_then(|lane| {
            let at = lane.steps.binary_search_by_key(&index, |s| s.index).ok()?;
            Some(lane.steps[at].kind)
        });
        kinds.is_empty() || kind.is_some_and(|kind| kinds.contains(&kind))
    }
}

/// Sweeps a lane over the links' segments, waits and services.
fn book(
    trace: &Trace,
    classes: &Classes,
    group: &CommGroup,
    lane: usize,
    rank: usize,
    links: &mut [(usize, Link)],
) -> Result<(), TraceError> {
    let lane = lane_of(trace, lane)?;
    let mut windows = Vec::with_capacity(links.len() * 3);
    let mut reached = i64::MIN;
    for (at, link) in links.iter() {
        let (before, now) = (&group.parts(at - 1)[rank], &group.parts(*at)[rank]);
        let served = now.end().saturating_sub_unsigned(link.service);
        // Windows must not overlap, which collectives on two streams do.
        let cuts = [before.end(), now.start, served, now.end()].map(|cut| cut.max(reached));
        windows.extend(cuts.windows(2).map(|w| (w[0], w[1].max(w[0]))));
        reached = windows.last().map_or(reached, |w| w.1);
    }
    let part = |_: usize, op: &crate::Op| Part {
        activity: activity(classes.op(op)),
        wait: 0,
    };
    let swept = sweep(&lane.ops, &windows, part, |_| {});
    for ((_, link), swept) in links.iter_mut().zip(swept.chunks_exact(3)) {
        let out = &mut link.ranks[rank];
        for &(mask, ns) in &swept[0].histogram {
            if let Some(booked) = mask.booked() {
                out.booked[booked as usize] += ns;
            }
        }
        let compute = |window: usize| {
            let under = swept[window].histogram.iter();
            under
                .filter(|(mask, _)| mask.meets(Mask::COMPUTE))
                .map(|(_, ns)| ns)
                .sum::<u64>()
        };
        out.hidden = compute(2);
        let whole: u64 = swept[1..]
            .iter()
            .flat_map(|w| w.histogram.iter().map(|(_, ns)| ns))
            .sum();
        out.exposed = whole - compute(1) - compute(2);
    }
    Ok(())
}
