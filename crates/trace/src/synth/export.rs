//! The export as a whole: which tables, with which rows, in which order.

use rand::seq::SliceRandom as _;

use super::record::{Kind, Rec, Recorded};
use super::rows::{Row, Strings, Value, main_thread};
use super::schedule;
use super::schema::{self, Column, Storage, Table};
use super::spec::{Arch, GraphMode, NvtxForm, Spec};

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
        _ => Rows::Plain(plain(table, spec, recorded, strings)),
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

/// Rows of the small tables, in the order of the schema's columns.
fn plain(table: &str, spec: &Spec, recorded: &[Recorded], strings: &Strings) -> Vec<Vec<Value>> {
    let text = |s: &str| Value::Text(s.to_owned());
    let secrets = || spec.secrets.iter();
    match table {
        "StringIds" => strings
            .rows()
            .into_iter()
            .map(|(id, s)| vec![id.into(), text(s)])
            .collect(),
        "META_DATA_EXPORT" => pairs(export_meta(spec)),
        "META_DATA_CAPTURE" => pairs(capture_meta(spec)),
        "PROCESSES" => (0..spec.ranks())
            .map(|rank| {
                let pid = 4_001 + rank;
                let base = recorded
                    .first()
                    .map_or(0, |l| l.global_pid - (i64::from(l.pid) << 24));
                vec![
                    Value::Int(base + (i64::from(pid) << 24)),
                    pid.into(),
                    text("python3"),
                ]
            })
            .collect(),
        "ThreadNames" => recorded
            .iter()
            .map(|lane| {
                vec![
                    strings.id("VLLM::Worker"),
                    Value::Int(20),
                    main_thread(lane).into(),
                ]
            })
            .collect(),
        "ProcessStreams" => secrets()
            .map(|s| {
                vec![
                    recorded
                        .first()
                        .map_or(Value::Int(0), |l| l.global_pid.into()),
                    strings.id("stdout.log"),
                    strings.id(&log_text(s)),
                ]
            })
            .collect(),
        "ANALYSIS_FILE" => secrets()
            .zip(1i64..)
            .map(|(s, id)| {
                vec![
                    id.into(),
                    text("stderr.log"),
                    strings.id(&log_text(s)),
                    Value::Int(0),
                ]
            })
            .collect(),
        "TARGET_INFO_SYSTEM_ENV" => secrets()
            .map(|s| {
                vec![
                    Value::Int(0),
                    text("host"),
                    text("Hostname"),
                    Value::Int(1),
                    text(s),
                ]
            })
            .collect(),
        "DIAGNOSTIC_EVENT" => {
            let texts = std::iter::once("Profiling has started.".to_owned())
                .chain(secrets().map(|s| log_text(s)));
            texts
                .map(|t| {
                    vec![
                        Value::Int(1),
                        Value::Int(1),
                        Value::Int(2),
                        Value::Int(1),
                        Value::Text(t),
                        Value::Null,
                    ]
                })
                .collect()
        }
        "TARGET_INFO_SESSION_START_TIME" => vec![vec![Value::Int(1_795_964_466_055_833_265)]],
        "TARGET_INFO_GPU" => recorded.iter().map(|lane| gpu(spec, lane)).collect(),
        "TARGET_INFO_CUDA_DEVICE" => recorded
            .iter()
            .map(|lane| vec![lane.rank.into(), lane.device.into(), lane.pid.into()])
            .collect(),
        "ENUM_CUDA_MEMCPY_OPER" => [
            (1, "Host-to-Device"),
            (2, "Device-to-Host"),
            (8, "Device-to-Device"),
            (10, "Peer-to-Peer"),
        ]
        .into_iter()
        .map(|(id, label)| vec![Value::Int(id), text(label), text(label)])
        .collect(),
        _ => Vec::new(),
    }
}

fn pairs(rows: Vec<(String, String)>) -> Vec<Vec<Value>> {
    rows.into_iter()
        .map(|(name, value)| vec![Value::Text(name), Value::Text(value)])
        .collect()
}

fn gpu(spec: &Spec, lane: &Recorded) -> Vec<Value> {
    let (name, bandwidth, sms) = match spec.model.arch {
        Arch::Hopper => ("NVIDIA H200", 4_814_304_000_000, 132),
        Arch::Ampere => ("NVIDIA A100-SXM4-80GB", 2_039_000_000_000, 108),
    };
    let mut row = vec![Value::Null; 10];
    row[0] = Value::Int(0);
    row[1] = lane.rank.into();
    row[2] = Value::Text(name.to_owned());
    row[3] = Value::Text(format!("0000:{:02x}:00.0", 6 + lane.rank));
    row[4] = Value::Int(1);
    row[7] = Value::Int(bandwidth);
    row[9] = Value::Int(sms);
    row
}

fn export_meta(spec: &Spec) -> Vec<(String, String)> {
    let flavour = spec.file.flavour;
    let mut rows = vec![
        (
            "EXPORT_PRODUCT_NAME".to_owned(),
            "NVIDIA Nsight Systems".to_owned(),
        ),
        (
            "EXPORT_PRODUCT_VERSION".to_owned(),
            flavour.product_version().to_owned(),
        ),
        (
            "EXPORT_PARAM_LAZY".to_owned(),
            (!spec.file.eager_tables).to_string(),
        ),
    ];
    let claimed = spec
        .file
        .claim_version
        .as_deref()
        .or(flavour.schema_version());
    if let Some(version) = claimed {
        rows.push(("EXPORT_SCHEMA_VERSION".to_owned(), version.to_owned()));
        for (part, value) in ["MAJOR", "MINOR", "MICRO"].iter().zip(version.split('.')) {
            rows.push((format!("EXPORT_SCHEMA_VERSION_{part}"), value.to_owned()));
        }
    }
    for secret in &spec.secrets {
        rows.push((
            "EXPORT_PARAM_INPUT_PATH_ABS".to_owned(),
            format!("/home/{secret}/trace.nsys-rep"),
        ));
        rows.push(("EXPORT_USER".to_owned(), secret.clone()));
    }
    rows
}

fn capture_meta(spec: &Spec) -> Vec<(String, String)> {
    let mode = match spec.graph.mode {
        GraphMode::Node | GraphMode::Piecewise => "Node",
        _ => "Graph",
    };
    let mut rows = vec![
        ("CAPTURE_EVENT_TYPE".to_owned(), "NvtxEvents".to_owned()),
        ("CAPTURE_EVENT_TYPE".to_owned(), "Cuda".to_owned()),
        ("PROCESS_0:COMMAND".to_owned(), "python3".to_owned()),
        (
            "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE".to_owned(),
            mode.to_owned(),
        ),
    ];
    for (i, secret) in spec.secrets.iter().enumerate() {
        rows.push((
            format!("PROCESS_0:ENVIRONMENT_VARIABLE_{i}"),
            format!("API_KEY={secret}"),
        ));
        rows.push((
            format!("PROCESS_0:ARGUMENT_{i}"),
            format!("--api-key={secret}"),
        ));
    }
    rows
}

fn log_text(secret: &str) -> String {
    format!("INFO starting with key {secret} in the environment")
}

/// Every string that some row refers to.
pub(crate) fn strings_used(spec: &Spec, recorded: &[Recorded]) -> Vec<String> {
    let mut all = vec!["VLLM::Worker".to_owned(), "stdout.log".to_owned()];
    all.extend(spec.secrets.iter().map(|s| log_text(s)));
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
