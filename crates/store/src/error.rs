use std::io;
use std::path::{Path, PathBuf};

/// What can go wrong with a run directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The output path exists and is something else.
    #[error(
        "{}: is not a directory; a run is a directory, choose another --out",
        path.display()
    )]
    NotADirectory {
        /// The path that was asked for.
        path: PathBuf,
    },
    /// The directory holds the files of an earlier run.
    #[error(
        "{}: already holds a run: choose another --out, or continue it with --resume",
        path.display()
    )]
    AlreadyARun {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has no `run.json`.
    #[error(
        "{}: holds no run.json, so it is not a run directory; expected what `linktax bench --out` wrote",
        path.display()
    )]
    NotARun {
        /// The directory.
        path: PathBuf,
    },
    /// The directory cannot be written to.
    #[error(
        "{}: is not writable; choose another --out or change its permissions",
        path.display()
    )]
    NotWritable {
        /// The path that could not be made or opened.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Another process writes this run.
    #[error(
        "{}: another process{} is writing this run; wait for it or choose another --out",
        path.display(),
        pid.map(|p| format!(" (pid {p})")).unwrap_or_default()
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process that holds it, where its lock file says so.
        pid: Option<u32>,
    },
    /// The system refused an operation on a file.
    #[error("{}: cannot {action}", path.display())]
    Io {
        /// What was attempted, as a verb with its object.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A value could not be written as JSON.
    #[error("{}: cannot encode as JSON", path.display())]
    Encode {
        /// The file it was meant for.
        path: PathBuf,
        /// What the encoder said.
        #[source]
        source: serde_json::Error,
    },
    /// `run.json` or `server.json` is not what it should be.
    #[error(
        "{}, line {line}, column {column}: {problem}; expected the layout of docs/schema, version {}: \
         restore the file or run again into another --out",
        path.display(),
        linktax_records::SCHEMA_VERSION
    )]
    Document {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1 (0: at the end of the line before).
        column: usize,
        /// What is wrong there.
        problem: String,
    },
    /// The run was written in a layout that this version does not know.
    #[error(
        "{}: schema_version is {found}, this linktax reads {known}; use the linktax that wrote the run, or a newer one",
        path.display()
    )]
    SchemaVersion {
        /// The `run.json`.
        path: PathBuf,
        /// The version in the file.
        found: u64,
        /// The version this build reads.
        known: u32,
    },
    /// A line of `requests.jsonl` is not a request record.
    #[error(
        "{}, line {line}, column {column}: {problem}; expected one request record a line \
         (docs/schema/request.schema.json): repair or delete that line",
        path.display()
    )]
    Record {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
        /// Column (byte), from 1.
        column: usize,
        /// What is wrong there.
        problem: String,
    },
    /// The tables could not be written or read back by the data-frame library.
    #[cfg(feature = "parquet")]
    #[error("{}: cannot write the table", path.display())]
    Table {
        /// The table's file.
        path: PathBuf,
        /// What polars said.
        #[source]
        source: polars::error::PolarsError,
    },
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.to_owned();
        move |source| StoreError::Io {
            action,
            path,
            source,
        }
    }

    pub(crate) fn document(path: &Path, error: &serde_json::Error) -> StoreError {
        StoreError::Document {
            path: path.to_owned(),
            line: error.line(),
            column: error.column(),
            problem: without_position(error),
        }
    }

    pub(crate) fn record(path: &Path, line: u64, error: &serde_json::Error) -> StoreError {
        StoreError::Record {
            path: path.to_owned(),
            line,
            column: error.column().max(1),
            problem: without_position(error),
        }
    }
}

/// The message of a JSON error without its own "at line 1 column 57": the decoder sees one line of a
/// file at a time, so its line number would contradict ours.
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}
