//! The four GPU tables, row by row, into lanes.

use std::collections::HashMap;

use linktax_records::Note;

use super::bulk::{self, Row};
use super::names::{Name, Seen, short_name};
use super::schema::{Schema, Table};
use super::{Connected, Tick};
use crate::TraceError;
use crate::timeline::{CopyKind, NameId, Op, OpKind, Ops};

const KERNEL: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
const MEMCPY: &str = "CUPTI_ACTIVITY_KIND_MEMCPY";
const MEMSET: &str = "CUPTI_ACTIVITY_KIND_MEMSET";
const GRAPH: &str = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";

/// The bits of a global id that hold the process: machine, virtual machine and pid, without the thread.
pub(super) const PROCESS: i64 = !0xff_ffff;

/// What was odd about the rows of one table. Nothing is left out without being counted here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hygiene {
    /// All rows.
    pub(crate) rows: u64,
    /// End equals start: kept.
    pub(crate) zero: u64,
    /// End before start: kept with no duration.
    pub(crate) negative: u64,
    /// Started, and the end is 0: kept with no duration.
    pub(crate) unfinished: u64,
    /// Neither start nor end: left out, since it has no place in time.
    pub(crate) untimed: u64,
    /// Starts before the row above it in its lane: sorted.
    pub(crate) unordered: u64,
    /// Clipped at an edge of the window.
    pub(crate) clipped: u64,
}

/// The GPU rows of one file.
#[derive(Debug, Default)]
pub(crate) struct GpuRows {
    /// Operations by (`globalPid`, `deviceId`).
    pub(crate) lanes: HashMap<(i64, u32), Ops>,
    /// Kernel names in order of first sight.
    pub(crate) names: Seen,
    /// Earliest start and latest end, those outside the window included.
    pub(crate) range: Option<(i64, i64)>,
    /// Rows by table, for the tables that are there.
    pub(crate) hygiene: Vec<(&'static str, Hygiene)>,
}

impl GpuRows {
    /// Reads all four tables.
    pub(crate) async fn read(
        from: &mut Connected<'_>,
        window: Option<(i64, i64)>,
    ) -> Result<Self, TraceError> {
        let mut builder = Builder::new(window);
        if let Some(table) = from.schema.table(KERNEL) {
            kernels(from, table, &mut builder).await?;
        }
        if let Some(table) = from.schema.table(MEMCPY) {
            let columns = [&COLUMNS[..], &["copyKind", "bytes", "graphNodeId"]].concat();
            others(from, table, MEMCPY, &columns, &mut builder, |row| {
                (
                    OpKind::Memcpy(copy_kind(row.int(6))),
                    row.int(7),
                    row.int(8),
                )
            })
            .await?;
        }
        if let Some(table) = from.schema.table(MEMSET) {
            let columns = [&COLUMNS[..], &["bytes", "graphNodeId"]].concat();
            others(from, table, MEMSET, &columns, &mut builder, |row| {
                (OpKind::Memset, row.int(6), row.int(7))
            })
            .await?;
        }
        if let Some(table) = from.schema.table(GRAPH) {
            // The executable graph tells launches of one graph from those of another; the template may be shared.
            let id = table.first_of(&["graphExecId", "graphId"]);
            let columns = [&COLUMNS[..], &[id]].concat();
            others(from, table, GRAPH, &columns, &mut builder, |row| {
                (OpKind::Graph, row.int(6), 0)
            })
            .await?;
        }
        Ok(builder.finish())
    }

    /// Rows of a table, 0 if it is absent.
    pub(crate) fn rows(&self, table: &str) -> u64 {
        let of = self.hygiene.iter().find(|(name, _)| *name == table);
        of.map_or(0, |(_, hygiene)| hygiene.rows)
    }

    /// Whether anything can be split at all.
    pub(crate) fn has_kernels_or_graphs(&self) -> bool {
        self.rows(KERNEL) + self.rows(GRAPH) > 0
    }

