//! Whether the load that was asked for is the load that was sent.

use linktax_records::{CellSpec, Load};

use crate::figure::{Figure, Missing, millis, missing, seconds};
use crate::request::Request;

/// Request rates of one cell, in requests a second.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrival {
    /// Rate asked for (open loops at a rate).
    pub target_rate: Figure,
    /// (N - 1) / (last - first due time): what the drawn schedule amounts to (open loops).
    pub scheduled_rate: Figure,
    /// (N - 1) / (last - first send).
    pub achieved_rate: Figure,
    /// Largest delay between due and send, in milliseconds.
    pub max_send_lag_ms: Figure,
}

impl Arrival {
    pub(crate) fn of(requests: &[Request], spec: &CellSpec) -> Self {
        let sent = || requests.iter().filter_map(|r| Some((r.sent?, r.sched)));
        Arrival {
            target_rate: match spec.load {
                Load::Rate { per_second, .. } => Ok(per_second),
                Load::Concurrency(_) => missing("a closed loop has no target rate"),
                Load::Trace { .. } => missing("a trace has a schedule, not a target rate"),
            },
            scheduled_rate: match spec.load {
                Load::Concurrency(_) => missing("a closed loop has no schedule"),
                _ => rate(sent().map(|(_, sched)| sched)),
            },
            achieved_rate: rate(sent().map(|(sent, _)| sent)),
            max_send_lag_ms: sent()
                .map(|(sent, sched)| millis(sent.saturating_sub(sched)))
                .max_by(f64::total_cmp)
                .ok_or_else(|| Missing::because("no request was sent")),
        }
    }

    /// The rate that the sends are held against: the target where the spacing is constant, else the drawn
    /// schedule, whose random gaps need not add up to the target.
    pub(crate) fn expected(&self, spec: &CellSpec) -> Option<f64> {
        match spec.load {
            Load::Concurrency(_) => None,
            Load::Rate {
                per_second,
                burstiness: None,
                ..
            } => Some(per_second),
            _ => self.scheduled_rate.as_ref().ok().copied(),
        }
    }
}

fn rate(times: impl Iterator<Item = u64>) -> Figure {
    let (mut first, mut last, mut count) = (u64::MAX, 0, 0_u64);
    for t in times {
        first = first.min(t);
        last = last.max(t);
        count += 1;
    }
    if count < 2 || last <= first {
        return missing("a rate needs two sends at two instants");
    }
    Ok((count - 1) as f64 / seconds(u128::from(last - first)))
}
