//! The command line: subcommands and what they dispatch to.

use clap::{Parser, Subcommand};

use crate::exit::Exit;
use crate::{bench, calibrate, export, mock, summarize};

/// Measures what the interconnect costs an LLM server.
#[derive(Debug, Parser)]
#[command(
    name = "linktax",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Drive an OpenAI-compatible endpoint over a grid of concurrency × input length.
    Bench(Box<bench::args::BenchArgs>),
    /// Print the numbers of a run directory again, from its records.
    Summarize(summarize::SummarizeArgs),
    /// Write a run directory as Parquet or CSV.
    Export(export::ExportArgs),
    /// Measure this client's own lag and CPU cost against the built-in mock server.
    Calibrate(calibrate::CalibrateArgs),
    /// Run the built-in mock server.
    Mock(mock::MockArgs),
}

/// Parses the arguments and runs the command. Bad usage is printed by clap, with exit code 2.
pub(crate) fn run() -> anyhow::Result<Exit> {
    match Cli::parse().command {
        Command::Bench(args) => bench::run(*args),
        Command::Summarize(args) => summarize::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Mock(args) => mock::run(&args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
