//! What is wrong with an export, and the command that puts it right.

use serde::Serialize;

use super::Inspection;
use super::graphs::GraphMode;
use crate::TraceError;
use crate::classify::Classes;
use crate::ingest::coverage_notes;
use crate::timeline::Trace;

const CAPTURE: &str = "nsys profile --trace=cuda,nvtx --cuda-graph-trace=node --trace-fork-before-exec=true \
    --capture-range=cudaProfilerApi --capture-range-end=stop -o decode \
    vllm serve MODEL --profiler-config.profiler cuda";
const EXPORT: &str = "nsys export --type sqlite --output decode.sqlite decode.nsys-rep";

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nothing to do.
    Ok,
    /// Numbers hold, but something is odd or missing.
    Warning,
    /// The export cannot be split into steps and classes.
    Problem,
}

/// One verdict on an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable identifier, for machines.
    pub code: String,
    /// How bad it is.
    pub severity: Severity,
    /// One sentence for people, with the numbers in it.
    pub message: String,
    /// The command that would put it right.
    pub fix: Option<String>,
}

impl Finding {
    fn new(code: &str, severity: Severity, message: impl Into<String>, fix: Option<&str>) -> Self {
        Finding {
            code: code.to_owned(),
            severity,
            message: message.into(),
            fix: fix.map(str::to_owned),
        }
    }
}

/// The verdict on a file that cannot be read; `None` if the file is not to blame.
pub(crate) fn of_error(error: &TraceError) -> Option<Finding> {
    let (code, fix) = match error {
        TraceError::Empty { .. } => ("empty", Some(EXPORT)),
        TraceError::NotAnExport { .. } => ("not_sqlite", Some(EXPORT)),
        TraceError::Truncated { .. } => ("truncated", Some(EXPORT)),
        TraceError::WalPending { .. } => ("wal_pending", None),
        TraceError::NeedsExport { command, .. } => ("needs_export", Some(command.as_str())),
        TraceError::NoGpuRows { .. } => ("no_kernels", Some(CAPTURE)),
        TraceError::MissingColumns { .. } => ("missing_columns", Some(EXPORT)),
        TraceError::Bulk { .. } | TraceError::Sqlite { .. } => ("damaged", Some(EXPORT)),
        _ => return None,
    };
    let mut message = error.to_string();
    if let Some(cause) = std::error::Error::source(error) {
        message.push_str(&format!(": {cause}"));
    }
    Some(Finding::new(code, Severity::Problem, message, fix))
}

/// The verdicts on a file that was read, worst first.
pub(crate) fn of(inspection: &Inspection, trace: &Trace, classes: &Classes) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(on_graphs(inspection));
    for note in coverage_notes(trace, classes) {
        findings.push(Finding::new(
            &note.code,
            Severity::Warning,
            note.message,
            Some(CAPTURE),
        ));
    }
    findings.extend(on_marks(inspection));
    if !trace.processes.iter().any(|p| !p.launches.is_empty()) {
        findings.push(Finding::new(
            "no_launches",
            Severity::Warning,
            "no launch calls: work cannot be tied to the host's step marks, nor idle time to late launches",
            Some(CAPTURE),
        ));
    }
    // The graph verdict says more than the note of the same code.
    for note in &trace.notes {
        if note.code != "invisible_graphs" {
            findings.push(Finding::new(
                &note.code,
                severity_of(&note.code),
                note.message.clone(),
                None,
            ));
        }
    }
    if findings
        .iter()
        .all(|finding| finding.severity == Severity::Ok)
    {
        let lanes = inspection.lanes.len();
        findings.insert(
            0,
            Finding::new(
                "ok",
                Severity::Ok,
                format!(
                    "{} kernels on {lanes} GPU lane(s): can be split",
                    inspection.kernels
                ),
                None,
            ),
        );
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

/// Rows that only had to be put in order, or that stand at the edge of a window, are no reason to capture again.
fn severity_of(code: &str) -> Severity {
    match code {
        "unordered_rows" | "clipped_rows" | "zero_duration" => Severity::Ok,
        _ => Severity::Warning,
    }
}

fn on_graphs(inspection: &Inspection) -> Option<Finding> {
    let graphs = &inspection.graphs;
    let ms = |ns: u64| ns as f64 / 1e6;
    match graphs.mode {
        GraphMode::Graph | GraphMode::Mixed => Some(Finding::new(
            "graph_level",
            match graphs.unsplittable() {
                true => Severity::Problem,
                false => Severity::Warning,
            },
            format!(
                "{:.1} % of GPU busy time ({:.0} of {:.0} ms) is inside opaque graphs; re-record with --cuda-graph-trace=node",
                100.0 * graphs.opaque_share(),
                ms(graphs.opaque_ns),
                ms(graphs.busy_ns),
            ),
            Some(CAPTURE),
        )),
        _ if graphs.invisible > 0 && !graphs.hidden => Some(Finding::new(
            "unseen_replays",
            Severity::Ok,
            format!(
                "{} of {} CUDA graph launches left no GPU rows, as replays at the edge of a capture do",
                graphs.invisible, graphs.launches
            ),
            None,
        )),
        _ if graphs.hidden => Some(Finding::new(
            "invisible_graphs",
            Severity::Problem,
            format!(
                "{} of {} CUDA graph launches left no GPU rows at all: the time they took would look idle (an old nsys on a newer driver does this); re-record with --cuda-graph-trace=node and an nsys as new as the driver",
                graphs.invisible, graphs.launches
            ),
            Some(CAPTURE),
        )),
        _ => None,
    }
}

fn on_marks(inspection: &Inspection) -> Option<Finding> {
    if inspection.step_marks.iter().any(|form| form.is_step) {
        return None;
    }
    let why = match inspection.nvtx_rows {
        0 => "no NVTX ranges in this export".to_owned(),
        rows => format!("none of {rows} NVTX rows marks a step"),
    };
    Some(Finding::new(
        "no_step_marks",
        Severity::Warning,
        format!(
            "{why}: steps are found from graph launches and kernel patterns, without the batch of each step"
        ),
        Some(CAPTURE),
    ))
}