    /// The counters in words.
    pub(crate) fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        for (table, h) in &self.hygiene {
            let mut add = |code, count: u64, what: &str| {
                if count > 0 {
                    notes.push(Note::new(
                        code,
                        format!("{count} of {} rows of {table} {what}", h.rows),
                    ));
                }
            };
            add("zero_duration", h.zero, "take no time; they are kept");
            add(
                "negative_duration",
                h.negative,
                "end before they start; they are kept with no duration",
            );
            add(
                "unfinished_rows",
                h.unfinished,
                "have no end (the capture stopped first); they are kept with no duration",
            );
            add(
                "untimed_rows",
                h.untimed,
                "have neither start nor end; they are left out",
            );
            add(
                "unordered_rows",
                h.unordered,
                "start before the row above them; they were sorted",
            );
            add(
                "clipped_rows",
                h.clipped,
                "reach over an edge of the window and are clipped to it",
            );
        }
        notes
    }
}

/// The columns that all four tables share, in the order in which rows are read.
const COLUMNS: [&str; 6] = [
    "start",
    "end",
    "deviceId",
    "streamId",
    "correlationId",
    "globalPid",
];
const REQUIRED: [&str; 4] = ["start", "end", "deviceId", "streamId"];

async fn kernels(
    from: &mut Connected<'_>,
    table: Table<'_>,
    builder: &mut Builder,
) -> Result<(), TraceError> {
    let name = table.first_of(&["demangledName", "shortName"]);
    let mut required = REQUIRED.to_vec();
    required.push(name);
    from.require(KERNEL, table, &required)?;
    let columns = [&COLUMNS[..], &[name, "shortName", "graphNodeId"]].concat();
    let spelled = table.is_text(name) || first_is_text(from, table, name).await?;
    let short_spelled = table.is_text("shortName");
    let short = |row: &Row<'_>, full: Option<&str>| match (row.text(7), full) {
        (Some(short), _) if short_spelled || spelled => Name::Text(short.to_owned()),
        (_, Some(full)) if row.int(7) == 0 => Name::Text(short_name(full).to_owned()),
        _ => Name::Id(row.int(7)),
    };
    builder.begin(KERNEL);
    let mut tick = Tick::new(from, KERNEL);
    let sql = table.select(&columns);
    bulk::scan(from.connection, (from.path, KERNEL), &sql, |row| {
        tick.row();
        let Some((start, dur)) = builder.time(row) else {
            return;
        };
        let id = match row_text(row, 6, spelled) {
            Some(full) => builder.rows.names.by_text(full, || short(row, Some(full))),
            None => builder.rows.names.by_id(row.int(6), || short(row, None)),
        };
        let node = row.int(8) as u64;
        builder.add(row, (start, dur), OpKind::Kernel, id, (0, node));
    })
    .await?;
    builder.end();
    Ok(())
}

/// Only a column that may hold text is asked for its type, which costs a call a row.
#[inline]
fn row_text<'r>(row: &'r Row<'_>, at: i32, spelled: bool) -> Option<&'r str> {
    if spelled { row.text(at) } else { None }
}

/// Columns of SQLite hold what they like: a column declared as a number may spell names out all the same.
async fn first_is_text(
    from: &mut Connected<'_>,
    table: Table<'_>,
    column: &str,
) -> Result<bool, TraceError> {
    let mut text = false;
    let sql = format!("{} LIMIT 1", table.select(&[column]));
    bulk::scan(from.connection, (from.path, KERNEL), &sql, |row| {
        text = row.text(0).is_some();
    })
    .await?;
    Ok(text)
}

