//! Exit codes, and the one place where an error is printed.

use std::io::{self, Write};
use std::process::ExitCode;

use crate::output::printable;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0: the result is good.
    Clean,
    /// 1: it ran, but the result is not clean; the reason was printed.
    NotClean,
    /// 2: no command was given; the help was printed.
    NoCommand,
}

/// Prints the error chain, if any, and gives the exit code: 0 clean, 1 not clean, 2 bad usage or unreadable input.
pub(crate) fn report(result: anyhow::Result<Exit>) -> ExitCode {
    match result {
        Ok(Exit::Clean) => ExitCode::SUCCESS,
        Ok(Exit::NotClean) => ExitCode::from(1),
        Ok(Exit::NoCommand) => ExitCode::from(2),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // One line: the chain joined, so that scripts can show it. Nothing can be done if stderr is gone.
            let line = format!("error: {error:#}");
            let _ = writeln!(io::stderr(), "{}", printable(&line));
            ExitCode::from(2)
        }
    }
}

/// `linktax … | head` is not an error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|e| e.downcast_ref::<io::Error>())
        .any(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
