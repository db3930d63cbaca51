//! Whether the load that was asked for reached the server.

use super::{Case, Findings, TOLERANCE};

/// Requests per unit of concurrency below which ramp and drain weigh on every number.
const WAVES: u64 = 4;

pub(super) fn check(case: &Case<'_>, found: &mut Findings) {
    match case.spec.load.concurrency() {
        Some(target) => closed_loop(case, target, found),
        None => open_loop(case, found),
    }
}

fn closed_loop(case: &Case<'_>, target: u32, found: &mut Findings) {
    let summary = case.summary;
    let peak = summary.throughput.max_concurrent_requests;
    if peak < u64::from(target) {
        found.flag(
            "concurrency_not_reached",
            format!("at most {peak} of {target} requests were in flight at once"),
        );
    }
    if let Some(server) = case.server
        && let (Some(running), Some(waiting)) = (server.running_peak, server.waiting_peak)
        && running < f64::from(target)
        && waiting > 0.0
        && server.gauge_samples >= case.limits.min_gauge_samples
    {
        found.flag(
            "concurrency_not_reached",
            format!(
                "the server ran at most {running} of {target} requests while others waited: \
                 --max-num-seqs, or a full KV cache?"
            ),
        );
    }
    let sent = summary.counts.measured;
    if sent < WAVES * u64::from(target) {
        found.note(
            "few_waves",
            format!(
                "{sent} requests at concurrency {target} are {:.1} waves: ramp and drain weigh on every \
                 number, {} requests would be better",
                sent as f64 / f64::from(target.max(1)),
                WAVES * u64::from(target)
            ),
        );
    }
}

fn open_loop(case: &Case<'_>, found: &mut Findings) {
    let arrival = &case.summary.arrival;
    let (Some(expected), Ok(achieved)) = (arrival.expected(case.spec), &arrival.achieved_rate)
    else {
        return;
    };
    if *achieved < (1.0 - TOLERANCE) * expected {
        found.flag(
            "rate_not_reached",
            format!(
                "sent {achieved:.1} requests a second of {expected:.1} ({:.1} %), at most {:.1} ms late",
                achieved / expected * 100.0,
                arrival.max_send_lag_ms.as_ref().map_or(0.0, |lag| *lag)
            ),
        );
    }
}
