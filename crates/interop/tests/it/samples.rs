use linktax_records::{
    CacheMode, CellEntry, CellSpec, CellStatus, EventClass, GpuCount, Load, Nanos, Outcome, Phase,
    Reads, RequestRecord, RunManifest, RunStatus, TokenSource, ToolInfo, Usage,
};
use serde_json::json;

pub(crate) fn cell(load: Load) -> CellEntry {
    CellEntry {
        spec: CellSpec {
            index: 0,
            workload: "random".into(),
            input_len: Some(1024),
            output_len: Some(128),
            load,
            requests: None,
            duration_s: Some(60.0),
            cache: CacheMode::Cold,
        },
        status: CellStatus::Complete,
        attempt: 0,
        started_unix_ns: Some(1_795_961_943_000_000_000),
        results: None,
        server: None,
        client: None,
        verdict: None,
    }
}

pub(crate) fn manifest(gpus: Option<u32>) -> RunManifest {
    RunManifest {
        schema_version: 1,
        tool: ToolInfo {
            name: "linktax".into(),
            version: "0.1.0".into(),
        },
        status: RunStatus::Complete,
        command: vec![],
        arm: "nvlink".into(),
        started_unix_ns: 1_764_000_000_000_000_000,
        finished_unix_ns: None,
        seed: 0,
        nonce: "0".into(),
        gpus: GpuCount {
            count: gpus,
            source: "flag".into(),
        },
        plan: json!({"endpoint": "completions", "model": "m"}),
        environment: serde_json::Map::new(),
        servers: vec![],
        percentile_method: "linear".into(),
        cells: vec![],
        notes: vec![],
    }
}

/// A measured, completed request sent at `sent`, with one read a pair of (time since the send, tokens).
pub(crate) fn request(index: u64, sent: Nanos, arrivals: &[(Nanos, u32)]) -> RequestRecord {
    let mut reads = Reads::default();
    for &(at, tokens) in arrivals {
        reads.push(at, tokens, EventClass::Content, 240, 1);
    }
    let tokens = reads.counted_tokens();
    RequestRecord {
        cell: 0,
        attempt: 0,
        index,
        phase: Phase::Measured,
        replica: 0,
        request_id: String::new(),
        input_len: Some(1024),
        output_len: tokens,
        t_sched_ns: sent,
        t_sent_ns: Some(sent),
        t_headers_ns: None,
        t_done_ns: sent + Nanos::from_secs(9),
        reconnected: false,
        outcome: Outcome::Completed,
        failure: None,
        finish_reason: Some("length".into()),
        done_marker: true,
        usage: Some(Usage {
            prompt_tokens: 1024,
            completion_tokens: tokens,
            cached_tokens: None,
            reasoning_tokens: None,
        }),
        token_source: TokenSource::TokenIds,
        keepalives: 0,
        socket_reads: 0,
        reads,
        delivery_lag_ns: vec![],
        text: None,
    }
}

/// The same with times in milliseconds and one token a read.
pub(crate) fn request_ms(index: u64, sent: u64, arrivals: &[u64]) -> RequestRecord {
    let arrivals: Vec<_> = arrivals
        .iter()
        .map(|&ms| (Nanos::from_millis(ms), 1))
        .collect();
    request(index, Nanos::from_millis(sent), &arrivals)
}
