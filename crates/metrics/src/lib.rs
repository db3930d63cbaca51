//! Pure functions from records to numbers: latencies, rates, stalls, intervals, verdicts.
//!
//! No I/O and no clock: the same records give the same numbers, in any order. Each number is defined once,
//! in `docs/metrics.md`, which is also the page [`definitions`]; a missing one carries the reason why
//! ([`Figure`]).
//!
//! Two requests decode at 16 ms a step; one of them waits 2.7 s while another prompt is prefilled. The usual
//! rate makes this server look slower than one at 19.16 ms a step, the filtered rate does not, and the
//! waiting stays visible:
//!
//! ```
//! use linktax_metrics::{Options, summarize};
//! use linktax_records::{
//!     CacheMode, CellSpec, EventClass, Load, Nanos, Outcome, Phase, Reads, RequestRecord, TokenSource,
//! };
//!
//! fn request(index: u64, stalled: bool) -> RequestRecord {
//!     let mut reads = Reads::default();
//!     let mut t = Nanos::from_millis(300);
//!     for token in 0..128 {
//!         let stall = stalled && token == 60;
//!         t += Nanos::from_millis(if stall { 2700 } else { 16 });
//!         reads.push(t, 1, EventClass::Content, 240, 1);
//!     }
//!     RequestRecord {
//!         cell: 0,
//!         attempt: 0,
//!         index,
//!         phase: Phase::Measured,
//!         replica: 0,
//!         request_id: String::new(),
//!         input_len: Some(1024),
//!         output_len: 128,
//!         t_sched_ns: Nanos::ZERO,
//!         t_sent_ns: Some(Nanos::ZERO),
//!         t_headers_ns: None,
//!         t_done_ns: t,
//!         reconnected: false,
//!         outcome: Outcome::Completed,
//!         failure: None,
//!         finish_reason: Some("length".to_owned()),
//!         done_marker: true,
//!         usage: None,
//!         token_source: TokenSource::TokenIds,
//!         keepalives: 0,
//!         socket_reads: 128,
//!         reads,
//!         delivery_lag_ns: Vec::new(),
//!         text: None,
//!     }
//! }
//!
//! let records = vec![request(0, true), request(1, false)];
//! let spec = CellSpec {
//!     index: 0,
//!     workload: "random".to_owned(),
//!     input_len: Some(1024),
//!     output_len: Some(128),
//!     load: Load::Concurrency(2),
//!     requests: Some(2),
//!     duration_s: None,
//!     cache: CacheMode::Cold,
//! };
//! let Ok(summary) = summarize(&records, &spec, &Options::default());
//! let json = summary.to_json();
//! assert_eq!(json["decode_tok_s"], 62.5);
//! assert_eq!(json["usual_decode_tok_s"].as_f64().map(f64::round), Some(45.0));
//! assert_eq!(summary.stalls(), Some((2.7, 1)));
//! assert_eq!(json["steady_output_throughput"], serde_json::Value::Null);
//! assert_eq!(
//!     json["null_reasons"]["steady_output_throughput"],
//!     "2 requests at concurrency 2 are one wave: there is no steady state",
//! );
//! ```

mod arrival;
mod bootstrap;
mod counts;
mod decode;
mod distribution;
mod error;
mod figure;
mod goodput;
mod inflight;
mod json;
mod latency;
mod options;
mod request;
mod server;
mod spool;
mod summary;
mod survey;
mod threshold;
mod throughput;
mod verdict;

#[doc = include_str!("../../../docs/metrics.md")]
pub mod definitions {}

pub use arrival::Arrival;
pub use bootstrap::Interval;
pub use counts::{Counts, Tokens};
pub use decode::{Decode, GapClasses};
pub use distribution::{Distribution, PERCENTILE_METHOD};
pub use error::Error;
pub use figure::{Figure, Missing};
pub use goodput::Goodput;
pub use latency::Latencies;
pub use options::{Options, Slo, SloMetric, StallGap};
pub use server::{ServerMeans, histogram_quantile, server_means};
pub use summary::{CellSummary, summarize};
pub use threshold::Separability;
pub use throughput::{Rates, Steady, Throughput};
pub use verdict::{Limits, judge};
