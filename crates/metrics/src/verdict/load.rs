//! Whether the load that was asked for reached the server.

use linktax_records::ServerDelta;

use super::{Case, Findings, TOLERANCE};
use crate::server::server_means;

/// Requests per unit of concurrency below which ramp and drain weigh on every number.
const WAVES: u64 = 4;

/// Share of the target that may wait in the server's queue, on average, without a remark.
const QUEUED: f64 = 0.25;

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
    held(case, target, found);
    if let Some(server) = case.server {
        in_the_server(case, server, target, found);
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

/// A peak says little of a load that stood still between two answers. Failures are another matter: they may take no
/// time at all.
fn held(case: &Case<'_>, target: u32, found: &mut Findings) {
    let counts = &case.summary.counts;
    if counts.completed > counts.failed
        && let Ok(steady) = &case.summary.steady
        && let Ok(mean) = steady.mean_concurrency
        && mean < case.limits.min_mean_concurrency_share * f64::from(target)
    {
        found.flag(
            "concurrency_not_held",
            format!(
                "{mean:.2} of {target} requests were in flight on average, although each one follows at once: \
                 streams stayed open after their last token, or connections took long to open"
            ),
        );
    }
}

fn in_the_server(case: &Case<'_>, server: &ServerDelta, target: u32, found: &mut Findings) {
    let sampled = server.gauge_samples >= case.limits.min_gauge_samples;
    match (server.running_peak, server.waiting_peak) {
        (Some(running), Some(waiting)) if sampled => {
            if running < f64::from(target) && waiting > 0.0 {
                found.flag(
                    "concurrency_not_reached",
                    format!(
                        "the server ran at most {running} of {target} requests while others waited: \
                         --max-num-seqs, or a full KV cache?"
                    ),
                );
            }
        }
        _ => queued(case, server, target, found),
    }
}

/// Too few samples of the gauges: the queue's own histogram still says how many waited (Little's law).
fn queued(case: &Case<'_>, server: &ServerDelta, target: u32, found: &mut Findings) {
    let (Some(queue), Ok(window)) = (&server.queue, &case.summary.throughput.duration_s) else {
        return;
    };
    let waiting = queue.sum_s / window;
    if let Some(mean) = server_means(server).queue_ms
        && waiting > QUEUED * f64::from(target)
    {
        found.note(
            "server_queue",
            format!(
                "requests waited {mean:.1} ms in the server's queue on average, {waiting:.1} of {target} at a time; \
                 too few samples of its gauges to tell whether it ever ran {target} at once: run a longer cell, or \
                 with a smaller --metrics-interval"
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