async fn others(
    from: &mut Connected<'_>,
    table: Table<'_>,
    name: &'static str,
    columns: &[&str],
    builder: &mut Builder,
    what: impl Fn(&Row<'_>) -> (OpKind, i64, i64),
) -> Result<(), TraceError> {
    from.require(name, table, &REQUIRED)?;
    builder.begin(name);
    let mut tick = Tick::new(from, name);
    let sql = table.select(columns);
    bulk::scan(from.connection, (from.path, name), &sql, |row| {
        tick.row();
        if let Some(time) = builder.time(row) {
            let (kind, bytes, node) = what(row);
            let wide = (bytes.max(0) as u64, node as u64);
            builder.add(row, time, kind, NameId(0), wide);
        }
    })
    .await?;
    builder.end();
    Ok(())
}

/// The export's `copyKind` (`ENUM_CUDA_MEMCPY_OPER`).
fn copy_kind(kind: i64) -> CopyKind {
    match kind {
        1 => CopyKind::HostToDevice,
        2 => CopyKind::DeviceToHost,
        8 => CopyKind::DeviceToDevice,
        10 => CopyKind::PeerToPeer,
        _ => CopyKind::Other,
    }
}

struct Builder {
    rows: GpuRows,
    window: Option<(i64, i64)>,
    table: &'static str,
    counted: Hygiene,
    first: i64,
    last: i64,
    lanes: Vec<LaneRows>,
    index: HashMap<(i64, u32), usize>,
    current: Option<usize>,
}

struct LaneRows {
    key: (i64, u32),
    ops: Ops,
    above: i64,
}

impl Builder {
    fn new(window: Option<(i64, i64)>) -> Self {
        Builder {
            rows: GpuRows::default(),
            window,
            table: "",
            counted: Hygiene::default(),
            first: i64::MAX,
            last: i64::MIN,
            lanes: Vec::new(),
            index: HashMap::new(),
            current: None,
        }
    }

    fn begin(&mut self, table: &'static str) {
        self.table = table;
        self.counted = Hygiene::default();
        self.lanes.iter_mut().for_each(|lane| lane.above = i64::MIN);
    }

    fn end(&mut self) {
        self.rows.hygiene.push((self.table, self.counted));
    }

    /// Start and duration of a row; `None` if it has no place in time or lies outside the window.
    #[inline]
    fn time(&mut self, row: &Row<'_>) -> Option<(i64, u64)> {
        let (start, mut end) = (row.int(0), row.int(1));
        self.counted.rows += 1;
        if end <= start {
            if start == 0 && end == 0 {
                self.counted.untimed += 1;
                return None;
            }
            match end {
                _ if end == start => self.counted.zero += 1,
                0 => self.counted.unfinished += 1,
                _ => self.counted.negative += 1,
            }
            end = start;
        }
        self.first = self.first.min(start);
        self.last = self.last.max(end);
        let (from, to) = match self.window {
            None => return Some((start, end.abs_diff(start))),
            Some(window) => window,
        };
        let inside = start < to && (end > from || (end == start && start >= from));
        if !inside {
            return None;
        }
        let (cut_start, cut_end) = (start.max(from), end.min(to));
        if (cut_start, cut_end) != (start, end) {
            self.counted.clipped += 1;
        }
        Some((cut_start, cut_end.abs_diff(cut_start)))
    }

    #[inline]
    fn add(
        &mut self,
        row: &Row<'_>,
        (start, dur): (i64, u64),
        kind: OpKind,
        name: NameId,
        (bytes, node): (u64, u64),
    ) {
        let key = (row.int(5) & PROCESS, row.int(2) as u32);
        let lane = self.lane(key);
        let unordered = start < lane.above;
        lane.above = start;
        lane.ops.push(Op {
            start,
            dur,
            name,
            stream: row.int(3) as u32,
            corr: row.int(4) as u32,
            node,
            bytes,
            kind,
        });
        self.counted.unordered += u64::from(unordered);
    }

    /// Rows of one lane mostly follow each other.
    #[inline]
    fn lane(&mut self, key: (i64, u32)) -> &mut LaneRows {
        let at = match self.current {
            Some(at) if self.lanes[at].key == key => at,
            _ => *self.index.entry(key).or_insert_with(|| {
                self.lanes.push(LaneRows {
                    key,
                    ops: Ops::default(),
                    above: i64::MIN,
                });
                self.lanes.len() - 1
            }),
        };
        self.current = Some(at);
        &mut self.lanes[at]
    }

    fn finish(mut self) -> GpuRows {
        self.rows.range = (self.first <= self.last).then_some((self.first, self.last));
        self.rows.lanes = self
            .lanes
            .into_iter()
            .map(|lane| (lane.key, lane.ops))
            .collect();
        self.rows
    }
}

/// Whether the export has a table of GPU work at all, with or without rows.
pub(crate) fn gpu_tables(schema: &Schema) -> Vec<&'static str> {
    [KERNEL, MEMCPY, MEMSET, GRAPH]
        .into_iter()
        .filter(|table| schema.table(table).is_some())
        .collect()
}
