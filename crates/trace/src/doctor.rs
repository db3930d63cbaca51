//! What is in an export, what is missing, what can be answered from it, and the capture that would answer the rest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use linktax_records::Note;
use serde::Serialize;

use crate::TraceError;
use crate::classify::{Classes, Rules};
use crate::ingest::{self, ExportInfo, Facts, ReadOptions};
use crate::steps;
use crate::timeline::{Gpu, LaneId, OpKind, Trace};

mod answers;
mod graphs;
mod verdicts;

pub use answers::{Answer, Answered};
pub use graphs::{GraphMode, Graphs};
pub use verdicts::{Finding, Severity};

/// The tables that matter, and what each is for.
const TABLES: [(&str, &str); 12] = [
    ("CUPTI_ACTIVITY_KIND_KERNEL", "kernels"),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", "copies"),
    ("CUPTI_ACTIVITY_KIND_MEMSET", "fills"),
    ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "whole CUDA graphs"),
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "launch calls"),
    ("NVTX_EVENTS", "step marks"),
    ("StringIds", "names"),
    ("PROCESSES", "process names"),
    ("TARGET_INFO_GPU", "GPU names and bandwidth"),
    ("TARGET_INFO_CUDA_DEVICE", "which process used which GPU"),
    ("PROFILER_OVERHEAD", "profiler overhead"),
    ("DIAGNOSTIC_EVENT", "lost events"),
];

/// What an export holds. Files that cannot be read have a finding that says why, and no more.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Inspection {
    /// The file.
    pub path: PathBuf,
    /// Bytes of the SQLite file (unpacked).
    pub bytes: Option<u64>,
    /// How it was exported.
    pub export: ExportInfo,
    /// Start of the first operation on a GPU, nanoseconds on the export's clock.
    pub first_ns: Option<i64>,
    /// End of the last operation on a GPU.
    pub last_ns: Option<i64>,
    /// GPUs of the machine, as far as the export names them.
    pub gpus: Vec<Gpu>,
    /// Traced processes.
    pub processes: Vec<ProcessSummary>,
    /// One a process and device: one rank's GPU.
    pub lanes: Vec<LaneSummary>,
    /// Kernels on all lanes.
    pub kernels: u64,
    /// Distinct kernel names.
    pub kernel_names: u64,
    /// CUDA graphs, as the rows show them.
    pub graphs: Graphs,
    /// NVTX step marks by the form of their text.
    pub step_marks: Vec<MarkForm>,
    /// All NVTX rows.
    pub nvtx_rows: u64,
    /// Tables that matter.
    pub tables: Vec<TableState>,
    /// Warnings of the profiler itself.
    pub diagnostics: Vec<Note>,
    /// Time that the profiler spent on itself within the range, nanoseconds.
    pub overhead_ns: u64,
    /// Verdicts, worst first; a sound export has one, `ok`.
    pub verdicts: Vec<Finding>,
    /// What can be answered.
    pub answers: Vec<Answer>,
}

impl Inspection {
    /// The worst finding.
    pub fn severity(&self) -> Severity {
        let worst = self.verdicts.iter().map(|finding| finding.severity).max();
        worst.unwrap_or(Severity::Ok)
    }
}

/// A traced process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessSummary {
    /// Operating-system process id.
    pub pid: u32,
    /// Name, if the export has it.
    pub name: Option<String>,
    /// Calls that put work on a GPU.
    pub launches: u64,
    /// Lanes of this process.
    pub lanes: u64,
}

/// One rank's GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaneSummary {
    /// Its key.
    pub id: LaneId,
    /// Operating-system process id.
    pub pid: u32,
    /// Name of the GPU, if known.
    pub gpu: Option<String>,
    /// Kernels.
    pub kernels: u64,
    /// Copies.
    pub copies: u64,
    /// Fills.
    pub fills: u64,
    /// Whole CUDA graphs.
    pub graphs: u64,
    /// Start of its first operation.
    pub first_ns: i64,
    /// End of its last operation.
    pub last_ns: i64,
}

/// Step marks of one form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MarkForm {
    /// The text with its numbers replaced by `N`.
    pub form: String,
    /// How many.
    pub count: u64,
    /// Whether it is the mark of a whole step, or a scope inside one.
    pub is_step: bool,
}

/// Whether a table is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableState {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub holds: String,
    /// Whether it is there; a table without rows is left out by the exporter.
    pub present: bool,
    /// Why it may be absent, where the export says so.
    pub why_absent: Option<String>,
}

/// Looks at one file. Whatever is wrong with its content is a finding of the inspection.
///
/// # Errors
///
/// Only when the file cannot be opened at all.
pub fn inspect(path: &Path) -> Result<Inspection, TraceError> {
    let options = ReadOptions::default();
    let read = ingest::on_own_runtime(async || Facts::read(path, 0, &options).await);
    let facts = match read {
        Ok(facts) => facts,
        Err(error) => {
            let finding = verdicts::of_error(&error).ok_or(error)?;
            return Ok(Inspection {
                path: path.to_owned(),
                answers: answers::none(&finding.message),
                verdicts: vec![finding],
                ..Inspection::default()
            });
        }
    };
    let mut inspection = before_assembly(path, &facts);
    let joined = facts.joined;
    let part = facts.into_part(path, 0);
    let trace = match ingest::assemble(&[path.to_owned()], vec![part], &options) {
        Ok(trace) => trace,
        Err(error) => {
            let finding = verdicts::of_error(&error).ok_or(error)?;
            inspection.graphs = Graphs::of(&Trace::default(), joined);
            inspection.answers = answers::none(&finding.message);
            inspection.verdicts = vec![finding];
            return Ok(inspection);
        }
    };
    let classes = Classes::of(&trace.names, &Rules::embedded());
    inspection.graphs = Graphs::of(&trace, joined);
    summarise(&mut inspection, &trace);
    inspection.verdicts = verdicts::of(&inspection, &trace, &classes);
    inspection.answers = answers::of(&inspection, ingest::collectives(&trace, &classes));
    Ok(inspection)
}

