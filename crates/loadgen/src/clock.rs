//! The one monotonic clock of a run, and CPU clocks.

use linktax_records::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// Absolute `CLOCK_MONOTONIC`: the clock of every time in a record, and of the mock server's stamps.
pub trait Clock {
    /// The time now.
    fn now(&self) -> Nanos;
}

/// The machine's monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Monotonic;

impl Clock for Monotonic {
    fn now(&self) -> Nanos {
        read(ClockId::Monotonic)
    }
}

/// CPU time of the calling thread.
pub(crate) fn thread_cpu() -> Nanos {
    read(ClockId::ThreadCPUTime)
}

/// CPU time of the process.
pub(crate) fn process_cpu() -> Nanos {
    read(ClockId::ProcessCPUTime)
}

fn read(id: ClockId) -> Nanos {
    let t = clock_gettime(id);
    // Both fields are non-negative for these clocks.
    Nanos::from_nanos((t.tv_sec as u64).saturating_mul(1_000_000_000) + t.tv_nsec as u64)
}

/// Wall-clock time in nanoseconds since 1970, for the manifest only.
pub fn unix_now_ns() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
}
