//! `linktax trace timeline`: one step as an SVG.

use std::path::PathBuf;

use clap::Args;
use linktax_trace::{LaneSplit, Step, StepKind, SvgOptions, split, step_svg};

use super::args::{InputArgs, MethodArg};
use super::chosen::paired;
use super::heading;
use super::outfile::OutFile;
use super::progress::Working;
use super::session::Session;
use crate::exit::Exit;
use crate::number::whole32;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  linktax trace timeline decode.sqlite --out step.svg
  linktax trace timeline rank0.sqlite rank1.sqlite --step 12 --out step.svg";

/// Arguments of `linktax trace timeline`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TimelineArgs {
    #[command(flatten)]
    input: InputArgs,
    /// The step, by its number in `trace steps` [default: the decode step of median length].
    #[arg(long, value_name = "N")]
    step: Option<u32>,
    /// Find steps by this method only [default: the first of them that works].
    #[arg(long, value_enum)]
    method: Option<MethodArg>,
    /// Width of the picture in pixels.
    #[arg(long, value_name = "PX", default_value_t = SvgOptions::WIDTH, value_parser = whole32::<640, 20_000>)]
    width: u32,
    /// The file to write.
    #[arg(long, short, value_name = "OUT.svg")]
    out: PathBuf,
}

/// Runs the command.
pub(crate) fn run(args: &TimelineArgs, working: Working) -> anyhow::Result<Exit> {
    let out = OutFile::create(&args.out, &args.input.files)?;
    let session = Session::open_whole(&args.input, args.method, &working)?;
    working.now("splitting");
    let mut notes = session.capture.notes.clone();
    let collectives = paired(&session, &mut notes)?;
    let step = args.step.or_else(|| typical(&session)).unwrap_or(0);
    let capture = &session.capture;
    let splits: Vec<LaneSplit> = session
        .steps
        .iter()
        .map(|lane| split(&capture.trace, &capture.classes, lane, collectives.as_ref()))
        .collect::<Result<_, _>>()?;
    let options = SvgOptions {
        step,
        width: args.width,
        label: label(&args.input.files),
    };
    let (trace, classes) = (&capture.trace, &capture.classes);
    let svg = step_svg(trace, classes, &splits, collectives.as_ref(), &options)?;
    let path = out.finish(|w| w.write_all(svg.as_bytes()))?;
    drop(working);
    heading::tell(&notes);
    output::print(&format!("{}: step {step}", path.display()))?;
    Ok(Exit::Clean)
}

/// Names of the files without their folders, which are nobody's business.
fn label(files: &[PathBuf]) -> String {
    let names = files.iter().filter_map(|path| path.file_name());
    let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
    names.join(", ")
}

/// The decode step of the first lane whose length is the median; without one, the step of any kind.
fn typical(session: &Session) -> Option<u32> {
    let lane = session.steps.first()?;
    let decode: Vec<&Step> = lane
        .steps
        .iter()
        .filter(|step| step.kind == StepKind::Decode)
        .collect();
    let mut steps = match decode.is_empty() {
        true => lane.steps.iter().collect(),
        false => decode,
    };
    steps.sort_by_key(|step| (step.dur(), step.index));
    steps
        .get(steps.len().checked_sub(1)? / 2)
        .map(|step| step.index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_names_files_and_no_folders() {
        let files = ["/home/someone/a.sqlite".into(), "b.sqlite".into()];
        assert_eq!(label(&files), "a.sqlite, b.sqlite");
    }
}
