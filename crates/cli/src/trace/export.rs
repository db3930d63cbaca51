//! `linktax trace export`: a range of steps for Perfetto and `chrome://tracing`.

use std::path::PathBuf;

use clap::Args;
use linktax_trace::{ChromeOptions, ChromeTrace};

use super::args::{InputArgs, MethodArg};
use super::chosen::paired;
use super::heading;
use super::outfile::OutFile;
use super::progress::Working;
use super::session::Session;
use crate::exit::Exit;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  linktax trace export decode.sqlite --steps 10..12 --out steps.json
  linktax trace export rank0.sqlite rank1.sqlite --steps 5 --out step.json";

/// Arguments of `linktax trace export`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    input: InputArgs,
    /// First and last step, both included, by the numbers of `trace steps`; one number for one step.
    #[arg(long, value_name = "A..B", value_parser = range)]
    steps: (u32, u32),
    /// Find steps by this method only [default: the first of them that works].
    #[arg(long, value_enum)]
    method: Option<MethodArg>,
    /// The file to write, in the Trace Event format (JSON).
    #[arg(long, short, value_name = "OUT.json")]
    out: PathBuf,
}

/// Runs the command.
pub(crate) fn run(args: &ExportArgs, working: Working) -> anyhow::Result<Exit> {
    let out = OutFile::create(&args.out, &args.input.files)?;
    let session = Session::open_whole(&args.input, args.method, &working)?;
    working.now("pairing collectives");
    let mut notes = session.capture.notes.clone();
    let collectives = paired(&session, &mut notes)?;
    let options = ChromeOptions::steps(args.steps.0, args.steps.1);
    let capture = &session.capture;
    let chrome = ChromeTrace::new(
        &capture.trace,
        &capture.classes,
        &session.steps,
        collectives.as_ref(),
        &options,
    )?;
    working.now("writing");
    let path = out.finish(|w| chrome.write(w))?;
    drop(working);
    heading::tell(&notes);
    output::print(&format!(
        "{}: {} on {}; open it in ui.perfetto.dev or chrome://tracing",
        path.display(),
        heading::counted(chrome.operations() as usize, "operation", "operations"),
        heading::counted(chrome.lanes(), "GPU", "GPUs"),
    ))?;
    Ok(Exit::Clean)
}

/// `10..12` or `10`; both ends are included.
fn range(text: &str) -> Result<(u32, u32), String> {
    let wrong =
        || "expected two step numbers such as 10..12, the first not after the last".to_owned();
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
    let (first, last) = (number(first)?, number(last)?);
    match first <= last {
        true => Ok((first, last)),
        false => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_includes_both_ends() {
        assert_eq!(range("10..12"), Ok((10, 12)));
        assert_eq!(range("7"), Ok((7, 7)));
        for bad in ["", "12..10", "1..", "..2", "a", "1..=2", "-1"] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }
}
