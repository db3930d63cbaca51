use std::io;

/// Why a run could not be started or carried on. A failed request is never one of these: it is an
/// [`Outcome`](linktax_records::Outcome) in its record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A base URL that cannot be used.
    #[error("base URL {url:?}: {reason}")]
    BaseUrl {
        /// As given.
        url: String,
        /// What is wrong with it, and what is expected.
        reason: String,
    },
    /// The server did not answer, or not as an OpenAI-compatible server would.
    #[error("{url}: {reason}")]
    Server {
        /// What was asked.
        url: String,
        /// What came, and what to do.
        reason: String,
    },
    /// A value of the plan that cannot be run.
    #[error("{option}: {reason}")]
    Plan {
        /// The option.
        option: String,
        /// What is wrong, and what is expected.
        reason: String,
    },
    /// Not enough file descriptors.
    #[error(
        "open files are limited to {limit} (hard limit {hard}), but {needed} are needed for this concurrency; \
         raise it with: ulimit -n {needed}"
    )]
    OpenFiles {
        /// Soft limit after trying to raise it.
        limit: u64,
        /// Hard limit.
        hard: u64,
        /// What the plan needs.
        needed: u64,
    },
    /// The workload cannot be read or used.
    #[error(transparent)]
    Workload(#[from] crate::workload::WorkloadError),
    /// A thread or runtime could not be started.
    #[error("cannot start a {what} thread")]
    Thread {
        /// Which one.
        what: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A receive thread ended without reporting; a defect of linktax.
    #[error("a receive thread ended early; please report this")]
    WorkerGone,
    /// TLS could not be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
}
