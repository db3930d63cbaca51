//! What was odd about a file, in words.

use std::collections::BTreeMap;

use linktax_records::Note;

use super::launches::Joined;
use super::machine::{Diagnostic, ExportInfo};

pub(super) fn of_origin(info: &ExportInfo) -> Vec<Note> {
    let mut notes = Vec::new();
    if let Some(version) = info.unknown_schema() {
        notes.push(Note::new(
            "unknown_schema",
            format!(
                "schema version {version} is not one this tool knows (3.x); the columns it needs are there, so it goes on"
            ),
        ));
    }
    if !info.has_metadata {
        notes.push(Note::new(
            "no_export_metadata",
            "no META_DATA_EXPORT rows: the export died early or was made by hand",
        ));
    }
    if let Some(times) = &info.only_times {
        notes.push(Note::new(
            "export_filtered",
            format!("exported for times {times} only"),
        ));
    }
    notes
}

pub(super) fn of_losses(diagnostics: &BTreeMap<Diagnostic, u64>) -> Vec<Note> {
    let lost = diagnostics.iter().filter(|(diagnostic, _)| diagnostic.lost);
    lost.map(|(diagnostic, times)| {
        Note::new(
            "events_lost",
            format!("the profiler says ({times} times): {}", diagnostic.text),
        )
    })
    .collect()
}

pub(super) fn of_joins(joined: &Joined, windowed: bool) -> Vec<Note> {
    let mut notes = Vec::new();
    // One in a hundred is what real captures show around their edges and clock corrections.
    if joined.early * 100 > joined.launched {
        notes.push(Note::new(
            "work_before_launch",
            format!(
                "{} of {} operations start before their launch call: correlation ids or clocks of this capture are wrong (known of CUPTI up to 13.1 after the first profiling session)",
                joined.early, joined.launched
            ),
        ));
    }
    // Outside a window the rows of a graph were not looked at.
    if joined.hides_graphs() && !windowed {
        notes.push(Note::new(
            "invisible_graphs",
            format!(
                "{} of {} CUDA graph launches left no GPU rows: their work is missing here, it is not idle time; capture with --cuda-graph-trace=node and an nsys that knows the driver",
                joined.invisible_graphs, joined.graph_launches
            ),
        ));
    }
    notes
}
