//! Time and memory of summarising a large cell that is never held in memory.
//!
//! `cargo bench -p linktax-metrics -- 15400000` is the ten-minute cell at 256 streams of 100 tokens a second.
//! Without `--bench` (as `cargo test --benches` runs it) a few reads show that it still works.

use std::convert::Infallible;
use std::time::Instant;

use linktax_metrics::{Options, summarize};
use linktax_records::{
    CacheMode, CellSpec, EventClass, Load, Nanos, Outcome, Phase, Reads, RecordSource,
    RequestRecord, TokenSource, Usage,
};

const STREAMS: u64 = 256;
const TOKENS: u64 = 1280;
const STEP: u64 = 10_000_000;

/// A closed loop whose records are made while they are visited, as a file would be read.
struct Generated {
    requests: u64,
}

impl RecordSource for Generated {
    type Error = Infallible;

    fn scan(&self, visit: &mut dyn FnMut(&RequestRecord)) -> Result<(), Infallible> {
        let mut record = template();
        for index in 0..self.requests {
            fill(&mut record, index);
            visit(&record);
        }
        Ok(())
    }
}

fn template() -> RequestRecord {
    RequestRecord {
        cell: 0,
        attempt: 0,
        index: 0,
        phase: Phase::Measured,
        replica: 0,
        request_id: String::new(),
        input_len: Some(1024),
        output_len: TOKENS,
        t_sched_ns: Nanos::ZERO,
        t_sent_ns: None,
        t_headers_ns: None,
        t_done_ns: Nanos::ZERO,
        reconnected: false,
        outcome: Outcome::Completed,
        failure: None,
        finish_reason: None,
        done_marker: true,
        usage: Some(Usage {
            prompt_tokens: 1024,
            completion_tokens: TOKENS,
            ..Usage::default()
        }),
        token_source: TokenSource::ContinuousUsage,
        keepalives: 0,
        socket_reads: 0,
        reads: Reads::default(),
        delivery_lag_ns: Vec::new(),
        text: None,
    }
}

/// Steps of about 10 ms, and now and then a stall of half a second.
fn fill(record: &mut RequestRecord, index: u64) {
    let sent = (index / STREAMS) * (TOKENS + 60) * STEP + (index % STREAMS) * 1_000_000;
    record.index = index;
    record.t_sched_ns = Nanos::from_nanos(sent);
    record.t_sent_ns = Some(Nanos::from_nanos(sent));
    record.reads = Reads::default();
    let mut t = 80_000_000;
    for token in 0..TOKENS {
        let mixed = (index * TOKENS + token).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        t += if mixed.is_multiple_of(20_000) {
            500_000_000
        } else {
            STEP - 500_000 + mixed % 1_000_000
        };
        record
            .reads
            .push(Nanos::from_nanos(t), 1, EventClass::Content, 240, 1);
    }
    record.t_done_ns = Nanos::from_nanos(sent + t);
}

fn peak_rss_mib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace()
        .nth(1)?
        .parse::<u64>()
        .ok()
        .map(|kib| kib / 1024)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--list") {
        return;
    }
    let asked = args.iter().find_map(|arg| arg.parse().ok());
    let full = args.iter().any(|arg| arg == "--bench");
    let reads: u64 = asked.unwrap_or(if full { 1_000_000 } else { 20_000 });

    let source = Generated {
        requests: reads.div_ceil(TOKENS),
    };
    let spec = CellSpec {
        index: 0,
        workload: "generated".to_owned(),
        input_len: Some(1024),
        output_len: Some(TOKENS),
        load: Load::Concurrency(256),
        requests: None,
        duration_s: None,
        cache: CacheMode::Cold,
    };
    let start = Instant::now();
    let Ok(()) = source.scan(&mut |_| {});
    let scan = start.elapsed();
    let start = Instant::now();
    let Ok(summary) = summarize(&source, &spec, &Options::default());
    let took = start.elapsed();
    let (stall_s, stalls) = summary.stalls().unwrap_or_default();
    println!(
        "{} requests, {reads} reads: {took:.2?} (of which 3 scans {:.2?}), peak RSS {} MiB, \
         {stalls} stalls of {stall_s:.1} s, decode {:.2} tok/s",
        summary.counts.completed,
        scan * 3,
        peak_rss_mib().map_or_else(|| "?".to_owned(), |mib| mib.to_string()),
        summary.decode_tok_s().unwrap_or(f64::NAN),
    );
}
