//! Service-level objectives.

use crate::figure::{Figure, millis, missing, ratio};
use crate::latency::tpot_ms;
use crate::options::{Slo, SloMetric};
use crate::request::Request;

/// How many requests met the objectives.
#[derive(Clone, Debug, PartialEq)]
pub struct Goodput {
    /// The objectives.
    pub slos: Vec<Slo>,
    /// Requests a second that met all of them.
    pub request_goodput: Figure,
    /// Share of completed and failed requests that met all of them; a failure meets none.
    pub attainment: Figure,
}

impl Goodput {
    pub(crate) fn of(
        requests: &[Request],
        failed: u64,
        slos: &[Slo],
        open_loop: bool,
        duration_s: &Figure,
    ) -> Self {
        let (request_goodput, attainment) = if slos.is_empty() {
            (
                missing("no objective was given"),
                missing("no objective was given"),
            )
        } else {
            let done = || requests.iter().filter(|r| r.completed());
            let good = done().filter(|r| slos.iter().all(|slo| meets(r, slo, open_loop)));
            let good = good.count() as f64;
            let ended = done().count() as u64 + failed;
            let duration = duration_s.clone();
            (
                duration.and_then(|s| ratio(good, s, "the window is empty")),
                ratio(good, ended as f64, "no request ended"),
            )
        };
        Goodput {
            slos: slos.to_vec(),
            request_goodput,
            attainment,
        }
    }
}

/// Whether one completed request meets one objective. In an open loop latency counts from the due time,
/// so that a client or server that falls behind cannot hide it.
fn meets(r: &Request, slo: &Slo, open_loop: bool) -> bool {
    let start = if open_loop { Some(r.sched) } else { r.sent };
    let since = |t: Option<u64>| Some(millis(t?.saturating_sub(start?)));
    match slo.metric {
        SloMetric::Ttft => since(r.first).is_some_and(|ms| ms <= slo.ms),
        SloMetric::E2el => since(r.last).is_some_and(|ms| ms <= slo.ms),
        // One token has no time per token: vLLM counts it as 0, and so it passes.
        SloMetric::Tpot => tpot_ms(r).is_none_or(|ms| ms <= slo.ms),
    }
}
