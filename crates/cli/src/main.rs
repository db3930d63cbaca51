//! The `linktax` binary: arguments to a validated plan, a library call, terminal output and an exit code.

mod affinity;
mod bench;
mod calibrate;
mod cli;
mod exit;
mod export;
mod mock;
mod number;
mod output;
mod summarize;
mod table;
#[cfg(feature = "trace")]
mod trace;
#[cfg(not(feature = "trace"))]
#[path = "trace/lean.rs"]
mod trace;

fn main() -> std::process::ExitCode {
    let result = cli::run();
    exit::report(result)
}
