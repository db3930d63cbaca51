use std::path::PathBuf;

/// Why a workload cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// A file cannot be opened or read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's answer.
        #[source]
        source: std::io::Error,
    },
    /// A workload file is not valid TOML, or holds an unknown word.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What is wrong; names the unknown word and the valid ones.
        message: String,
    },
    /// A setting has a value that makes no sense.
    #[error("{field} is {value}: expected {expected}")]
    Setting {
        /// The setting.
        field: &'static str,
        /// What it is.
        value: String,
        /// What it should be.
        expected: String,
    },
    /// A setting that this kind of workload does not use.
    #[error(
        "{field} has no meaning for a {kind} workload: settings of this kind are {}",
        valid.join(", ")
    )]
    NotForKind {
        /// The setting.
        field: &'static str,
        /// The kind of workload.
        kind: &'static str,
        /// The settings this kind uses.
        valid: &'static [&'static str],
    },
    /// A line (or a whole file) that should be JSON is not.
    #[error("{}:{line}:{column}: not the JSON expected here", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// The parser's complaint.
        #[source]
        source: serde_json::Error,
    },
    /// A field of one line of a file is missing or of the wrong type.
    #[error("{}:{line}: `{field}` is {found}: expected {expected}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// The field.
        field: &'static str,
        /// What stands there.
        found: String,
        /// What should stand there.
        expected: &'static str,
    },
    /// A trace whose timestamps go backwards.
    #[error(
        "{}:{line}: `timestamp` is {this_ms} ms, after {previous_ms} ms on an earlier line: \
         expected timestamps that never go backwards (sort the file first)",
        path.display()
    )]
    Backwards {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Timestamp of the line before.
        previous_ms: f64,
        /// Timestamp of this line.
        this_ms: f64,
    },
    /// A file without a single usable request.
    #[error("{}: no usable request in it: {detail}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// How many entries were seen, and what was looked for.
        detail: String,
    },
    /// A file that holds fewer requests than a cell wants.
    #[error(
        "{} holds {held} requests, the cell wants {wanted}: ask for at most {held}, \
         or set `repeat = true` (repeated prompts hit the prefix cache)",
        path.display()
    )]
    Exhausted {
        /// The file.
        path: PathBuf,
        /// Requests it holds.
        held: u64,
        /// Requests asked for.
        wanted: u64,
    },
}
