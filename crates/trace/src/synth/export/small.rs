//! The small tables: strings, metadata, processes, GPUs, and the places where exports keep secrets.

use crate::synth::record::Recorded;
use crate::synth::rows::{Strings, Value, main_thread};
use crate::synth::spec::{Arch, GraphMode, Spec};

/// Rows of the small tables, in the order of the schema's columns.
pub(crate) fn rows(
    table: &str,
    spec: &Spec,
    recorded: &[Recorded],
    strings: &Strings,
) -> Vec<Vec<Value>> {
    match table {
        "StringIds" => strings
            .rows()
            .into_iter()
            .map(|(id, s)| vec![id.into(), text(s)])
            .collect(),
        "META_DATA_EXPORT" => pairs(export_meta(spec)),
        "META_DATA_CAPTURE" => pairs(capture_meta(spec)),
        "PROCESSES" => processes(spec, recorded),
        "ThreadNames" => recorded
            .iter()
            .map(|lane| {
                let name = strings.id("VLLM::Worker");
                vec![name, Value::Int(20), main_thread(lane).into()]
            })
            .collect(),
        "TARGET_INFO_SESSION_START_TIME" => vec![vec![Value::Int(1_795_964_466_055_833_265)]],
        "TARGET_INFO_GPU" => recorded.iter().map(|lane| gpu(spec, lane)).collect(),
        "TARGET_INFO_CUDA_DEVICE" => recorded
            .iter()
            .map(|lane| vec![lane.rank.into(), lane.device.into(), lane.pid.into()])
            .collect(),
        "ENUM_CUDA_MEMCPY_OPER" => copy_kinds(),
        "DIAGNOSTIC_EVENT" => std::iter::once("Profiling has started.".to_owned())
            .chain(spec.secrets.iter().map(|s| log_text(s)))
            .map(|message| {
                let [one, two] = [1, 2].map(Value::Int);
                vec![one.clone(), one.clone(), two, one, Value::Text(message)]
            })
            .collect(),
        "ProcessStreams" | "ANALYSIS_FILE" | "TARGET_INFO_SYSTEM_ENV" => (1..)
            .zip(&spec.secrets)
            .map(|(id, secret)| leak(table, id, secret, recorded, strings))
            .collect(),
        _ => Vec::new(),
    }
}

fn text(s: &str) -> Value {
    Value::Text(s.to_owned())
}

/// All ranks' processes, traced or not.
fn processes(spec: &Spec, recorded: &[Recorded]) -> Vec<Vec<Value>> {
    let Some(first) = recorded.first() else {
        return Vec::new();
    };
    let base = first.global_pid - (i64::from(first.pid) << 24);
    (0..spec.ranks())
        .map(|rank| first.pid + rank)
        .map(|pid| {
            let global = base + (i64::from(pid) << 24);
            vec![Value::Int(global), pid.into(), text("python3")]
        })
        .collect()
}

/// A row that repeats a secret, as logs, files and system properties do.
fn leak(
    table: &str,
    id: i64,
    secret: &str,
    recorded: &[Recorded],
    strings: &Strings,
) -> Vec<Value> {
    let log = strings.id(&log_text(secret));
    match table {
        "ProcessStreams" => {
            let global = recorded.first().map_or(0, |lane| lane.global_pid);
            vec![global.into(), strings.id("stdout.log"), log]
        }
        "ANALYSIS_FILE" => vec![id.into(), text("stderr.log"), log, Value::Int(0)],
        _ => {
            let [zero, one] = [0, 1].map(Value::Int);
            vec![zero, text("host"), text("Hostname"), one, text(secret)]
        }
    }
}

fn copy_kinds() -> Vec<Vec<Value>> {
    [
        (1, "Host-to-Device"),
        (2, "Device-to-Host"),
        (8, "Device-to-Device"),
        (10, "Peer-to-Peer"),
    ]
    .into_iter()
    .map(|(id, label)| vec![Value::Int(id), text(label), text(label)])
    .collect()
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

pub(crate) fn log_text(secret: &str) -> String {
    format!("INFO starting with key {secret} in the environment")
}
