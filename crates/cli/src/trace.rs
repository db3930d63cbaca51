//! `linktax trace`: what Nsight Systems exports say.

mod args;
mod blame;
mod chosen;
mod comm;
mod diff;
mod doctor;
mod export;
mod heading;
mod kernels;
mod outfile;
mod parquet;
mod parts;
mod progress;
mod scrub;
mod session;
mod split;
mod stats;
mod steps;
mod synth;
mod timeline;
mod totals;
mod unsplittable;
mod whatif;

use clap::{Args, Subcommand};
use linktax_trace::TraceError;

use crate::exit::Exit;
use crate::output;

use progress::Working;

const EXAMPLES: &str = "\
Examples:
  linktax trace doctor decode.sqlite
  linktax trace split decode.sqlite --steps decode --steady 2
  linktax trace whatif rank0.sqlite rank1.sqlite --steps decode";

/// Arguments of `linktax trace`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
    /// No progress on stderr.
    #[arg(short, long, global = true)]
    quiet: bool,
}

#[derive(Clone, Debug, Subcommand)]
enum TraceCommand {
    /// What is in an export, what is missing, and the capture command that would fix it.
    Doctor(doctor::DoctorArgs),
    /// Where the time of a step goes, a step kind and GPU: linear, attention, communication, idle.
    Split(split::SplitArgs),
    /// Every step with its buckets.
    Steps(steps::StepsArgs),
    /// Collectives: service and wait, who caused it, sizes and bus bandwidth.
    Comm(comm::CommArgs),
    /// What a faster link, equal ranks or faster kernels would change.
    Whatif(whatif::WhatifArgs),
    /// Two captures, step kind by step kind: what each group costs in both.
    Diff(diff::DiffArgs),
    /// Kernels with their classes, or why a name has its class.
    Kernels(kernels::KernelsArgs),
    /// A range of steps for Perfetto and chrome://tracing.
    Export(export::ExportArgs),
    /// One step as a picture (SVG).
    Timeline(timeline::TimelineArgs),
    /// An export that may be handed on: no environment, paths, command lines, logs.
    Scrub(scrub::ScrubArgs),
    /// A synthetic export with a known truth.
    Synth(synth::SynthArgs),
}

/// Runs the command.
pub(crate) fn run(args: TraceArgs) -> anyhow::Result<Exit> {
    let working = Working::begin(args.quiet);
    let result = match args.command {
        TraceCommand::Doctor(args) => doctor::run(&args, working),
        TraceCommand::Split(args) => split::run(&args, working),
        TraceCommand::Steps(args) => steps::run(&args, working),
        TraceCommand::Comm(args) => comm::run(&args, working),
        TraceCommand::Whatif(args) => whatif::run(&args, working),
        TraceCommand::Diff(args) => diff::run(&args, working),
        TraceCommand::Kernels(args) => kernels::run(&args, working),
        TraceCommand::Export(args) => export::run(&args, working),
        TraceCommand::Timeline(args) => timeline::run(&args, working),
        TraceCommand::Scrub(args) => scrub::run(&args, working),
        TraceCommand::Synth(args) => synth::run(&args, working),
    };
    match result {
        Err(error) if is_answer(&error) => {
            output::note(&format!("error: {error:#}"));
            Ok(Exit::NotClean)
        }
        other => other,
    }
}

/// A sound file that cannot answer the question is a result that is not clean; everything else is unreadable input.
fn is_answer(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.is::<session::NotClean>()
            || matches!(
                cause.downcast_ref(),
                Some(
                    TraceError::NoGpuRows { .. }
                        | TraceError::MissingGpus { .. }
                        | TraceError::NoSteps { .. }
                        | TraceError::NotAlignable { .. }
                        | TraceError::NoReplay { .. }
                        | TraceError::ReplayMismatch { .. }
                        | TraceError::TooManyOps { .. }
                )
            )
    })
}
