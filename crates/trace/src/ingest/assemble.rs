//! The files of one run, put together into a trace.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use linktax_records::Note;

use super::launches::{self, Calls};
use super::{ReadOptions, coverage, names};
use crate::TraceError;
use crate::timeline::{Lane, Mark, NameId, Process, Span, Trace};

/// What one file gave; names are its own until all files are there.
pub(crate) struct Part {
    pub(super) lanes: Vec<Lane>,
    pub(super) names: Vec<(String, String)>,
    pub(super) calls: Calls,
    pub(super) process_names: BTreeMap<i64, Option<String>>,
    pub(super) marks: Vec<Mark>,
    pub(super) overhead: Vec<Span>,
    pub(super) range: Option<(i64, i64)>,
    pub(super) notes: Vec<Note>,
    pub(super) no_gpu_rows: Option<TraceError>,
}

/// Puts the files together.
pub(crate) fn assemble(
    paths: &[PathBuf],
    mut parts: Vec<Part>,
    options: &ReadOptions,
) -> Result<Trace, TraceError> {
    let several = parts.len() > 1;
    if parts.iter().all(|part| part.no_gpu_rows.is_some())
        && let Some(error) = parts.iter_mut().find_map(|part| part.no_gpu_rows.take())
    {
        return Err(error);
    }
    let mut trace = Trace {
        files: paths.to_vec(),
        ..Trace::default()
    };
    trace.window = window(&parts, options, &mut trace.notes)?;
    let own: Vec<_> = parts
        .iter_mut()
        .map(|p| std::mem::take(&mut p.names))
        .collect();
    let (names, maps) = names::merge(&own);
    trace.names = names;
    for (file, mut part) in parts.into_iter().enumerate() {
        if let Some(error) = part.no_gpu_rows.take() {
            part.notes.push(Note::new("no_gpu_rows", error.to_string()));
        }
        canonical(&mut part.lanes, &maps[file]);
        if let Some(window) = trace.window {
            launches::trim(&mut part.calls, &mut part.marks, &part.lanes, window);
            part.overhead
                .retain(|span| span.start < window.end && span.end > window.start);
        }
        trace.processes.extend(host_side(file as u32, &mut part));
        trace.lanes.extend(part.lanes);
        trace.marks.extend(part.marks);
        trace.overhead.extend(part.overhead);
        let named = part.notes.into_iter().map(|note| match several {
            true => Note::new(
                &note.code,
                format!("{}: {}", paths[file].display(), note.message),
            ),
            false => note,
        });
        trace.notes.extend(named);
    }
    if several {
        trace.notes.push(Note::new(
            "separate_clocks",
            format!(
                "{} files, each with a clock of its own: durations compare across files, instants do not",
                paths.len()
            ),
        ));
    }
    trace.lanes.retain(|lane| !lane.ops.is_empty());
    trace.lanes.sort_by_key(|lane| lane.id);
    trace.marks.sort_by_key(|mark| (mark.start, mark.file));
    trace
        .overhead
        .sort_unstable_by_key(|span| (span.start, span.end));
    coverage::expect_gpus(&trace, options.expect_gpus)?;
    Ok(trace)
}

fn canonical(lanes: &mut [Lane], names: &[NameId]) {
    for lane in lanes {
        lane.ops.rename(names);
        lane.ops.sort();
    }
}

fn host_side(file: u32, part: &mut Part) -> Vec<Process> {
    let mut all: BTreeSet<i64> = part.process_names.keys().copied().collect();
    all.extend(part.calls.by_process.keys());
    all.extend(part.lanes.iter().map(|lane| lane.id.global_pid));
    all.into_iter()
        .map(|global_pid| Process {
            file,
            global_pid,
            name: part.process_names.get(&global_pid).cloned().flatten(),
            launches: part
                .calls
                .by_process
                .remove(&global_pid)
                .unwrap_or_default(),
        })
        .collect()
}

/// The asked window cut to the capture.
fn window(
    parts: &[Part],
    options: &ReadOptions,
    notes: &mut Vec<Note>,
) -> Result<Option<Span>, TraceError> {
    let ranges = parts.iter().filter_map(|part| part.range);
    let whole = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let (Some((from, to)), Some((first, last))) = (options.window, whole) else {
        return Ok(None);
    };
    if from >= to || to <= first || from >= last {
        return Err(TraceError::WindowOutside {
            from,
            to,
            first,
            last,
        });
    }
    let cut = Span {
        start: from.max(first),
        end: to.min(last),
    };
    if (cut.start, cut.end) != (from, to) {
        let seconds = |ns: i64| ns as f64 / 1e9;
        notes.push(Note::new(
            "window_cut",
            format!(
                "the window {:.6}-{:.6} s reaches past the capture and is cut to {:.6}-{:.6} s ({:.6} s)",
                seconds(from),
                seconds(to),
                seconds(cut.start),
                seconds(cut.end),
                seconds(cut.end.saturating_sub(cut.start)),
            ),
        ));
    }
    Ok(Some(cut))
}
