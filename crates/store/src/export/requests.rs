use linktax_records::{CellSpec, Nanos, RequestRecord};
use polars::error::PolarsResult;
use polars::frame::DataFrame;

use super::table::{Rows, column};

/// Requests, column by column.
#[derive(Default)]
pub(super) struct RequestRows {
    cell: Vec<u32>,
    workload: Vec<String>,
    cell_input_len: Vec<Option<u64>>,
    cell_output_len: Vec<Option<u64>>,
    concurrency: Vec<Option<u32>>,
    attempt: Vec<u32>,
    index: Vec<u64>,
    phase: Vec<&'static str>,
    replica: Vec<u32>,
    request_id: Vec<String>,
    input_len: Vec<Option<u64>>,
    output_len: Vec<u64>,
    t_sched_ns: Vec<u64>,
    t_sent_ns: Vec<Option<u64>>,
    t_headers_ns: Vec<Option<u64>>,
    t_done_ns: Vec<u64>,
    reconnected: Vec<bool>,
    outcome: Vec<&'static str>,
    failure_status: Vec<Option<u32>>,
    failure_message: Vec<Option<String>>,
    finish_reason: Vec<Option<String>>,
    done_marker: Vec<bool>,
    prompt_tokens: Vec<Option<u64>>,
    completion_tokens: Vec<Option<u64>>,
    cached_tokens: Vec<Option<u64>>,
    reasoning_tokens: Vec<Option<u64>>,
    token_source: Vec<&'static str>,
    counted_tokens: Vec<u64>,
    keepalives: Vec<u32>,
    socket_reads: Vec<u32>,
    reads: Vec<u32>,
}

impl RequestRows {
    pub(super) fn push(&mut self, cell: &CellSpec, r: &RequestRecord) {
        self.cell.push(r.cell);
        self.workload.push(cell.workload.clone());
        self.cell_input_len.push(cell.input_len);
        self.cell_output_len.push(cell.output_len);
        self.concurrency.push(cell.load.concurrency());
        self.attempt.push(r.attempt);
        self.index.push(r.index);
        self.phase.push(r.phase.as_str());
        self.replica.push(r.replica);
        self.request_id.push(r.request_id.clone());
        self.input_len.push(r.input_len);
        self.output_len.push(r.output_len);
        self.t_sched_ns.push(r.t_sched_ns.as_nanos());
        self.t_sent_ns.push(r.t_sent_ns.map(Nanos::as_nanos));
        self.t_headers_ns.push(r.t_headers_ns.map(Nanos::as_nanos));
        self.t_done_ns.push(r.t_done_ns.as_nanos());
        self.reconnected.push(r.reconnected);
        self.outcome.push(r.outcome.as_str());
        let failure = r.failure.as_ref();
        self.failure_status
            .push(failure.and_then(|f| f.status).map(u32::from));
        self.failure_message
            .push(failure.map(|f| f.message.clone()));
        self.finish_reason.push(r.finish_reason.clone());
        self.done_marker.push(r.done_marker);
        self.prompt_tokens.push(r.usage.map(|u| u.prompt_tokens));
        self.completion_tokens
            .push(r.usage.map(|u| u.completion_tokens));
        self.cached_tokens
            .push(r.usage.and_then(|u| u.cached_tokens));
        self.reasoning_tokens
            .push(r.usage.and_then(|u| u.reasoning_tokens));
        self.token_source.push(r.token_source.as_str());
        self.counted_tokens.push(r.reads.counted_tokens());
        self.keepalives.push(r.keepalives);
        self.socket_reads.push(r.socket_reads);
        self.reads
            .push(u32::try_from(r.reads.len()).unwrap_or(u32::MAX));
    }
}

impl Rows for RequestRows {
    const BATCH: usize = 50_000;

    fn len(&self) -> usize {
        self.cell.len()
    }

    fn into_frame(self) -> PolarsResult<DataFrame> {
        DataFrame::new_infer_height(vec![
            column("cell", self.cell),
            column("workload", self.workload),
            column("cell_input_len", self.cell_input_len),
            column("cell_output_len", self.cell_output_len),
            column("concurrency", self.concurrency),
            column("attempt", self.attempt),
            column("index", self.index),
            column("phase", self.phase),
            column("replica", self.replica),
            column("request_id", self.request_id),
            column("input_len", self.input_len),
            column("output_len", self.output_len),
            column("t_sched_ns", self.t_sched_ns),
            column("t_sent_ns", self.t_sent_ns),
            column("t_headers_ns", self.t_headers_ns),
            column("t_done_ns", self.t_done_ns),
            column("reconnected", self.reconnected),
            column("outcome", self.outcome),
            column("failure_status", self.failure_status),
            column("failure_message", self.failure_message),
            column("finish_reason", self.finish_reason),
            column("done_marker", self.done_marker),
            column("prompt_tokens", self.prompt_tokens),
            column("completion_tokens", self.completion_tokens),
            column("cached_tokens", self.cached_tokens),
            column("reasoning_tokens", self.reasoning_tokens),
            column("token_source", self.token_source),
            column("counted_tokens", self.counted_tokens),
            column("keepalives", self.keepalives),
            column("socket_reads", self.socket_reads),
            column("reads", self.reads),
        ])
    }
}
