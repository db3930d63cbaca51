use linktax_records::{
    CacheMode, CellEntry, CellSpec, CellStatus, EventClass, FailureDetail, GpuCount, Load, Nanos,
    Outcome, Phase, Reads, RequestRecord, RunManifest, RunStatus, SCHEMA_VERSION, TokenSource,
    ToolInfo, Usage,
};
use serde_json::json;

pub(crate) fn spec(index: u32) -> CellSpec {
    CellSpec {
        index,
        workload: "random".into(),
        input_len: Some(1024),
        output_len: Some(128),
        load: Load::Concurrency(4 << index),
        requests: Some(16),
        duration_s: None,
        cache: CacheMode::Cold,
    }
}

pub(crate) fn cell(index: u32, status: CellStatus) -> CellEntry {
    CellEntry {
        spec: spec(index),
        status,
        attempt: 0,
        started_unix_ns: None,
        results: None,
        server: None,
        client: None,
        verdict: None,
    }
}

pub(crate) fn manifest(statuses: &[CellStatus]) -> RunManifest {
    RunManifest {
        schema_version: SCHEMA_VERSION,
        tool: ToolInfo {
            name: "linktax".into(),
            version: "0.1.0".into(),
        },
        status: RunStatus::Incomplete,
        command: vec!["linktax".into(), "bench".into()],
        arm: "nvlink".into(),
        started_unix_ns: 1_764_000_000_000_000_000,
        finished_unix_ns: None,
        seed: 7,
        nonce: "00c0ffee".into(),
        gpus: GpuCount {
            count: Some(2),
            source: "flag".into(),
        },
        plan: json!({"endpoint": "completions"}),
        environment: serde_json::Map::new(),
        servers: vec![],
        percentile_method: "linear".into(),
        cells: (0..)
            .zip(statuses)
            .map(|(index, &status)| cell(index, status))
            .collect(),
        notes: vec![],
    }
}

/// A completed request of `tokens` tokens, one read each.
pub(crate) fn record(cell: u32, attempt: u32, index: u64, tokens: u32) -> RequestRecord {
    let mut reads = Reads::default();
    for k in 0..u64::from(tokens) {
        reads.push(
            Nanos::from_micros(50_000 + 9_000 * k + index),
            1,
            EventClass::Content,
            240,
            1,
        );
    }
    RequestRecord {
        cell,
        attempt,
        index,
        phase: Phase::Measured,
        replica: 0,
        request_id: String::new(),
        input_len: Some(1024),
        output_len: u64::from(tokens),
        t_sched_ns: Nanos::from_millis(index),
        t_sent_ns: Some(Nanos::from_millis(index + 1)),
        t_headers_ns: Some(Nanos::from_millis(index + 40)),
        t_done_ns: Nanos::from_millis(index + 2_000),
        reconnected: false,
        outcome: Outcome::Completed,
        failure: None,
        finish_reason: Some("length".into()),
        done_marker: true,
        usage: Some(Usage {
            prompt_tokens: 1024,
            completion_tokens: u64::from(tokens),
            cached_tokens: None,
            reasoning_tokens: None,
        }),
        token_source: TokenSource::TokenIds,
        keepalives: 0,
        socket_reads: tokens,
        reads,
        delivery_lag_ns: vec![],
        text: None,
    }
}

/// A record in which every optional field is filled.
pub(crate) fn full_record() -> RequestRecord {
    let mut full = record(3, 1, 9, 4);
    full.replica = 1;
    full.request_id = "linktax-00c0ffee-9".into();
    full.reconnected = true;
    full.keepalives = 2;
    full.delivery_lag_ns = vec![40_000, 50_000, 60_000, u64::MAX];
    full.text = Some("you said 你好\n\"quoted\"".into());
    full.outcome = Outcome::ErrorInStream;
    full.failure = Some(FailureDetail {
        status: Some(200),
        message: "engine \"0\" failed,\nout of memory".into(),
        body: Some("{\"error\":{}}".into()),
    });
    full.usage = Some(Usage {
        prompt_tokens: 1024,
        completion_tokens: 4,
        cached_tokens: Some(512),
        reasoning_tokens: Some(2),
    });
    full
}

/// A record in which every optional field is absent.
pub(crate) fn bare_record() -> RequestRecord {
    let mut bare = record(0, 0, 0, 0);
    bare.input_len = None;
    bare.t_sent_ns = None;
    bare.t_headers_ns = None;
    bare.finish_reason = None;
    bare.done_marker = false;
    bare.usage = None;
    bare.outcome = Outcome::ConnectError;
    bare.token_source = TokenSource::Events;
    bare
}

/// Every outcome.
pub(crate) const OUTCOMES: [Outcome; 12] = [
    Outcome::Completed,
    Outcome::ConnectError,
    Outcome::HttpError,
    Outcome::ErrorInStream,
    Outcome::Truncated,
    Outcome::Reset,
    Outcome::FirstTokenTimeout,
    Outcome::IdleTimeout,
    Outcome::ShortOutput,
    Outcome::NoOutput,
    Outcome::Malformed,
    Outcome::Cancelled,
];
