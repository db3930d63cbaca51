//! The export as a whole: which tables, with which rows, in which order.

mod small;

use rand::seq::SliceRandom as _;

use super::record::{Kind, Rec, Recorded};
use super::rows::{Row, Strings, Value};
use super::schedule;
use super::schema::{self, Column, Storage, Table};
use super::spec::{NvtxForm, Spec};

/// Streams of random numbers, by purpose.
const SHUFFLE_ROWS: u64 = 11;
const SHUFFLE_COLUMNS: u64 = 12;

/// The rows of a table.
pub(crate) enum Rows<'a> {
    /// Of an event table; repeated if the specification says so.
    Events(Vec<Row<'a>>),
    /// Of a small table, by the order of its columns in the schema.
    Plain(Vec<Vec<Value>>),
}

impl Rows<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Rows::Events(rows) => rows.len(),
            Rows::Plain(rows) => rows.len(),
        }
    }
}

/// A table to write.
pub(crate) struct Sheet<'a> {
    pub(crate) table: Table,
    /// Position of each column in the rows of [`Rows::Plain`].
    pub(crate) order: Vec<usize>,
    pub(crate) rows: Rows<'a>,
}

/// Every table of the export, in the order of writing.
pub(crate) fn sheets<'a>(
    spec: &Spec,
    recorded: &'a [Recorded],
    strings: &Strings,
) -> Vec<Sheet<'a>> {
    let mut columns_rng = schedule::stream(spec.seed, SHUFFLE_COLUMNS);
    let mut rows_rng = schedule::stream(spec.seed, SHUFFLE_ROWS);
    let mut tables = schema::tables(spec.file.flavour);
    if spec.file.unknown_extras {
        add_unknowns(&mut tables);
    }
    let mut sheets = Vec::new();
    for mut table in tables {
        let mut rows = rows_of(&table.name, spec, recorded, strings);
        if spec.host.nvtx == NvtxForm::V2 && table.name == "NVTX_EVENTS" {
            table.name = "NVTX_EVENTS_V2".to_owned();
        }
        let wanted = rows.len() > 0 || spec.file.eager_tables;
        if !wanted || spec.file.without_tables.contains(&table.name) {
            continue;
        }
        if spec.file.text_names {
            for column in table
                .columns
                .iter_mut()
                .filter(|c| c.name == "demangledName")
            {
                column.storage = Storage::Text;
            }
        }
        let mut order: Vec<usize> = (0..table.columns.len()).collect();
        if spec.file.shuffle_columns {
            order.shuffle(&mut columns_rng);
        }
        if spec.file.shuffle_rows
            && let Rows::Events(rows) = &mut rows
        {
            rows.shuffle(&mut rows_rng);
        }
        table.columns = order.iter().map(|&i| table.columns[i].clone()).collect();
        sheets.push(Sheet { table, order, rows });
    }
    sheets
}

/// Columns and a table that no version has.
fn add_unknowns(tables: &mut Vec<Table>) {
    for table in tables.iter_mut() {
        if table.name.starts_with("CUPTI_ACTIVITY_KIND_") {
            table.columns.insert(
                2,
                Column {
                    name: "futureColumn".to_owned(),
                    storage: Storage::Text,
                    not_null: false,
                    key: false,
                },
            );
        }
    }
    tables.push(Table {
        name: "CUPTI_ACTIVITY_KIND_FUTURE".to_owned(),
        columns: vec![Column {
            name: "start".to_owned(),
            storage: Storage::Integer,
            not_null: true,
            key: false,
        }],
    });
}

fn rows_of<'a>(table: &str, spec: &Spec, recorded: &'a [Recorded], strings: &Strings) -> Rows<'a> {
    let gpu = |wanted: fn(&Kind) -> bool| {
        by_start(
            recorded
                .iter()
                .flat_map(|lane| lane.recs.iter().map(move |rec| (lane, *rec)))
                .filter(|(_, rec)| wanted(&rec.kind))
                .map(|(lane, rec)| Row::Gpu(lane, rec))
                .collect(),
        )
    };
    match table {
        "CUPTI_ACTIVITY_KIND_KERNEL" => {
            let mut rows = gpu(|kind| matches!(kind, Kind::Kernel(_)));
            if let Rows::Events(rows) = &mut rows {
                rows.extend(broken(spec, recorded));
            }
            rows
        }
        "CUPTI_ACTIVITY_KIND_MEMCPY" => gpu(|kind| matches!(kind, Kind::Copy { .. })),
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" => gpu(|kind| matches!(kind, Kind::Graph(_))),
        "CUPTI_ACTIVITY_KIND_RUNTIME" => by_start(
            recorded
                .iter()
                .flat_map(|lane| lane.calls.iter().map(move |call| Row::Call(lane, *call)))
                .collect(),
        ),
        "NVTX_EVENTS" => by_start(
            recorded
                .iter()
                .flat_map(|lane| lane.marks.iter().map(move |mark| (lane, mark)))
                .zip(1..)
                .map(|((lane, mark), id)| Row::Mark(lane, mark, id))
                .collect(),
        ),
        "CUPTI_ACTIVITY_KIND_FUTURE" => Rows::Plain(vec![vec![Value::Int(1)]]),
        _ => Rows::Plain(small::rows(table, spec, recorded, strings)),
    }
}

fn by_start(mut rows: Vec<Row<'_>>) -> Rows<'_> {
    rows.sort_by_key(Row::start);
    Rows::Events(rows)
}

/// Kernel rows with impossible times, beside the good ones of the first rank.
fn broken<'a>(spec: &Spec, recorded: &'a [Recorded]) -> Vec<Row<'a>> {
    let faults = &spec.faults;
    let kinds = [
        (faults.zero_durations, 0),
        (faults.negative_durations, -100),
        (faults.zero_times, 0),
    ];
    let Some((lane, first)) = recorded.first().and_then(|lane| {
        let first = lane
            .recs
            .iter()
            .find(|r| matches!(r.kind, Kind::Kernel(_)))?;
        Some((lane, *first))
    }) else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    for (which, (count, dur)) in kinds.into_iter().enumerate() {
        for i in 0..i64::from(count) {
            let start = if which == 2 {
                0
            } else {
                first.start + 1_000 * (i + 1)
            };
            rows.push(Row::Gpu(
                lane,
                Rec {
                    start,
                    end: start + dur,
                    corr: 0,
                    node: 0,
                    graph: 0,
                    ..first
                },
            ));
        }
    }
    rows
}

/// Every string that some row refers to.
pub(crate) fn strings_used(spec: &Spec, recorded: &[Recorded]) -> Vec<String> {
    let mut all = vec!["VLLM::Worker".to_owned(), "stdout.log".to_owned()];
    all.extend(spec.secrets.iter().map(|s| small::log_text(s)));
    for lane in recorded {
        for rec in &lane.recs {
            if let Kind::Kernel(kernel) = rec.kind {
                all.push(kernel.full.to_owned());
                all.push(kernel.short.to_owned());
            }
        }
        all.extend(lane.calls.iter().map(|call| call.name.to_owned()));
        all.extend(
            lane.marks
                .iter()
                .filter(|m| m.registered)
                .map(|m| m.text.clone()),
        );
    }
    all.sort_unstable();
    all.dedup();
    all
}
