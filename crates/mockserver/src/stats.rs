use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use linktax_records::Nanos;

/// What a mock server has seen and done so far: the truth to hold a client's numbers against.
///
/// An answer is counted as ended right before its last byte goes out: a client that has read it finds it here.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct MockStats {
    /// TCP connections accepted.
    pub connections: u64,
    /// HTTP requests read, of any kind.
    pub http_requests: u64,
    /// Generation requests accepted, those hit by a fault included.
    pub requests: u64,
    /// Generation requests in flight now.
    pub streams: u64,
    /// Most generation requests in flight at once.
    pub peak_streams: u64,
    /// Generation requests that ended as planned, faults included.
    pub completed: u64,
    /// Generation requests that the client left.
    pub aborted: u64,
    /// Generation requests hit by a fault, and connections refused by one.
    pub faults: u64,
    /// SSE events written, `[DONE]` included and keep-alive comments not.
    pub events: u64,
    /// Tokens generated.
    pub tokens: u64,
    /// How late the server itself was.
    pub lag: Lag,
    /// The POST requests, if the configuration says `record_requests`.
    pub recorded: Vec<RecordedRequest>,
}

/// How late token steps were, from the planned time to the moment the server took them up.
///
/// This is the server's own error: a client's delay measured against the plan includes it, a delay
/// measured against the stamps in the text does not.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Lag {
    /// Steps taken.
    pub steps: u64,
    /// The latest one.
    pub max: Nanos,
    /// Sum over all steps.
    pub sum: Nanos,
    buckets: Vec<u64>,
}

impl Lag {
    /// The lag that a share `q` (0 to 1) of the steps did not exceed, at most 25 % too high; zero without steps.
    pub fn quantile(&self, q: f64) -> Nanos {
        let wanted = (q.clamp(0.0, 1.0) * self.steps as f64).ceil() as u64;
        let mut seen = 0;
        let found = self.buckets.iter().position(|n| {
            seen += n;
            *n > 0 && seen >= wanted
        });
        found.map_or(Nanos::ZERO, |i| {
            Nanos::from_nanos(bucket_end(i)).min(self.max)
        })
    }
}

/// A POST request as it came.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RecordedRequest {
    /// When its last byte had been read, on `CLOCK_MONOTONIC`.
    pub arrival: Nanos,
    /// The connection, counted from 1.
    pub connection: u64,
    /// The path.
    pub path: String,
    /// Header names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body, de-chunked.
    pub body: Vec<u8>,
}

const BUCKETS: usize = 256;

/// Four buckets an octave.
fn bucket(ns: u64) -> usize {
    match ns.checked_ilog2() {
        Some(octave) if octave >= 2 => {
            let quarter = (ns >> (octave - 2)) & 3;
            (octave as usize) * 4 + quarter as usize
        }
        _ => ns as usize,
    }
}

fn bucket_end(index: usize) -> u64 {
    if index < 8 {
        return index as u64;
    }
    let (octave, quarter) = (index / 4, (index % 4) as u64);
    let end = (u128::from(quarter) + 5) << (octave - 2);
    u64::try_from(end - 1).unwrap_or(u64::MAX)
}

/// The counters behind [`MockStats`]. One thread writes; any thread reads.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) http_requests: AtomicU64,
    pub(crate) requests: AtomicU64,
    streams: AtomicU64,
    peak_streams: AtomicU64,
    pub(crate) completed: AtomicU64,
    pub(crate) aborted: AtomicU64,
    pub(crate) faults: AtomicU64,
    pub(crate) events: AtomicU64,
    tokens: AtomicU64,
    lag_sum: AtomicU64,
    lag_max: AtomicU64,
    lag: [AtomicU64; BUCKETS],
    recorded: Mutex<Vec<RecordedRequest>>,
}

impl Default for Counters {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Counters {
            connections: zero(),
            http_requests: zero(),
            requests: zero(),
            streams: zero(),
            peak_streams: zero(),
            completed: zero(),
            aborted: zero(),
            faults: zero(),
            events: zero(),
            tokens: zero(),
            lag_sum: zero(),
            lag_max: zero(),
            lag: std::array::from_fn(|_| zero()),
            recorded: Mutex::default(),
        }
    }
}

/// Adds one and returns the new count.
pub(crate) fn count(counter: &AtomicU64) -> u64 {
    counter.fetch_add(1, Relaxed) + 1
}

impl Counters {
    pub(crate) fn stream_begins(&self) {
        let now = count(&self.streams);
        self.peak_streams.fetch_max(now, Relaxed);
    }

    pub(crate) fn stream_ends(&self) {
        self.streams.fetch_sub(1, Relaxed);
    }

    pub(crate) fn tokens(&self, n: u64) {
        self.tokens.fetch_add(n, Relaxed);
    }

    pub(crate) fn running(&self) -> u64 {
        self.streams.load(Relaxed)
    }

    pub(crate) fn late(&self, late_ns: u64) {
        self.lag_sum.fetch_add(late_ns, Relaxed);
        self.lag_max.fetch_max(late_ns, Relaxed);
        if let Some(n) = self.lag.get(bucket(late_ns)) {
            n.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn record(&self, request: RecordedRequest) {
        self.recorded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(request);
    }

    pub(crate) fn read(&self) -> MockStats {
        let get = |n: &AtomicU64| n.load(Relaxed);
        let buckets: Vec<u64> = self.lag.iter().map(get).collect();
        MockStats {
            connections: get(&self.connections),
            http_requests: get(&self.http_requests),
            requests: get(&self.requests),
            streams: get(&self.streams),
            peak_streams: get(&self.peak_streams),
            completed: get(&self.completed),
            aborted: get(&self.aborted),
            faults: get(&self.faults),
            events: get(&self.events),
            tokens: get(&self.tokens),
            lag: Lag {
                steps: buckets.iter().sum(),
                max: Nanos::from_nanos(get(&self.lag_max)),
                sum: Nanos::from_nanos(get(&self.lag_sum)),
                buckets,
            },
            recorded: self
                .recorded
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_of_known_lags() {
        let counters = Counters::default();
        (0..99).for_each(|_| counters.late(1_000));
        counters.late(5_000_000);
        let lag = counters.read().lag;
        assert_eq!((lag.steps, lag.max), (100, Nanos::from_millis(5)));
        let median = lag.quantile(0.5).as_nanos();
        assert!((1_000..=1_250).contains(&median), "{median}");
        assert_eq!(lag.quantile(1.0), Nanos::from_millis(5));
        assert_eq!(Lag::default().quantile(0.5), Nanos::ZERO);
    }

    proptest! {
        #[test]
        fn a_bucket_holds_its_values_within_a_quarter(ns: u64) {
            let i = bucket(ns);
            prop_assert!(i < BUCKETS);
            prop_assert!(bucket_end(i) >= ns);
            prop_assert!(u128::from(bucket_end(i)) <= u128::from(ns) * 5 / 4);
        }
    }
}
