//! What the main thread counts while records pass by.

use linktax_records::{CellSpec, ClientStats, Nanos, Note, Outcome, RequestRecord};

use crate::monitor::{LoopStats, max_rss_bytes};

/// Sums over the records of one phase.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    requests: u64,
    failures: u64,
    first_failure: Option<String>,
    events: u64,
    socket_reads: u64,
    reconnects: u64,
    /// Events in reads between the first and the last token read of their request, and those of them that shared
    /// a read.
    inner_events: u64,
    inner_coalesced: u64,
}

impl Observed {
    pub(crate) fn add(&mut self, record: &RequestRecord) {
        self.requests += 1;
        if record.outcome != Outcome::Completed && record.outcome != Outcome::ShortOutput {
            self.failures += 1;
            if self.first_failure.is_none() {
                let detail = record.failure.as_ref().map_or("", |f| &f.message);
                self.first_failure = Some(format!("{}: {detail}", record.outcome.as_str()));
            }
        }
        self.reconnects += u64::from(record.reconnected);
        self.socket_reads += u64::from(record.socket_reads);
        let reads = &record.reads;
        self.events += reads.events.iter().map(|&e| u64::from(e)).sum::<u64>();
        // The first token read of a chat stream often brings the role chunk too, and the last one the finish,
        // usage and end markers: neither says that the client was late.
        let mut token_reads = reads
            .tokens
            .iter()
            .zip(&reads.events)
            .filter(|&(&tokens, _)| tokens > 0)
            .map(|(_, &events)| u64::from(events))
            .skip(1)
            .peekable();
        while let Some(events) = token_reads.next() {
            if token_reads.peek().is_none() {
                break;
            }
            self.inner_events += events;
            if events > 1 {
                self.inner_coalesced += events;
            }
        }
    }

    /// A note when priming or warm-up requests failed.
    pub(crate) fn preparing_failures(&self) -> Option<Note> {
        let first = self.first_failure.as_ref()?;
        Some(Note::new(
            "preparation_failed",
            format!(
                "{} of {} priming or warm-up requests failed; the first: {first}",
                self.failures, self.requests
            ),
        ))
    }

    /// A note when the workload ran out before the cell had its requests.
    pub(crate) fn exhausted(&self, cell: &CellSpec) -> Option<Note> {
        let asked = cell.requests?;
        (self.requests < asked && cell.duration_s.is_none()).then(|| {
            Note::new(
                "fewer_requests",
                format!("{} of {asked} requests were sent", self.requests),
            )
        })
    }

    pub(crate) fn client_stats(&self, loops: &[LoopStats], process_cpu: Nanos) -> ClientStats {
        let mut lags: Vec<Nanos> = loops.iter().flat_map(|l| l.lags.iter().copied()).collect();
        lags.sort_unstable();
        let lag = |p: f64| {
            let at = (p * (lags.len().checked_sub(1)? as f64)).round() as usize;
            lags.get(at).map(|l| l.as_millis_f64())
        };
        let wall = loops.iter().map(|l| l.wall).max().unwrap_or_default();
        let cpu: f64 = loops.iter().map(|l| l.cpu.as_secs_f64()).sum();
        let busiest = loops
            .iter()
            .filter(|l| l.wall > Nanos::ZERO)
            .map(|l| 100.0 * l.cpu.as_secs_f64() / l.wall.as_secs_f64())
            .fold(0.0, f64::max);
        ClientStats {
            threads: loops.len() as u32,
            wall_s: wall.as_secs_f64(),
            loop_cpu_s: cpu,
            process_cpu_s: process_cpu.as_secs_f64(),
            loop_cpu_pct: busiest,
            timer_lag_p50_ms: lag(0.5),
            timer_lag_p99_ms: lag(0.99),
            timer_lag_max_ms: lag(1.0),
            run_queue_wait_s: loops
                .iter()
                .map(|l| l.run_queue_wait.map(Nanos::as_secs_f64))
                .sum(),
            events: self.events,
            socket_reads: self.socket_reads,
            coalesced_share: (self.inner_events > 0)
                .then(|| self.inner_coalesced as f64 / self.inner_events as f64),
            loop_cpu_us_per_event: (self.events > 0).then(|| cpu * 1e6 / self.events as f64),
            max_rss_bytes: max_rss_bytes(),
            reconnects: self.reconnects,
        }
    }
}
