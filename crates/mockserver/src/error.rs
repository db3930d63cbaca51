use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a mock server did not start or had to stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MockError {
    /// A value of the configuration makes no sense.
    #[error("mock server: `{key}` {reason}")]
    Config {
        /// The key as it stands in TOML.
        key: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// A configuration file is not TOML, has an unknown key or a wrong value.
    #[error("{}:{line}: {reason}", path.display())]
    ConfigFile {
        /// The file, as the caller named it.
        path: PathBuf,
        /// Line of the mistake, from 1.
        line: usize,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}")]
    Bind {
        /// The address asked for.
        addr: SocketAddr,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The server's thread, its runtime or its timer cannot be made.
    #[error("cannot start the mock server: {what}")]
    Start {
        /// What could not be made.
        what: &'static str,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}
