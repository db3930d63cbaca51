//! What stands above every result: where the figures come from, and what is odd about them.

use linktax_records::Note;
use linktax_trace::{
    LaneSteps, StepKind, StepMethod, Trace, UNKNOWN_WARN_SHARE, UnknownReport, unknown_report,
};

use super::session::{Capture, Session, physical};
use super::totals::Totals;
use crate::output;
use crate::table::layout::wrap;

/// How many GPUs and processes the figures come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sources {
    pub(crate) lanes: usize,
    pub(crate) gpus: usize,
    pub(crate) processes: usize,
    names: Vec<String>,
}

impl Sources {
    pub(crate) fn of(capture: &Capture) -> Sources {
        let trace = &capture.trace;
        let working = capture.working_lanes();
        let mut names: Vec<String> = working
            .iter()
            .filter_map(|&at| trace.lanes[at].gpu.name.clone())
            .collect();
        names.sort_unstable();
        names.dedup();
        let mut processes: Vec<_> = working
            .iter()
            .map(|&at| (trace.lanes[at].id.file, trace.lanes[at].id.global_pid))
            .collect();
        processes.dedup();
        let known = physical(trace).map(|gpus| gpus.len());
        Sources {
            lanes: working.len(),
            gpus: known.unwrap_or(working.len()).min(working.len()),
            processes: processes.len(),
            names,
        }
    }

    fn text(&self) -> String {
        let names = match self.names.is_empty() {
            true => String::new(),
            false => format!(" ({})", self.names.join(", ")),
        };
        format!(
            "{}{names}, {}",
            counted(self.gpus, "GPU", "GPUs"),
            counted(self.processes, "process", "processes")
        )
    }
}

/// `1 step`, `2 steps`.
pub(crate) fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// The first line, and which lane is which where there are several.
pub(crate) fn of_capture(capture: &Capture, command: &str) -> String {
    let files: Vec<String> = capture
        .trace
        .files
        .iter()
        .zip(&capture.exports)
        .map(|(path, info)| {
            let or_unknown =
                |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
            format!(
                "{} (nsys {}, schema {})",
                path.display(),
                or_unknown(&info.tool_version),
                or_unknown(&info.schema_version)
            )
        })
        .collect();
    let mut out = format!(
        "linktax {} trace {command}: {}\nfigures from {}",
        env!("CARGO_PKG_VERSION"),
        files.join(", "),
        Sources::of(capture).text()
    );
    if capture.trace.lanes.len() > 1 {
        out.push_str(&format!(": {}", lane_list(&capture.trace)));
    }
    out.push('\n');
    out
}

/// Lanes are numbered by their place; the process and its ordinal tell which it is.
fn lane_list(trace: &Trace) -> String {
    let several = trace.files.len() > 1;
    let each = trace.lanes.iter().enumerate().map(|(at, lane)| {
        let file = match several {
            true => format!("file {} ", lane.id.file + 1),
            false => String::new(),
        };
        format!(
            "GPU {at} = {file}pid {} device {}",
            lane.pid, lane.id.device
        )
    });
    each.collect::<Vec<_>>().join(", ")
}

/// How the steps were found; lanes that are alike are told once.
pub(crate) fn of_steps(session: &Session) -> String {
    let mut told: Vec<(String, Vec<String>)> = Vec::new();
    for lane in &session.steps {
        let text = found(session, lane);
        let name = lane.lane.to_string();
        match told.iter_mut().find(|(other, _)| *other == text) {
            Some((_, lanes)) => lanes.push(name),
            None => told.push((text, vec![name])),
        }
    }
    let alone = session.steps.len() == 1;
    let one_way = told.len() == 1;
    let line = |(text, lanes): &(String, Vec<String>)| match (alone, one_way) {
        (true, _) => format!("{text}\n"),
        (_, true) => format!("each GPU: {text}\n"),
        _ => format!("GPU {}: {text}\n", lanes.join(", ")),
    };
    told.iter().map(line).collect()
}

fn found(session: &Session, lane: &LaneSteps) -> String {
    let marks = match session.capture.trace.marks.is_empty() {
        true => " (no NVTX step marks)",
        false => "",
    };
    if lane.method == StepMethod::Whole {
        return format!("no steps found{marks}: all of it is one step of unknown kind");
    }
    let kinds: Vec<String> = kinds_of(lane)
        .iter()
        .map(|(kind, n)| format!("{n} {kind}"))
        .collect();
    format!(
        "{}: {}; found by {}, confidence {:.2}{marks}",
        counted(lane.steps.len(), "step", "steps"),
        kinds.join(", "),
        lane.method.as_str(),
        lane.confidence
    )
}

fn kinds_of(lane: &LaneSteps) -> Vec<(&'static str, usize)> {
    let count = |kind| lane.steps.iter().filter(|step| step.kind == kind).count();
    let kinds = StepKind::ALL.map(|kind| (kind.as_str(), count(kind)));
    kinds.into_iter().filter(|k| k.1 > 0).collect()
}

/// Kernel time without a class.
pub(crate) fn unknown(capture: &Capture, totals: &Totals) -> UnknownReport {
    let each = totals.by_name.iter().map(|(&id, total)| (id, total.ns));
    unknown_report(&capture.trace.names, &capture.classes, each)
}

/// The line that says it, always.
pub(crate) fn of_unknown(capture: &Capture, report: &UnknownReport, hidden: bool) -> String {
    let share = match report.share {
        Some(share) if hidden => {
            format!("{:.1} % of kernel time outside the graphs", 100.0 * share)
        }
        Some(share) => format!("{:.1} % of kernel time", 100.0 * share),
        None => "no kernel time".to_owned(),
    };
    let names = match report.names {
        0 => String::new(),
        n => format!(" ({})", counted(n, "name", "names")),
    };
    let folded = match capture.folded {
        true => "; ssm counted as attention",
        false => "",
    };
    format!(
        "unknown kernels: {share}{names}; rules {}{folded}\n",
        capture.rules.hash()
    )
}

/// The warning about too much of it.
pub(crate) fn unknown_note(report: &UnknownReport) -> Option<Note> {
    report.is_too_much().then(|| {
        Note::new(
            "unknown_kernels",
            format!(
                "{:.1} % of kernel time has no class, more than {:.0} %: see `linktax trace kernels FILE --unknown` for the names and a stub of rules",
                100.0 * report.share.unwrap_or(0.0),
                100.0 * UNKNOWN_WARN_SHARE
            ),
        )
    })
}

/// Warnings, one a line; the same words once.
pub(crate) fn warnings<'a>(notes: impl IntoIterator<Item = &'a Note>) -> String {
    let mut lines: Vec<String> = Vec::new();
    for note in notes {
        let line = format!("! {}: {}\n", note.code, note.message);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.concat()
}

/// Warnings on stderr, where the result itself is a file or for a machine.
pub(crate) fn tell<'a>(notes: impl IntoIterator<Item = &'a Note>) {
    let warnings = warnings(notes);
    if !warnings.is_empty() {
        output::note(warnings.trim_end());
    }
}

/// Breaks lines for the width there is.
pub(crate) fn fit(text: &str, width: Option<usize>) -> String {
    wrap(text, width)
}
