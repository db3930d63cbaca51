//! `linktax trace scrub`: an export that may be handed on.

use std::path::PathBuf;

use clap::Args;
use linktax_trace::Scrubbed;

use super::heading::fit;
use super::progress::Working;
use crate::exit::Exit;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  linktax trace scrub decode.sqlite decode-scrubbed.sqlite";

/// Arguments of `linktax trace scrub`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ScrubArgs {
    /// Nsight Systems export.
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The copy; must not exist.
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Print what was left out as an object.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &ScrubArgs, working: Working) -> anyhow::Result<Exit> {
    working.now(format!("copying {}", args.input.display()));
    let scrubbed = linktax_trace::scrub(&args.input, &args.output)?;
    drop(working);
    match args.json {
        true => output::print(&serde_json::to_string_pretty(&scrubbed)?)?,
        false => output::print(&fit(&text(args, &scrubbed), output::width()))?,
    }
    Ok(Exit::Clean)
}

fn text(args: &ScrubArgs, scrubbed: &Scrubbed) -> String {
    let mut out = format!(
        "{}: {:.1} MB; kernels, copies, launch calls, step marks and times are as they were\n",
        args.output.display(),
        scrubbed.bytes as f64 / 1e6
    );
    for removed in &scrubbed.rows {
        out.push_str(&format!(
            "- {}: {} of {} rows left out ({})\n",
            removed.table,
            removed.before - removed.after,
            removed.before,
            removed.why
        ));
    }
    if !scrubbed.columns.is_empty() {
        out.push_str(&format!("- emptied: {}\n", scrubbed.columns.join(", ")));
    }
    out
}
