//! A run as two flat tables for data-frame tools: one row a request, one row a read.
//!
//! The tables hold records only: derived numbers (TTFT, TPOT) are a filter or a subtraction away and are defined in
//! one place, `docs/metrics.md`. Rows are those of the attempt that counts, all phases, cell after cell in the order
//! of `run.json`; within a cell, in the order in which requests ended. Memory is bounded by one batch of each table.
//!
//! `requests`: `cell`, `workload`, `cell_input_len`, `cell_output_len` and `concurrency` (null for open loops and
//! traces) come from the cell; the other columns are the scalar fields of a request record under their own names,
//! those of `failure` as `failure_status` and `failure_message`, and `reads` and `counted_tokens` for the number of
//! reads and the sum of their tokens. Kept texts and error bodies stay in `requests.jsonl`.
//!
//! `events`: `cell`, `index`, `phase`, `t_ns` since the request was sent, `t_abs_ns` since the cell's clock origin,
//! `tokens`, `class`, `bytes`, `events`. A request is named by `cell`, `phase` and `index` together.

mod events;
mod requests;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use linktax_records::RecordSource;

use crate::{RunReader, StoreError};
use events::EventRows;
use requests::RequestRows;
use table::Table;

/// What the tables are written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Parquet, compressed with Zstandard, in row groups of one batch each.
    Parquet,
    /// Comma-separated values with a header line; an empty field is a null.
    Csv,
}

impl Format {
    /// The file name's extension, without the dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Format::Parquet => "parquet",
            Format::Csv => "csv",
        }
    }
}

/// Writes `requests.EXT` and `events.EXT` into `out_dir` (made if absent) and returns their paths.
///
/// Files of those names are replaced, each at once when it is whole.
///
/// # Errors
///
/// When a record cannot be read, or a table cannot be written.
pub fn export(run: &RunReader, out_dir: &Path, format: Format) -> Result<Vec<PathBuf>, StoreError> {
    fs::create_dir_all(out_dir).map_err(StoreError::io("make the directory", out_dir))?;
    let mut requests = Table::<RequestRows>::create(out_dir, "requests", format)?;
    let mut events = Table::<EventRows>::create(out_dir, "events", format)?;
    for entry in &run.manifest().cells {
        // A scan cannot be stopped by its visitor: after an error the rest is skipped.
        let mut result = Ok(());
        run.cell_records(entry.spec.index).scan(&mut |record| {
            if result.is_ok() {
                requests.rows().push(&entry.spec, record);
                result = requests.flush_if_full();
            }
            for read in 0..record.reads.len() {
                if result.is_ok() {
                    events.rows().push(record, read);
                    result = events.flush_if_full();
                }
            }
        })?;
        result?;
    }
    Ok(vec![requests.finish()?, events.finish()?])
}
