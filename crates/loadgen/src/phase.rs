//! One phase of a cell (prime, warm-up, measured): what the receive threads are told to do.

use linktax_records::{CellSpec, Load, Nanos, Phase};

use crate::plan::in_flight_cap;

/// How a phase releases its requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pacing {
    /// So many streams, each sending its next request when the last one ended.
    Closed(u32),
    /// Open loop at a rate.
    Rate {
        per_second: f64,
        burstiness: Option<f64>,
        cap: Option<u32>,
    },
    /// Open loop at the workload's timestamps.
    Trace { speedup: f64, cap: Option<u32> },
}

/// The work of one phase, the same for every worker.
#[derive(Clone, Debug)]
pub(crate) struct PhaseJob {
    pub(crate) cell: CellSpec,
    pub(crate) attempt: u32,
    pub(crate) phase: Phase,
    pub(crate) pacing: Pacing,
    /// Requests of all workers together; `None` is bounded by time or by the workload.
    pub(crate) requests: Option<u64>,
    /// No request is due later than this after the start.
    pub(crate) duration: Option<Nanos>,
    /// Absolute time that the records' times count from.
    pub(crate) origin: Nanos,
}

/// Streams of the closed loop that primes and warms up before an uncapped open loop.
const PREPARING_STREAMS: u32 = 8;

impl PhaseJob {
    /// The measured phase of a cell.
    pub(crate) fn measured(cell: &CellSpec, attempt: u32, origin: Nanos) -> PhaseJob {
        let pacing = match cell.load {
            Load::Concurrency(c) => Pacing::Closed(c),
            Load::Rate {
                per_second,
                burstiness,
                max_concurrency,
            } => Pacing::Rate {
                per_second,
                burstiness,
                cap: max_concurrency,
            },
            Load::Trace {
                speedup,
                max_concurrency,
            } => Pacing::Trace {
                speedup,
                cap: max_concurrency,
            },
        };
        PhaseJob {
            cell: cell.clone(),
            attempt,
            phase: Phase::Measured,
            pacing,
            requests: cell.requests,
            duration: cell.duration_s.map(Nanos::from_secs_f64),
            origin,
        }
    }

    /// A phase of `requests` requests that prepares the measured one, in a closed loop.
    pub(crate) fn preparing(
        cell: &CellSpec,
        attempt: u32,
        origin: Nanos,
        phase: Phase,
        requests: u64,
    ) -> PhaseJob {
        let streams = in_flight_cap(&cell.load).unwrap_or(PREPARING_STREAMS);
        let streams = u32::try_from(requests.min(u64::from(streams))).unwrap_or(streams);
        PhaseJob {
            cell: cell.clone(),
            attempt,
            phase,
            pacing: Pacing::Closed(streams.max(1)),
            requests: Some(requests),
            duration: None,
            origin,
        }
    }

    /// Streams of worker `worker` out of `workers`, in a closed loop; the cap of an open one.
    pub(crate) fn streams(&self, (worker, workers): (u32, u32)) -> Option<usize> {
        let all = match self.pacing {
            Pacing::Closed(c) => Some(c),
            Pacing::Rate { cap, .. } | Pacing::Trace { cap, .. } => cap,
        }?;
        let extra = u32::from(worker < all % workers);
        Some((all / workers + extra) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linktax_records::CacheMode;

    #[test]
    fn streams_are_dealt_without_losing_any() {
        let cell = CellSpec {
            index: 0,
            workload: "w".to_owned(),
            input_len: Some(1),
            output_len: Some(1),
            load: Load::Concurrency(7),
            requests: Some(7),
            duration_s: None,
            cache: CacheMode::Cold,
        };
        let job = PhaseJob::measured(&cell, 0, Nanos::ZERO);
        let dealt: Vec<_> = (0..3).filter_map(|w| job.streams((w, 3))).collect();
        assert_eq!(dealt, [3, 2, 2]);
        let warm = PhaseJob::preparing(&cell, 0, Nanos::ZERO, Phase::Warmup, 3);
        assert_eq!(warm.pacing, Pacing::Closed(3));
    }
}
