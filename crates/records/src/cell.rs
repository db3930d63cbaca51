use std::fmt;

use serde::{Deserialize, Serialize};

/// The declared state of the server's prefix cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheMode {
    /// Distinct prompts: a fresh nonce in the first block of each.
    Cold,
    /// Every prompt was sent once before the clock started.
    Warm,
    /// This share of each prompt's tokens is common to all of them and was primed.
    Prefix(f64),
    /// The workload decides (files and traces): nothing is declared, nothing is checked.
    Workload,
}

impl fmt::Display for CacheMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheMode::Cold => f.write_str("cold"),
            CacheMode::Warm => f.write_str("warm"),
            CacheMode::Prefix(share) => write!(f, "prefix={share}"),
            CacheMode::Workload => f.write_str("workload"),
        }
    }
}

/// How requests are released.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// Closed loop: exactly this many requests in flight.
    Concurrency(u32),
    /// Open loop at a target rate.
    Rate {
        /// Requests a second.
        per_second: f64,
        /// Gamma shape of the gaps: 1 is Poisson, larger is smoother; `None` is constant spacing.
        burstiness: Option<f64>,
        /// Most requests in flight, if capped; time spent waiting for a slot counts as latency.
        max_concurrency: Option<u32>,
    },
    /// Requests are released at the timestamps of the workload.
    Trace {
        /// Time runs this many times faster than in the file.
        speedup: f64,
        /// Most requests in flight, if capped.
        max_concurrency: Option<u32>,
    },
}

impl Load {
    /// The fixed concurrency of a closed loop.
    pub fn concurrency(&self) -> Option<u32> {
        match self {
            Load::Concurrency(c) => Some(*c),
            _ => None,
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Load::Concurrency(c) => write!(f, "{c}"),
            Load::Rate { per_second, .. } => write!(f, "{per_second}/s"),
            Load::Trace { speedup, .. } => write!(f, "trace x{speedup}"),
        }
    }
}

/// One point of a run: what was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellSpec {
    /// Position in the run.
    pub index: u32,
    /// Name of the workload.
    pub workload: String,
    /// Prompt tokens asked for (the mean, where lengths are drawn); `None` for files and traces.
    pub input_len: Option<u64>,
    /// Output tokens asked for (the mean, where lengths are drawn); `None` for files and traces.
    pub output_len: Option<u64>,
    /// Closed loop, open loop or trace.
    pub load: Load,
    /// Measured requests asked for; `None` when the cell is bounded by time.
    pub requests: Option<u64>,
    /// Length of the measured phase, when bounded by time.
    pub duration_s: Option<f64>,
    /// Declared cache state.
    pub cache: CacheMode,
}

/// What the client observed of itself during one cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientStats {
    /// Receive threads.
    pub threads: u32,
    /// Length of the measured phase on the client's clock.
    pub wall_s: f64,
    /// CPU seconds of the receive threads.
    pub loop_cpu_s: f64,
    /// CPU seconds of the whole process.
    pub process_cpu_s: f64,
    /// Busiest receive thread's CPU time as a share of the wall time, in percent.
    pub loop_cpu_pct: f64,
    /// Lateness of a periodic timer on the receive threads: median, in ms.
    pub timer_lag_p50_ms: Option<f64>,
    /// Lateness of a periodic timer on the receive threads: 99th percentile, in ms.
    pub timer_lag_p99_ms: Option<f64>,
    /// Largest lateness, in ms.
    pub timer_lag_max_ms: Option<f64>,
    /// Seconds that the receive threads were runnable but not running (Linux scheduler statistics).
    pub run_queue_wait_s: Option<f64>,
    /// SSE data events received.
    pub events: u64,
    /// Socket reads of response bodies.
    pub socket_reads: u64,
    /// Share of token-bearing events that shared a read with another one, 0 to 1.
    pub coalesced_share: Option<f64>,
    /// CPU microseconds of the receive threads an event.
    pub loop_cpu_us_per_event: Option<f64>,
    /// Largest resident set of the process so far, in bytes.
    pub max_rss_bytes: Option<u64>,
    /// Connections opened while the cell ran (before the `t_sent` of their request).
    pub reconnects: u64,
}

/// A reason or a remark with a stable code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Stable identifier, for machines.
    pub code: String,
    /// One sentence for people, with the numbers in it.
    pub message: String,
}

impl Note {
    /// A note with this code and message.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Note {
            code: code.to_owned(),
            message: message.into(),
        }
    }
}

/// Whether a cell may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictStatus {
    /// Fit for comparison.
    Valid,
    /// Measured, but something is off: see the reasons.
    Flagged,
    /// No number of this cell should be used.
    Invalid,
}

/// A cell's verdict with its reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The status.
    pub status: VerdictStatus,
    /// Why it is not valid; empty when it is.
    #[serde(default)]
    pub reasons: Vec<Note>,
    /// Remarks that do not make the cell less valid.
    #[serde(default)]
    pub notes: Vec<Note>,
}
