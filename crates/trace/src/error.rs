//! What can go wrong with an export.

use std::io;
use std::path::{Path, PathBuf};

/// Why an export cannot be read, or not for this purpose. Fields say where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file cannot be opened, read or written.
    #[error("{}: {what}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        what: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Zero bytes.
    #[error("{}: the file is empty; the export did not finish, run `nsys export` again", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Something else than SQLite, or SQLite without any of the tables of an export.
    #[error("{}: not an Nsight SQLite export ({found}); make one with `nsys export --type sqlite FILE.nsys-rep`", path.display())]
    NotAnExport {
        /// The file.
        path: PathBuf,
        /// What it seems to be.
        found: String,
    },
    /// The header promises another size than the file has.
    #[error(
        "{}: truncated: the header says {expected} bytes, the file has {actual}; the export was cut off or the copy is incomplete, export or copy it again",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Bytes by the header: page count × page size.
        expected: u64,
        /// Bytes there are.
        actual: u64,
    },
    /// A write-ahead log or rollback journal lies beside the file.
    #[error(
        "{}: {} lies beside it, so the file is being written or was left half-written; wait for the export to end, or fold it in with `sqlite3 FILE 'PRAGMA wal_checkpoint(TRUNCATE)'`",
        path.display(),
        sibling.display()
    )]
    WalPending {
        /// The file.
        path: PathBuf,
        /// The log or journal.
        sibling: PathBuf,
    },
    /// A report of Nsight Systems, and no `nsys` to export it.
    #[error("{}: an nsys report, not an export, and {why}; run: {command}", path.display())]
    NeedsExport {
        /// The report.
        path: PathBuf,
        /// Why it could not be exported here.
        why: String,
        /// The command to run where nsys is.
        command: String,
    },
    /// A required table is not there.
    #[error("{}: no {what} in this export; {hint}", path.display())]
    NoGpuRows {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
        /// What to check.
        hint: String,
    },
    /// Required columns of a table are missing.
    #[error(
        "{}: schema {schema}: table {table} lacks {}; export again with a version of nsys this tool knows",
        path.display(),
        columns.join(", ")
    )]
    MissingColumns {
        /// The file.
        path: PathBuf,
        /// Schema version, as the export states it.
        schema: String,
        /// The table.
        table: &'static str,
        /// The columns that are not there.
        columns: Vec<String>,
    },
    /// A window that shares no instant with the capture.
    #[error(
        "window {} s is outside the capture {} s",
        seconds(*from, *to),
        seconds(*first, *last)
    )]
    WindowOutside {
        /// Start of the window, nanoseconds.
        from: i64,
        /// End of the window, nanoseconds.
        to: i64,
        /// Start of the first operation, nanoseconds.
        first: i64,
        /// End of the last operation, nanoseconds.
        last: i64,
    },
    /// Fewer GPUs than asked for.
    #[error(
        "kernels from {seen} GPU(s), {expected} expected: other ranks were not traced (start nsys above the process that spawns the workers, add --trace-fork-before-exec=true, or give one file a rank)"
    )]
    MissingGpus {
        /// How many were asked for.
        expected: u32,
        /// How many have GPU rows.
        seen: u32,
    },
    /// SQLite refused.
    #[error("{}: {what}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What was being read.
        what: String,
        /// The cause.
        #[source]
        source: sqlx::Error,
    },
    /// SQLite refused while the big tables were streamed.
    #[error("{}: table {table}, after {row} rows: {message}", path.display())]
    Bulk {
        /// The file.
        path: PathBuf,
        /// The table.
        table: String,
        /// Rows read before.
        row: u64,
        /// SQLite's words.
        message: String,
    },
    /// A file of kernel rules that cannot be used.
    #[error("{}:{line}: {what}", path.as_deref().unwrap_or(Path::new("built-in kernel rules")).display())]
    Rules {
        /// The file; `None` for the rules in the binary.
        path: Option<PathBuf>,
        /// The line, from 1.
        line: usize,
        /// What is wrong, with the valid words where a word is.
        what: String,
    },
    /// The demanded method finds no steps.
    #[error(
        "lane {lane} (pid {pid}, device {device}): no steps by {method}; leave the method out to try all"
    )]
    NoSteps {
        /// Position of the lane.
        lane: usize,
        /// CUDA ordinal.
        device: u32,
        /// Process.
        pid: u32,
        /// The method.
        method: &'static str,
    },
    /// The buckets of a step do not sum to it: a fault of this tool, never of the input.
    #[error(
        "lane {lane}, step {step}: the buckets sum to {sum} ns, the step lasts {step_ns} ns; please report this"
    )]
    SplitMismatch {
        /// Position of the lane.
        lane: usize,
        /// Index of the step.
        step: u32,
        /// Sum of the buckets.
        sum: u64,
        /// Length of the step.
        step_ns: u64,
    },
    /// The collectives of the ranks cannot be paired.
    #[error("ranks not alignable: lane {lane} against lane {reference}, step {step}: {why}")]
    NotAlignable {
        /// Position of the lane that does not fit.
        lane: usize,
        /// Position of the lane it was compared with.
        reference: usize,
        /// Index of the first step that differs.
        step: u32,
        /// What differs.
        why: String,
    },
    /// The capture to take shares from shows no graph node by node.
    #[error(
        "lane {lane}: no graph nodes to take shares from; record that capture with --cuda-graph-trace=node"
    )]
    NoGraphNodes {
        /// Position of the lane.
        lane: usize,
    },
    /// There is nothing to replay.
    #[error("no replay: {why}")]
    NoReplay {
        /// Why.
        why: String,
    },
    /// The replay at factor 1 does not give the measured time, so its projections mean nothing.
    #[error(
        "replay refused: at factor 1 it gives {replayed_ns} ns, measured are {measured_ns} ns ({:+.2} %, at most 2 % may differ)",
        (*replayed_ns as f64 / *measured_ns as f64 - 1.0) * 100.0
    )]
    ReplayMismatch {
        /// Replayed time.
        replayed_ns: i64,
        /// Measured time.
        measured_ns: i64,
    },
    /// A specification of a synthetic export that is not TOML, or has an unknown key or word.
    #[error("{}: not a specification", path.display())]
    SpecSyntax {
        /// The specification.
        path: PathBuf,
        /// Where and what.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A specification of a synthetic export that asks for something impossible.
    #[error("{}: {what}", path.display())]
    Spec {
        /// The specification, or the export it was for.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Two captures whose kernels were classified by different rules.
    #[error(
        "kernel rules differ: {a} against {b}; classify both captures with the same rules (the same --rules and version of linktax)"
    )]
    RulesDiffer {
        /// Hash of the first capture's rules.
        a: String,
        /// Hash of the second's.
        b: String,
    },
    /// A step that the capture does not have.
    #[error("no step {wanted}; {}", there.as_ref().map_or_else(|| "no steps were found".to_owned(), |(first, last)| format!("steps are {first} to {last}")))]
    NoSuchStep {
        /// The step, or the range of steps.
        wanted: String,
        /// First and last step there are; `None` without any.
        there: Option<(u32, u32)>,
    },
    /// More operations than a picture or a trace viewer can take.
    #[error("{found} operations in this range, at most {limit} fit; {hint}")]
    TooManyOps {
        /// Operations in the range.
        found: u64,
        /// The most there may be.
        limit: u64,
        /// What to do.
        hint: &'static str,
    },
    /// Something the tool itself could not do.
    #[error("{what}")]
    Internal {
        /// What.
        what: String,
    },
}

impl TraceError {
    pub(crate) fn io(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| TraceError::Io { path, what, source }
    }

    pub(crate) fn sqlite(path: &Path, what: impl Into<String>) -> impl FnOnce(sqlx::Error) -> Self {
        let (path, what) = (path.to_owned(), what.into());
        move |source| TraceError::Sqlite { path, what, source }
    }
}

/// `155.0-156.0`, with enough digits to tell the ends apart.
fn seconds(from: i64, to: i64) -> String {
    let digits = if to.abs_diff(from) >= 100_000_000 {
        1
    } else {
        6
    };
    format!(
        "{:.digits$}-{:.digits$}",
        from as f64 / 1e9,
        to as f64 / 1e9
    )
}
