use linktax_records::RequestRecord;
use polars::error::PolarsResult;
use polars::frame::DataFrame;

use super::table::{Rows, column};

/// Reads, column by column.
#[derive(Default)]
pub(super) struct EventRows {
    cell: Vec<u32>,
    index: Vec<u64>,
    phase: Vec<&'static str>,
    t_ns: Vec<u64>,
    t_abs_ns: Vec<Option<u64>>,
    tokens: Vec<u32>,
    class: Vec<&'static str>,
    bytes: Vec<u32>,
    events: Vec<u32>,
}

impl EventRows {
    pub(super) fn push(&mut self, record: &RequestRecord, read: usize) {
        let reads = &record.reads;
        let t = reads.t_ns[read];
        self.cell.push(record.cell);
        self.index.push(record.index);
        self.phase.push(record.phase.as_str());
        self.t_ns.push(t.as_nanos());
        self.t_abs_ns
            .push(record.t_sent_ns.map(|sent| (sent + t).as_nanos()));
        self.tokens.push(reads.tokens[read]);
        self.class.push(reads.class[read].as_str());
        self.bytes.push(reads.bytes[read]);
        self.events.push(reads.events[read]);
    }
}

impl Rows for EventRows {
    // About 20 MB of columns.
    const BATCH: usize = 262_144;

    fn len(&self) -> usize {
        self.cell.len()
    }

    fn into_frame(self) -> PolarsResult<DataFrame> {
        DataFrame::new_infer_height(vec![
            column("cell", self.cell),
            column("index", self.index),
            column("phase", self.phase),
            column("t_ns", self.t_ns),
            column("t_abs_ns", self.t_abs_ns),
            column("tokens", self.tokens),
            column("class", self.class),
            column("bytes", self.bytes),
            column("events", self.events),
        ])
    }
}
