//! Whether all that should have been traced was.

use std::collections::BTreeSet;
use std::path::Path;

use linktax_records::Note;

use super::Facts;
use super::rows::gpu_tables;
use crate::TraceError;
use crate::classify::{Classes, Group};
use crate::timeline::{Op, OpKind, Trace};

/// The error for an export without kernels and graphs, with what the rest of it tells about why.
pub(crate) fn no_gpu_rows(path: &Path, facts: &Facts) -> TraceError {
    let tables = gpu_tables(&facts.schema);
    let mut hint = match tables.is_empty() {
        true => "it has no table of GPU work".to_owned(),
        false => format!("its tables {} have no kernel", tables.join(", ")),
    };
    if let Some(only) = &facts.info.only_tables {
        hint.push_str(&format!("; it was exported with --tables {only}"));
    } else if facts.joined.graph_launches > 0 {
        hint.push_str(&format!(
            "; {} CUDA graphs were launched, so capture with --cuda-graph-trace=node",
            facts.joined.graph_launches
        ));
    } else {
        let launches: usize = facts.calls.by_process.values().map(Vec::len).sum();
        hint.push_str(&format!(
            ", {} API calls, {launches} of them launches; check that CUDA was traced (--trace=cuda,nvtx), that the profiler range was open while the GPU worked, and that the worker processes were traced (--trace-fork-before-exec=true)",
            facts.calls.rows,
        ));
    }
    TraceError::NoGpuRows {
        path: path.to_owned(),
        what: "GPU kernel rows",
        hint,
    }
}

/// Every lane is one rank's GPU, if anything but copies ran on it.
pub(crate) fn working_lanes(trace: &Trace) -> usize {
    let works = |op: Op| matches!(op.kind, OpKind::Kernel | OpKind::Graph);
    let lanes = trace.lanes.iter();
    lanes.filter(|lane| lane.ops.iter().any(works)).count()
}

/// Kernels that communicate between ranks, over all lanes.
pub(crate) fn collectives(trace: &Trace, classes: &Classes) -> usize {
    let ops = trace.lanes.iter().flat_map(|lane| lane.ops.iter());
    ops.filter(|op| op.kind == OpKind::Kernel && classes.op(op).group() == Group::Comm)
        .count()
}

pub(crate) fn expect_gpus(trace: &Trace, expected: Option<u32>) -> Result<(), TraceError> {
    let seen = working_lanes(trace) as u32;
    match expected {
        Some(expected) if seen < expected => Err(TraceError::MissingGpus { expected, seen }),
        _ => Ok(()),
    }
}

/// Warnings about ranks that were not traced: collectives on the only GPU, and processes that launched work of which
/// nothing is to be seen.
pub fn coverage_notes(trace: &Trace, classes: &Classes) -> Vec<Note> {
    let mut notes = Vec::new();
    if working_lanes(trace) == 1 {
        let collectives = collectives(trace, classes);
        if collectives > 0 {
            notes.push(Note::new(
                "partial_ranks",
                format!(
                    "collectives present ({collectives}) but kernels from 1 GPU only: other ranks were not traced"
                ),
            ));
        }
    }
    let with_lanes: BTreeSet<(u32, i64)> = trace
        .lanes
        .iter()
        .map(|lane| (lane.id.file, lane.id.global_pid))
        .collect();
    for process in &trace.processes {
        let launches = process.launches.len();
        if launches > 0 && !with_lanes.contains(&(process.file, process.global_pid)) {
            notes.push(Note::new(
                "process_without_gpu_rows",
                format!(
                    "process {} launched {launches} times, but no GPU rows of it are here",
                    super::pid_of(process.global_pid)
                ),
            ));
        }
    }
    notes
}
