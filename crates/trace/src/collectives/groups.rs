//! Which ranks talk to each other.

use super::Rank;
use crate::{Trace, TraceError};

/// Ranks of one communicator, each with the shift of its steps against the first's.
pub(crate) struct Members<'a, 'r> {
    pub(crate) ranks: Vec<(&'r Rank<'a>, i64)>,
    /// Whether all are in one export and so on one time base.
    pub(crate) one_clock: bool,
}

impl Members<'_, '_> {
    pub(crate) fn len(&self) -> usize {
        self.ranks.len()
    }
}

/// How far the ordinals of the steps may be apart: one rank's capture begins a little earlier.
const SHIFTS: [i64; 7] = [0, 1, -1, 2, -2, 3, -3];
/// Share of the pairs that must overlap in time.
const OVERLAPPING: f64 = 0.99;

/// Puts every rank into the first group that it fits; what fits none although there are others is an error.
pub(crate) fn find<'a, 'r>(
    trace: &Trace,
    ranks: &'r [Rank<'a>],
) -> Result<Vec<Members<'a, 'r>>, TraceError> {
    let mut groups: Vec<Members<'a, 'r>> = Vec::new();
    for rank in ranks {
        let fit = groups
            .iter()
            .enumerate()
            .find_map(|(at, group)| Some((at, fit(trace, group.ranks[0].0, rank)?)));
        match fit {
            Some((at, shift)) => {
                let group = &mut groups[at];
                group.one_clock &= group.ranks[0].0.file == rank.file;
                group.ranks.push((rank, shift));
            }
            None => groups.push(Members {
                ranks: vec![(rank, 0)],
                one_clock: true,
            }),
        }
    }
    // Several communicators are fine, a rank without any partner is not.
    if ranks.len() > 1
        && let Some(lonely) = groups.iter().rfind(|g| g.len() == 1)
    {
        let rank = lonely.ranks[0].0;
        let other = ranks.iter().find(|r| r.lane != rank.lane).unwrap_or(rank);
        return Err(difference(trace, other, rank));
    }
    Ok(groups)
}

/// The shift at which the steps of `rank` carry the same collectives as those of `reference` at the same time.
fn fit(trace: &Trace, reference: &Rank<'_>, rank: &Rank<'_>) -> Option<i64> {
    SHIFTS.into_iter().find(|&shift| {
        let (mut pairs, mut overlapping) = (0usize, 0usize);
        for (a, b) in aligned(reference, rank, shift) {
            let (a, b) = (reference.range(&a), rank.range(&b));
            if a.len() != b.len() {
                return false;
            }
            for (a, b) in a.zip(b) {
                if !same_name(trace, a.name, b.name) {
                    return false;
                }
                pairs += 1;
                overlapping += usize::from(a.start < b.end() && b.start < a.end());
            }
        }
        let covered = pairs * 2 > reference.calls.len().min(rank.calls.len());
        // Files of different sessions share no clock: there only the sequence can speak.
        let timed = reference.file != rank.file || overlapping as f64 >= OVERLAPPING * pairs as f64;
        pairs > 0 && covered && timed
    })
}

/// The ranges of calls of the steps that stand beside each other when the steps of `rank` are moved by `shift`. Steps
/// without a partner (the ragged ends) are left out.
pub(crate) fn aligned(
    reference: &Rank<'_>,
    rank: &Rank<'_>,
    shift: i64,
) -> Vec<(std::ops::Range<usize>, std::ops::Range<usize>)> {
    let at = |rank: &Rank<'_>, index: i64| {
        rank.steps
            .steps
            .binary_search_by_key(&index, |s| i64::from(s.index))
            .ok()
    };
    reference
        .steps
        .steps
        .iter()
        .zip(&reference.by_step)
        .filter_map(|(step, calls)| {
            let other = at(rank, i64::from(step.index) + shift)?;
            Some((calls.clone(), rank.by_step[other].clone()))
        })
        .collect()
}

/// Two ranks may spell one name twice (ids are of distinct names, but a file each has its own).
fn same_name(trace: &Trace, a: crate::NameId, b: crate::NameId) -> bool {
    a == b || trace.names.full(a) == trace.names.full(b)
}

/// The first place where two ranks differ at shift 0.
fn difference(trace: &Trace, reference: &Rank<'_>, rank: &Rank<'_>) -> TraceError {
    let (mut step, mut why) = (0, String::new());
    let steps = (&reference.steps.steps, &rank.steps.steps);
    let each = steps.0.iter().zip(&reference.by_step);
    for ((a, a_calls), (b, b_calls)) in each.zip(steps.1.iter().zip(&rank.by_step)) {
        step = a.index;
        let (calls, others) = (reference.range(a_calls), rank.range(b_calls));
        if calls.len() != others.len() {
            why = format!(
                "{} collectives there, {} here ({} step against {})",
                calls.len(),
                others.len(),
                a.kind.as_str(),
                b.kind.as_str()
            );
            break;
        }
        let named = calls.zip(others).enumerate();
        let odd = named
            .clone()
            .find(|(_, (a, b))| !same_name(trace, a.name, b.name));
        if let Some((at, (a, b))) = odd {
            why = format!(
                "collective {at} is {} there and {} here",
                trace.names.short(a.name),
                trace.names.short(b.name)
            );
            break;
        }
        let apart = named
            .clone()
            .find(|(_, (a, b))| a.start >= b.end() || b.start >= a.end());
        if let Some((at, _)) = apart {
            why = format!("collective {at} runs at another time on the two");
            break;
        }
    }
    if why.is_empty() {
        why = format!("{} steps there, {} here", steps.0.len(), steps.1.len());
    }
    TraceError::NotAlignable {
        lane: rank.lane,
        reference: reference.lane,
        step,
        why,
    }
}
