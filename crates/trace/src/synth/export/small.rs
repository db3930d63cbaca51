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

pub(crate) fn log_text(secret: &str) -> String {
    format!("INFO starting with key {secret} in the environment")
}
