//! How far apart two GPUs' clocks are, from collectives that both were in.

use serde::Serialize;

use super::Call;
use crate::steps::median;

/// The clock of a group's first lane minus another lane's, estimated.
///
/// The ends of a collective on two ranks differ by a few microseconds in the direction of who arrived late, so the
/// differences have two modes; the true offset is in the middle. Nothing is corrected by it: wait and service need no
/// common clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ClockOffset {
    /// Centre of the two modes, nanoseconds.
    pub offset_ns: i64,
    /// Median end difference where the other lane arrived last.
    pub other_late_ns: i64,
    /// Median end difference where the first lane arrived last.
    pub first_late_ns: i64,
    /// Collectives it rests on.
    pub pairs: usize,
}

/// Fewer collectives on either side show no mode.
const FEWEST: usize = 3;

/// Pairs of (first lane's call, other lane's call).
pub(crate) fn offset(pairs: impl Iterator<Item = (Call, Call)>) -> Option<ClockOffset> {
    let (mut other_late, mut first_late) = (Vec::new(), Vec::new());
    for (first, other) in pairs {
        let apart = first.end().saturating_sub(other.end());
        match first.dur.cmp(&other.dur) {
            std::cmp::Ordering::Greater => other_late.push(apart),
            std::cmp::Ordering::Less => first_late.push(apart),
            std::cmp::Ordering::Equal => {}
        }
    }
    if other_late.len() < FEWEST || first_late.len() < FEWEST {
        return None;
    }
    let pairs = other_late.len() + first_late.len();
    let (other_late_ns, first_late_ns) = (median(&mut other_late)?, median(&mut first_late)?);
    Some(ClockOffset {
        offset_ns: other_late_ns.midpoint(first_late_ns),
        other_late_ns,
        first_late_ns,
        pairs,
    })
}
