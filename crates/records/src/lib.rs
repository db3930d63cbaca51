//! The vocabulary of linktax: units, requests, cells and the manifest of a run.
//!
//! Everything a run leaves on disk is one of these types, and every reported number is a pure
//! function of them. This crate does no I/O and computes no statistics.
//!
//! ```
//! use linktax_records::{EventClass, Nanos, Reads};
//!
//! let mut reads = Reads::default();
//! reads.push(Nanos::from_millis(52), 1, EventClass::Content, 240, 1);
//! reads.push(Nanos::from_millis(62), 1, EventClass::Content, 240, 1);
//! assert_eq!(reads.first_token(), Some(Nanos::from_millis(52)));
//! assert_eq!(reads.counted_tokens(), 2);
//! ```

mod cell;
mod manifest;
mod reads;
mod request;
mod server;
mod source;
mod units;

pub use cell::{CacheMode, CellSpec, ClientStats, Load, Note, Verdict, VerdictStatus};
pub use manifest::{
    CellEntry, CellStatus, GpuCount, RunManifest, RunStatus, SCHEMA_VERSION, ToolInfo,
};
pub use reads::{EventClass, Reads};
pub use request::{FailureDetail, Outcome, Phase, RequestRecord, TokenSource, Usage};
pub use server::{HistogramDelta, ServerDelta, SpecDecode};
pub use source::RecordSource;
pub use units::Nanos;
