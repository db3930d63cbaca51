//! `linktax trace doctor`: what is in an export, what is missing, what can be answered from it.

use std::path::PathBuf;

use clap::Args;
use linktax_trace::{Answered, Inspection, Severity, inspect};

use super::heading::{counted, fit};
use super::progress::Working;
use crate::exit::Exit;
use crate::output;
use crate::table::layout::Grid;

const EXAMPLES: &str = "\
Examples:
  linktax trace doctor decode.sqlite
  linktax trace doctor node0.sqlite node1.sqlite.zst --json";

/// Arguments of `linktax trace doctor`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Nsight Systems export: .sqlite, .sqlite.zst, .sqlite.gz or .nsys-rep.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Print an array with one object a file.
    #[arg(long)]
    json: bool,
}

/// Runs the command: exit code 1 if anything is wrong, 2 if a file cannot be read.
pub(crate) fn run(args: &DoctorArgs, working: Working) -> anyhow::Result<Exit> {
    let mut seen = Vec::new();
    let mut unreadable = None;
    for file in &args.files {
        working.now(format!("reading {}", file.display()));
        match inspect(file) {
            Ok(inspection) => seen.push(inspection),
            Err(error) => unreadable = unreadable.or(Some(error)),
        }
    }
    drop(working);
    if args.json {
        if !seen.is_empty() {
            output::print(&serde_json::to_string_pretty(&seen)?)?;
        }
    } else {
        let each: Vec<String> = seen.iter().map(|i| text(i, output::width())).collect();
        if !each.is_empty() {
            output::print(&each.join("\n"))?;
        }
    }
    if let Some(error) = unreadable {
        return Err(error.into());
    }
    // The verdict was printed; this is for the exit code.
    if let Some(why) = seen.iter().find_map(cannot_be_read) {
        anyhow::bail!("cannot be analysed: {why}");
    }
    let clean = seen.iter().all(|i| i.severity() == Severity::Ok);
    Ok(if clean { Exit::Clean } else { Exit::NotClean })
}

/// The finding that says why, of a file that is no whole export.
fn cannot_be_read(inspection: &Inspection) -> Option<&str> {
    let unreadable = |code: &str| {
        matches!(
            code,
            "empty"
                | "not_sqlite"
                | "truncated"
                | "wal_pending"
                | "needs_export"
                | "missing_columns"
                | "damaged"
        )
    };
    let finding = inspection.verdicts.iter().find(|v| unreadable(&v.code))?;
    Some(&finding.code)
}

fn text(seen: &Inspection, width: Option<usize>) -> String {
    let mut lines = vec![origin(seen)];
    lines.extend(content(seen));
    lines.push(String::new());
    for finding in &seen.verdicts {
        let word = match finding.severity {
            Severity::Ok => "ok",
            Severity::Warning => "! warning",
            Severity::Problem => "! PROBLEM",
        };
        lines.push(match finding.code.as_str() {
            "ok" => format!("ok: {}", finding.message),
            code => format!("{word}: {code}: {}", finding.message),
        });
    }
    let mut out = fit(&(lines.join("\n") + "\n"), width);
    let mut fixes: Vec<&str> = seen
        .verdicts
        .iter()
        .filter_map(|v| v.fix.as_deref())
        .collect();
    fixes.sort_unstable();
    fixes.dedup();
    for fix in fixes {
        // A command is copied, so it is not wrapped.
        out.push_str(&format!("  {fix}\n"));
    }
    if !seen.lanes.is_empty() {
        out.push_str(&format!("\nLanes\n{}\n", lanes(seen).render(width)));
    }
    out.push_str("\nWhat it can answer\n");
    for answer in &seen.answers {
        let word = match answer.answered {
            Answered::Yes => "yes",
            Answered::Partly => "partly",
            Answered::No => "no",
        };
        let line = format!("{:13} {word:7} {}\n", answer.question, answer.why);
        out.push_str(&fit(&line, width));
    }
    out.push_str(&fit(&missing(seen), width));
    out
}

fn origin(seen: &Inspection) -> String {
    let unknown = || "unknown".to_owned();
    let mut line = format!("{}", seen.path.display());
    if let Some(bytes) = seen.bytes {
        line.push_str(&format!(
            ": nsys {}, schema {}, {:.1} MB",
            seen.export.tool_version.clone().unwrap_or_else(unknown),
            seen.export.schema_version.clone().unwrap_or_else(unknown),
            bytes as f64 / 1e6
        ));
    }
    line
}

fn content(seen: &Inspection) -> Vec<String> {
    let mut lines = Vec::new();
    if seen.bytes.is_none() {
        return lines;
    }
    if let (Some(first), Some(last)) = (seen.first_ns, seen.last_ns) {
        let s = |ns: i64| ns as f64 / 1e9;
        lines.push(format!(
            "GPU work from {:.3} to {:.3} s ({:.3} s): {} kernels of {} names",
            s(first),
            s(last),
            s(last.saturating_sub(first)),
            seen.kernels,
            seen.kernel_names
        ));
    }
    lines.push(format!(
        "CUDA graphs: {} ({} launches, {} operations inside graphs, {} opaque rows)",
        seen.graphs.mode.as_str(),
        seen.graphs.launches,
        seen.graphs.node_rows,
        seen.graphs.opaque_rows
    ));
    let marks: Vec<String> = seen
        .step_marks
        .iter()
        .map(|form| {
            let scope = if form.is_step {
                ""
            } else {
                " (a scope, no step)"
            };
            format!("{} x {}{scope}", form.count, form.form)
        })
        .collect();
    lines.push(match marks.is_empty() {
        true => "step marks (NVTX): none".to_owned(),
        false => format!("step marks (NVTX): {}", marks.join(", ")),
    });
    lines.push(format!(
        "processes: {}",
        seen.processes
            .iter()
            .map(|p| {
                let name = p.name.as_deref().unwrap_or("unnamed");
                let lanes = counted(p.lanes as usize, "GPU", "GPUs");
                format!("{} {name} ({} launches, {lanes})", p.pid, p.launches)
            })
            .collect::<Vec<_>>()
            .join(", ")
    ));
    for note in &seen.diagnostics {
        lines.push(format!("the profiler said: {}", note.message));
    }
    lines
}

fn lanes(seen: &Inspection) -> Grid {
    let rows = seen.lanes.iter().enumerate().map(|(at, lane)| {
        let s = |ns: i64| format!("{:.3}", ns as f64 / 1e9);
        vec![
            at.to_string(),
            lane.pid.to_string(),
            lane.id.device.to_string(),
            lane.gpu.clone().unwrap_or_else(|| "unknown".to_owned()),
            lane.kernels.to_string(),
            lane.copies.to_string(),
            lane.fills.to_string(),
            lane.graphs.to_string(),
            s(lane.first_ns),
            s(lane.last_ns),
        ]
    });
    Grid {
        headers: vec![
            "GPU",
            "pid",
            "device",
            "name",
            "kernels",
            "copies",
            "fills",
            "opaque graphs",
            "from s",
            "to s",
        ],
        rows: rows.collect(),
    }
}

fn missing(seen: &Inspection) -> String {
    let absent: Vec<String> = seen
        .tables
        .iter()
        .filter(|table| !table.present)
        .map(|table| match &table.why_absent {
            Some(why) => format!("{} ({}; {why})", table.name, table.holds),
            None => format!("{} ({})", table.name, table.holds),
        })
        .collect();
    match absent.is_empty() {
        true => String::new(),
        false => format!("\nTables that are not there: {}\n", absent.join(", ")),
    }
}
