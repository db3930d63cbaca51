//! `linktax trace synth`: a synthetic export with a known truth.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use linktax_trace::synth::{Spec, Truth, write, write_truth};
use serde_json::json;

use super::heading::counted;
use super::progress::Working;
use crate::exit::Exit;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  linktax trace synth spec.toml synthetic.sqlite
  linktax trace split synthetic.sqlite";

/// Arguments of `linktax trace synth`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SynthArgs {
    /// Specification: model, ranks, steps, skew, overlap, graph mode, schema.
    #[arg(value_name = "SPEC.toml")]
    spec: PathBuf,
    /// The export; its truth goes to OUT.sqlite.truth.json. Older files are replaced.
    #[arg(value_name = "OUT.sqlite")]
    out: PathBuf,
    /// Print what was written as an object.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &SynthArgs, working: Working) -> anyhow::Result<Exit> {
    let text = std::fs::read_to_string(&args.spec)
        .with_context(|| format!("{}: cannot be read", args.spec.display()))?;
    let spec = Spec::from_toml(&text, &args.spec)?;
    working.now(format!("writing {}", args.out.display()));
    let truth = write(&spec, &args.out)?;
    let beside = write_truth(&truth, &args.out)?;
    drop(working);
    output::print(&told(args, &truth, &beside)?)?;
    Ok(Exit::Clean)
}

fn told(args: &SynthArgs, truth: &Truth, beside: &Path) -> anyhow::Result<String> {
    let steps = truth.lanes.first().map_or(0, |lane| lane.steps.len());
    Ok(match args.json {
        true => serde_json::to_string_pretty(&json!({
            "export": args.out,
            "truth": beside,
            "lanes": truth.lanes.len(),
            "steps": steps,
            "repeats": truth.repeats,
            "kernel_rows": truth.kernel_rows,
        }))?,
        false => format!(
            "{}: {}, {} each, {} kernel rows\n{}: the truth\n",
            args.out.display(),
            counted(truth.lanes.len(), "GPU", "GPUs"),
            counted(steps * truth.repeats as usize, "step", "steps"),
            truth.kernel_rows,
            beside.display()
        ),
    })
}
