//! `linktax trace` in the lean build: says how to get a binary that can.

use clap::Args;

use crate::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  linktax trace split decode.sqlite";

/// Arguments of `linktax trace`, which nobody looks at.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TraceArgs {
    /// A command and its arguments, as in the full build.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(_args: TraceArgs) -> anyhow::Result<Exit> {
    anyhow::bail!(
        "this is the lean build, without the trace analyzer; build with the feature `trace` (cargo build --release)"
    )
}
