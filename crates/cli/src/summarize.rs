//! `linktax summarize`: the numbers of a run directory again, from its records, without the server.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use linktax_metrics::{Limits, Options};
use linktax_records::{CellEntry, CellStatus, Note, RunManifest, VerdictStatus};
use linktax_store::RunReader;
use serde_json::{Map, Value};

use crate::bench;
use crate::bench::plan::BenchPlan;
use crate::exit::Exit;
use crate::number::whole32;
use crate::{output, table};

const EXAMPLES: &str = "\
Examples:
  linktax summarize runs/nvlink
  linktax summarize runs/nvlink --stall-gap 200ms
  linktax summarize runs/nvlink --gpus 2 --goodput ttft:500 tpot:50 --json";

/// Arguments of `linktax summarize`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SummarizeArgs {
    /// Run directory.
    dir: PathBuf,
    /// Another stall threshold: a time such as 200ms, auto, or off.
    #[arg(long, value_name = "GAP", allow_hyphen_values = true)]
    stall_gap: Option<String>,
    /// Another number of GPUs for the per-GPU numbers.
    #[arg(long, value_name = "N", value_parser = whole32::<1, 65_536>)]
    gpus: Option<u32>,
    /// Other service-level objectives.
    #[arg(long, value_name = "KEY:MS", num_args = 1..)]
    goodput: Vec<String>,
    /// Print run.json with the new numbers instead of the tables.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &SummarizeArgs) -> anyhow::Result<Exit> {
    let reader = RunReader::open(&args.dir)?;
    let manifest = recompute(&reader, args)?;
    if args.json {
        output::print(&serde_json::to_string_pretty(&manifest)?)?;
    } else {
        output::print(&table::render(&manifest, output::width()))?;
    }
    Ok(bench::exit(&manifest))
}

/// The manifest with every number computed again from the records.
fn recompute(reader: &RunReader, args: &SummarizeArgs) -> anyhow::Result<RunManifest> {
    let mut manifest = reader.manifest().clone();
    let (options, limits) = settings(&mut manifest, args)?;
    manifest.notes.extend(reader.notes().iter().cloned());
    for index in 0..manifest.cells.len() {
        let records = reader.cell_records(index as u32);
        let entry = &mut manifest.cells[index];
        let begun = entry.status != CellStatus::Pending || records.bytes() > 0;
        if !begun {
            continue;
        }
        let summary = linktax_metrics::summarize(&records, &entry.spec, &options)?;
        let mut verdict = linktax_metrics::judge(
            &entry.spec,
            &summary,
            entry.server.as_ref(),
            entry.client.as_ref(),
            &limits,
        );
        bench::failure::explain(&mut verdict, &records)?;
        if entry.status != CellStatus::Complete {
            verdict.status = verdict.status.max(VerdictStatus::Flagged);
            verdict.reasons.push(Note::new(
                "incomplete",
                "the cell did not run to its end; these are the requests that had ended",
            ));
        }
        let results = summary.to_json();
        if let Some(reason) = changed_records(entry, &results) {
            verdict.status = verdict.status.max(VerdictStatus::Flagged);
            verdict.reasons.push(reason);
        }
        entry.results = Some(results);
        keep_run_time_reasons(&mut verdict, entry.verdict.take());
        entry.verdict = Some(verdict);
    }
    Ok(manifest)
}

/// A cell that ended has the records it ended with; others were lost or added since.
fn changed_records(entry: &CellEntry, now: &Map<String, Value>) -> Option<Note> {
    if entry.status != CellStatus::Complete {
        return None;
    }
    let count = |of: &Map<String, Value>| of.get("measured_requests")?.as_u64();
    let (then, now) = (count(entry.results.as_ref()?)?, count(now)?);
    (then != now).then(|| {
        Note::new(
            "records_changed",
            format!(
                "requests.jsonl holds {now} measured requests of this cell, which had {then} when it ended: records \
                 were lost or added since"
            ),
        )
    })
}

/// The run's own settings, with what the flags change.
fn settings(manifest: &mut RunManifest, args: &SummarizeArgs) -> anyhow::Result<(Options, Limits)> {
    let mut plan: BenchPlan = serde_json::from_value(manifest.plan.clone())
        .context("the plan in run.json cannot be read by this version of linktax")?;
    if let Some(gap) = &args.stall_gap {
        plan.stall_gap.clone_from(gap);
    }
    if !args.goodput.is_empty() {
        plan.goodput.clone_from(&args.goodput);
    }
    if let Some(gpus) = args.gpus {
        manifest.gpus.count = Some(gpus);
        manifest.gpus.source = "flag".to_owned();
    }
    Ok((plan.options(manifest.gpus.count)?, plan.limits()))
}

/// Reasons that only the run itself could see (a server that went away, a failed warm-up) are kept.
fn keep_run_time_reasons(
    verdict: &mut linktax_records::Verdict,
    old: Option<linktax_records::Verdict>,
) {
    for reason in old.into_iter().flat_map(|v| v.reasons) {
        let of_the_run = bench::is_run_time_reason(&reason.code);
        if of_the_run && !verdict.reasons.iter().any(|r| r.code == reason.code) {
            verdict.status = verdict.status.max(VerdictStatus::Flagged);
            verdict.reasons.push(reason);
        }
    }
}
