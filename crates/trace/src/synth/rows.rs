//! Rows of the big tables, cell by cell: a column that a version lacks is never asked for.

use std::collections::BTreeMap;

use super::catalog::{Kernel, Role};
use super::host::{Call, MarkRow};
use super::record::{Kind, Rec, Recorded};
use super::spec::Spec;

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Int(i64),
    Text(String),
}

impl<T: Into<i64>> From<T> for Value {
    fn from(value: T) -> Self {
        Value::Int(value.into())
    }
}

/// The strings of an export and their ids.
pub(crate) struct Strings {
    ids: BTreeMap<String, i64>,
}

impl Strings {
    /// Numbers the strings; `renumber` maps a position to another one of the same range.
    pub(crate) fn new(
        strings: impl IntoIterator<Item = String>,
        renumber: impl Fn(usize) -> usize,
    ) -> Self {
        let distinct: BTreeMap<String, i64> = strings.into_iter().map(|s| (s, 0)).collect();
        let ids = distinct
            .into_keys()
            .enumerate()
            .map(|(i, s)| (s, 1 + renumber(i) as i64))
            .collect();
        Strings { ids }
    }

    pub(crate) fn id(&self, text: &str) -> Value {
        self.ids.get(text).map_or(Value::Null, |&id| Value::Int(id))
    }

    /// Id and text, by id.
    pub(crate) fn rows(&self) -> Vec<(i64, &str)> {
        let mut rows: Vec<(i64, &str)> = self.ids.iter().map(|(s, &id)| (id, s.as_str())).collect();
        rows.sort_unstable();
        rows
    }
}

/// A row of one of the event tables.
#[derive(Clone, Copy)]
pub(crate) enum Row<'a> {
    Gpu(&'a Recorded, Rec),
    Call(&'a Recorded, Call),
    Mark(&'a Recorded, &'a MarkRow, u32),
}

impl Row<'_> {
    pub(crate) fn start(&self) -> i64 {
        match self {
            Row::Gpu(_, rec) => rec.start,
            Row::Call(_, call) => call.start,
            Row::Mark(_, mark, _) => mark.start,
        }
    }

    /// The value of a column; NULL for what such a row does not have.
    pub(crate) fn cell(&self, column: &str, spec: &Spec, strings: &Strings) -> Value {
        match self {
            Row::Gpu(lane, rec) => gpu_cell(lane, rec, column, spec, strings),
            Row::Call(lane, call) => call_cell(lane, call, column, spec, strings),
            Row::Mark(lane, mark, id) => mark_cell(lane, mark, *id, column, strings),
        }
    }
}

/// A correlation id as the file shows it.
fn shown(corr: u32, spec: &Spec) -> Value {
    if spec.file.shuffle_ids {
        // Multiplication by an odd number permutes the 31-bit numbers.
        Value::Int(i64::from(corr.wrapping_mul(0x9E37_79B1) & 0x7FFF_FFFF))
    } else {
        corr.into()
    }
}

fn gpu_cell(lane: &Recorded, rec: &Rec, column: &str, spec: &Spec, strings: &Strings) -> Value {
    match column {
        "start" => rec.start.into(),
        "end" if rec.unfinished => Value::Int(0),
        "end" => rec.end.into(),
        "deviceId" => lane.device.into(),
        "contextId" => Value::Int(1),
        "greenContextId" => Value::Null,
        "streamId" => rec.stream.into(),
        "correlationId" => shown(rec.corr, spec),
        "globalPid" => lane.global_pid.into(),
        "graphNodeId" if rec.node > 0 => Value::Int(rec.node as i64),
        _ => match rec.kind {
            Kind::Kernel(kernel) => kernel_cell(rec, &kernel, column, spec, strings),
            Kind::Copy { kind, bytes } => copy_cell(kind, bytes, column),
            Kind::Graph(graph) => match column {
                "graphId" => graph.into(),
                "graphExecId" => (graph + 1).into(),
                _ => Value::Null,
            },
        },
    }
}

fn kernel_cell(rec: &Rec, kernel: &Kernel, column: &str, spec: &Spec, strings: &Strings) -> Value {
    let comm = kernel.class.starts_with("comm");
    match column {
        "demangledName" if spec.file.text_names => Value::Text(kernel.full.to_owned()),
        "demangledName" => strings.id(kernel.full),
        "shortName" | "mangledName" => strings.id(kernel.short),
        "registersPerThread" => Value::Int(if comm { 96 } else { 168 }),
        "gridX" => Value::Int(match rec.role {
            Some(Role::AllReduce | Role::AllGather) => 32,
            Some(Role::Attention) => 132,
            _ => 64,
        }),
        "blockX" => Value::Int(if comm { 544 } else { 256 }),
        "gridY" | "gridZ" | "blockY" | "blockZ" | "launchType" => Value::Int(1),
        "cacheConfig" | "staticSharedMemory" | "localMemoryPerThread" => Value::Int(0),
        "dynamicSharedMemory" => Value::Int(if comm { 0 } else { 49_152 }),
        "localMemoryTotal" => Value::Int(250_871_808),
        "gridId" => rec.corr.into(),
        "graphId" if rec.graph > 0 => rec.graph.into(),
        "tensorSizeMinusOneElements" => Value::Text("[]".to_owned()),
        _ => Value::Null,
    }
}

fn copy_cell(kind: u8, bytes: u64, column: &str) -> Value {
    match (column, kind) {
        ("bytes", _) => Value::Int(bytes as i64),
        ("copyKind", _) => i64::from(kind).into(),
        ("srcKind", 1) | ("dstKind", 2) => Value::Int(1),
        ("srcKind" | "dstKind", _) => Value::Int(2),
        ("copyCount", _) => Value::Int(1),
        _ => Value::Null,
    }
}

fn call_cell(lane: &Recorded, call: &Call, column: &str, spec: &Spec, strings: &Strings) -> Value {
    match column {
        "start" => call.start.into(),
        "end" => call.end.into(),
        "eventClass" => i64::from(call.driver).into(),
        "globalTid" => main_thread(lane).into(),
        "correlationId" => shown(call.corr, spec),
        "nameId" => strings.id(call.name),
        "returnValue" => Value::Int(0),
        _ => Value::Null,
    }
}

fn mark_cell(lane: &Recorded, mark: &MarkRow, id: u32, column: &str, strings: &Strings) -> Value {
    match column {
        "eventId" => id.into(),
        "start" => mark.start.into(),
        "end" => mark.end.map_or(Value::Null, Value::Int),
        "eventType" => i64::from(mark.event_type).into(),
        "rangeId" if mark.end_tid.is_some() => id.into(),
        "color" => Value::Int(255),
        "text" if !mark.registered => Value::Text(mark.text.clone()),
        "textId" if mark.registered => strings.id(&mark.text),
        "globalTid" => main_thread(lane).into(),
        "endGlobalTid" => mark.end_tid.map_or(Value::Null, |tid| {
            Value::Int(lane.global_pid | i64::from(tid))
        }),
        "domainId" => mark.domain.into(),
        _ => Value::Null,
    }
}

/// The export's `globalTid` of a process's first thread.
pub(crate) fn main_thread(lane: &Recorded) -> i64 {
    lane.global_pid | i64::from(lane.pid)
}
