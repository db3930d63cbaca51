//! A run directory on disk: append, resume, read back, export.
//!
//! ```text
//! runs/<name>/
//!   run.json              the manifest (RunManifest): cells, results, environment
//!   requests.jsonl        one line a request (RequestRecord), appended when it ends
//!   server.json           what the servers said before and after each cell
//!   requests.jsonl.torn   only after a resume: the bytes of a record that a crash cut off
//! ```
//!
//! One process writes a run at a time ([`RunWriter`]); any number may read it, also while it grows
//! ([`RunReader`]). Every file is readable at any moment, whatever killed the writer.
//!
//! ```
//! use linktax_records::{
//!     CacheMode, CellEntry, CellSpec, CellStatus, GpuCount, Load, Nanos, Outcome, Phase, Reads,
//!     RecordSource, RequestRecord, RunManifest, RunStatus, SCHEMA_VERSION, TokenSource, ToolInfo,
//! };
//! use linktax_store::{RunReader, RunWriter, StoreError};
//!
//! # fn main() -> Result<(), StoreError> {
//! let manifest = RunManifest {
//!     schema_version: SCHEMA_VERSION,
//!     tool: ToolInfo { name: "linktax".into(), version: "0.1.0".into() },
//!     status: RunStatus::Incomplete,
//!     command: vec!["linktax".into(), "bench".into()],
//!     arm: "nvlink".into(),
//!     started_unix_ns: 1_764_000_000_000_000_000,
//!     finished_unix_ns: None,
//!     seed: 7,
//!     nonce: "00c0ffee".into(),
//!     gpus: GpuCount { count: Some(2), source: "flag".into() },
//!     plan: serde_json::Value::Null,
//!     environment: serde_json::Map::new(),
//!     servers: vec![],
//!     percentile_method: "linear".into(),
//!     cells: vec![CellEntry {
//!         spec: CellSpec {
//!             index: 0,
//!             workload: "random".into(),
//!             input_len: Some(1024),
//!             output_len: Some(128),
//!             load: Load::Concurrency(4),
//!             requests: Some(16),
//!             duration_s: None,
//!             cache: CacheMode::Cold,
//!         },
//!         status: CellStatus::Running,
//!         attempt: 0,
//!         started_unix_ns: None,
//!         results: None,
//!         server: None,
//!         client: None,
//!         verdict: None,
//!     }],
//!     notes: vec![],
//! };
//! let record = RequestRecord {
//!     cell: 0,
//!     attempt: 0,
//!     index: 0,
//!     phase: Phase::Measured,
//!     replica: 0,
//!     request_id: String::new(),
//!     input_len: Some(1024),
//!     output_len: 128,
//!     t_sched_ns: Nanos::ZERO,
//!     t_sent_ns: Some(Nanos::from_micros(3)),
//!     t_headers_ns: None,
//!     t_done_ns: Nanos::from_millis(5),
//!     reconnected: false,
//!     outcome: Outcome::Reset,
//!     failure: None,
//!     finish_reason: None,
//!     done_marker: false,
//!     usage: None,
//!     token_source: TokenSource::Events,
//!     keepalives: 0,
//!     socket_reads: 0,
//!     reads: Reads::default(),
//!     delivery_lag_ns: vec![],
//!     text: None,
//! };
//!
//! # let scratch = std::env::temp_dir().join(format!("linktax-store-doc-{}", std::process::id()));
//! # let dir = &scratch;
//! let mut run = RunWriter::create(dir, manifest)?;
//! run.append(&record)?;
//! drop(run); // or a crash
//!
//! let run = RunReader::open(dir)?;
//! assert!(run.is_incomplete());
//! let mut seen = 0;
//! run.cell_records(0).scan(&mut |r| seen += usize::from(r.outcome.is_failure()))?;
//! assert_eq!(seen, 1);
//! # let _ = std::fs::remove_dir_all(&scratch);
//! # Ok(())
//! # }
//! ```

mod error;
#[cfg(feature = "parquet")]
pub mod export;
mod index;
mod layout;
mod lock;
mod reader;
mod schema;
#[cfg(feature = "parquet")]
pub mod tables;
mod writer;

pub use error::StoreError;
pub use layout::{REQUESTS_FILE, RUN_FILE, SERVER_FILE, TORN_FILE};
pub use reader::{CellRecords, RunReader};
pub use schema::{REQUEST_SCHEMA, RUN_SCHEMA};
pub use writer::RunWriter;