fn before_assembly(path: &Path, facts: &Facts) -> Inspection {
    Inspection {
        path: path.to_owned(),
        bytes: Some(facts.bytes),
        export: facts.info.clone(),
        first_ns: facts.rows.range.map(|(first, _)| first),
        last_ns: facts.rows.range.map(|(_, last)| last),
        gpus: facts.gpus.physical.values().cloned().collect(),
        step_marks: forms(facts.marks.iter().map(|mark| mark.text.as_str())),
        nvtx_rows: facts.nvtx_rows,
        tables: tables(facts),
        diagnostics: facts
            .diagnostics
            .iter()
            .map(|(diagnostic, times)| {
                let code = if diagnostic.lost {
                    "events_lost"
                } else {
                    "warning"
                };
                Note::new(code, format!("{} ({times} times)", diagnostic.text))
            })
            .collect(),
        ..Inspection::default()
    }
}

fn summarise(inspection: &mut Inspection, trace: &Trace) {
    inspection.lanes = trace.lanes.iter().map(lane_summary).collect();
    inspection.kernels = inspection.lanes.iter().map(|lane| lane.kernels).sum();
    inspection.kernel_names = trace.names.len() as u64;
    inspection.processes = trace
        .processes
        .iter()
        .map(|process| {
            let own = |lane: &&LaneSummary| lane.id.global_pid == process.global_pid;
            ProcessSummary {
                pid: ingest::pid_of(process.global_pid),
                name: process.name.clone(),
                launches: process.launches.len() as u64,
                lanes: inspection.lanes.iter().filter(own).count() as u64,
            }
        })
        .filter(|process| process.launches + process.lanes > 0)
        .collect();
    if let (Some(first), Some(last)) = (inspection.first_ns, inspection.last_ns) {
        let inside = trace.overhead.iter().map(|span| {
            let (start, end) = (span.start.max(first), span.end.min(last));
            end.saturating_sub(start).max(0).unsigned_abs()
        });
        inspection.overhead_ns = inside.sum();
    }
}

fn lane_summary(lane: &crate::timeline::Lane) -> LaneSummary {
    let ops = &lane.ops;
    let mut counts = [0u64; 4];
    for i in 0..ops.len() {
        let at = match ops.kind(i) {
            OpKind::Kernel => 0,
            OpKind::Memcpy(_) => 1,
            OpKind::Memset => 2,
            OpKind::Graph => 3,
        };
        counts[at] += 1;
    }
    LaneSummary {
        id: lane.id,
        pid: lane.pid,
        gpu: lane.gpu.name.clone(),
        kernels: counts[0],
        copies: counts[1],
        fills: counts[2],
        graphs: counts[3],
        first_ns: if ops.is_empty() { 0 } else { ops.start(0) },
        last_ns: (0..ops.len()).map(|i| ops.end(i)).max().unwrap_or(0),
    }
}

fn tables(facts: &Facts) -> Vec<TableState> {
    TABLES
        .iter()
        .map(|(name, holds)| {
            let present = facts.schema.table(name).is_some();
            let filter = facts.info.only_tables.as_deref();
            TableState {
                name: (*name).to_owned(),
                holds: (*holds).to_owned(),
                present,
                why_absent: filter
                    .filter(|_| !present)
                    .map(|only| format!("exported with --tables {only}")),
            }
        })
        .collect()
}

/// Texts that differ only in their numbers are one form.
fn forms<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<MarkForm> {
    let mut forms: BTreeMap<String, (u64, bool)> = BTreeMap::new();
    for text in texts {
        let entry = forms.entry(without_numbers(text)).or_default();
        entry.0 += 1;
        entry.1 |= steps::parse_step_mark(text).is_some();
    }
    let mut forms: Vec<MarkForm> = forms
        .into_iter()
        .map(|(form, (count, is_step))| MarkForm {
            form,
            count,
            is_step,
        })
        .collect();
    forms.sort_by_key(|form| (!form.is_step, std::cmp::Reverse(form.count)));
    forms
}

fn without_numbers(text: &str) -> String {
    let mut form = String::with_capacity(text.len());
    for part in text.chars() {
        match part {
            '0'..='9' if form.ends_with('N') => {}
            '0'..='9' => form.push('N'),
            other => form.push(other),
        }
    }
    form
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_differ_in_numbers_are_one_form() {
        let texts = [
            "execute_context_0(0)_generation_16(16)",
            "execute_context_1(8188)_generation_4(4)",
            "gpu_model_runner: draft",
        ];
        let forms = forms(texts.into_iter());
        assert_eq!(forms.len(), 2);
        assert_eq!(
            (forms[0].form.as_str(), forms[0].count, forms[0].is_step),
            ("execute_context_N(N)_generation_N(N)", 2, true)
        );
        assert!(!forms[1].is_step);
    }
}
