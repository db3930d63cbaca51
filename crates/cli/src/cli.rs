//! The command line: subcommands and what they dispatch to.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::exit::Exit;
use crate::{bench, calibrate, export, mock, summarize, trace};

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
    /// Split the steps of an Nsight Systems export: linear, attention, communication.
    Trace(Box<trace::TraceArgs>),
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
        Command::Trace(args) => trace::run(*args),
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
    use std::path::Path;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn usage_errors_are_one_line_that_says_what_is_wrong() {
        for (words, said) in [
            (
                "bench --concurrency -1",
                "invalid value '-1' for '--concurrency <C,…>': expected a whole number from 1 to 100000; see --help",
            ),
            (
                "bench --concurency 1",
                "unexpected argument '--concurency' found; tip: a similar argument exists: '--concurrency'; see --help",
            ),
            (
                "bench --endpoint foo",
                "invalid value 'foo' for '--endpoint <ENDPOINT>' [possible values: completions, chat]; see --help",
            ),
            (
                "bench --burstiness 2",
                "the following required arguments were not provided: --request-rate <R,…>; see --help",
            ),
        ] {
            let error = parse(["linktax"].into_iter().chain(words.split(' '))).unwrap_err();
            assert_eq!(one_line(&error.render().to_string()), said);
        }
    }

    /// The `linktax` commands in a text: lines that begin with it, continued by backslashes, without comments.
    fn commands(text: &str) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        let mut goes_on = false;
        for line in text.lines() {
            let line = line.trim().trim_start_matches("$ ");
            let line = line.replace("scripts/start.sh", "linktax bench");
            let (words, more) = match line.strip_suffix('\\') {
                Some(words) => (words, true),
                None => (line.split(" #").next().unwrap_or_default(), false),
            };
            match found.last_mut().filter(|_| goes_on) {
                Some(command) => command.push_str(words),
                None if words.starts_with("linktax ") => found.push(words.to_owned()),
                None => continue,
            }
            goes_on = more;
        }
        found
    }

    /// Words as a shell would split them; single quotes hold kernel names together.
    fn words(command: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (at, part) in command.split('\'').enumerate() {
            match at % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        words.retain(|word| word != "&");
        words
    }

    #[track_caller]
    fn parses(command: &str, place: &str) {
        assert!(!command.contains(['"', '$']), "needs a shell: {command}");
        if let Err(e) = parse(words(command)) {
            panic!("{place}: {command}\n{e}");
        }
    }

    fn fenced(text: &str) -> String {
        let blocks = text.split("```").skip(1).step_by(2);
        blocks
            .filter(|b| b.starts_with("sh\n") || b.starts_with("console\n"))
            .collect()
    }

    #[test]
    fn every_command_in_the_documents_parses() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let guides = std::fs::read_dir(root.join("docs/guide")).unwrap();
        let mut files: Vec<_> = guides.map(|e| e.unwrap().path()).collect();
        files.push(root.join("README.md"));
        for file in files {
            let found = commands(&fenced(&std::fs::read_to_string(&file).unwrap()));
            assert!(!found.is_empty(), "{}", file.display());
            for command in found {
                parses(&command, &file.display().to_string());
            }
        }
    }

    #[test]
    fn every_example_of_the_help_parses_and_fits_80_columns() {
        let mut seen = 0;
        let command = command();
        let nested = command
            .get_subcommands()
            .flat_map(|sub| sub.get_subcommands());
        for sub in command.get_subcommands().chain(nested) {
            let help = sub.get_after_help().unwrap().to_string();
            for command in commands(&help) {
                parses(&command, sub.get_name());
                seen += 1;
            }
            let longest = help.lines().map(|l| l.chars().count()).max();
            assert!(longest <= Some(80), "{}: {longest:?}", sub.get_name());
        }
        assert!(seen >= 15, "{seen}");
    }
}
