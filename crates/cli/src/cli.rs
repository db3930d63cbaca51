//! The command line: subcommands and what they dispatch to.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

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

/// Parses the arguments and runs the command.
pub(crate) fn run() -> anyhow::Result<Exit> {
    let command = match parse(std::env::args_os()) {
        Ok(cli) => cli.command,
        Err(error) => return usage(&error),
    };
    match command {
        Command::Bench(args) => bench::run(*args),
        Command::Summarize(args) => summarize::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Calibrate(args) => calibrate::run(&args),
        Command::Mock(args) => mock::run(&args),
    }
}

fn parse<I, T>(words: I) -> Result<Cli, clap::Error>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString> + Clone,
{
    Cli::from_arg_matches(&command().try_get_matches_from(words)?)
}

/// The command line, with `-1` taken for a value: it is then refused as a number, not as an unknown flag.
fn command() -> clap::Command {
    Cli::command().mut_subcommands(|sub| {
        sub.mut_args(|arg| {
            let takes_values = arg.get_action().takes_values();
            arg.allow_negative_numbers(takes_values)
        })
    })
}

/// Help and version go to stdout; everything else is an error of one line.
fn usage(error: &clap::Error) -> anyhow::Result<Exit> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            error.print()?;
            Ok(Exit::Clean)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.print()?;
            Ok(Exit::NoCommand)
        }
        _ => Err(anyhow::anyhow!(one_line(&error.render().to_string()))),
    }
}

/// What clap says in paragraphs, without the usage.
fn one_line(rendered: &str) -> String {
    let parts: Vec<String> = rendered
        .split("\n\n")
        .map(|paragraph| {
            let words: Vec<&str> = paragraph.split_whitespace().collect();
            words.join(" ")
        })
        .filter(|p| !p.is_empty() && !p.starts_with("Usage:") && !p.starts_with("For more"))
        .collect();
    let text = parts.join("; ");
    format!("{}; see --help", text.trim_start_matches("error: "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }
}
