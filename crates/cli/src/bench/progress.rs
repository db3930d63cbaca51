//! The live view: one line on stderr with what a cell is doing.

use std::cell::RefCell;
use std::time::Duration;

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use linktax_loadgen::Event;
use linktax_records::{CellSpec, Nanos, Phase, RequestRecord};

use super::record::phase_word;
use crate::output;

/// Largest latency of the live histogram, in microseconds (one hour).
const MAX_US: u64 = 3_600_000_000;

/// Progress of one cell.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    live: RefCell<Live>,
}

struct Live {
    title: String,
    phase: Phase,
    done: u64,
    failed: u64,
    tokens: u64,
    running: u32,
    elapsed: Nanos,
    duration: Option<Nanos>,
    /// A histogram is enough for a glance; the table is computed from the records.
    ttft_us: Option<Histogram<u64>>,
}

impl Progress {
    /// Announces a cell.
    pub(crate) fn start(spec: &CellSpec, cells: usize, quiet: bool) -> Progress {
        let bar = (!quiet && output::stderr_is_terminal()).then(|| bar(spec));
        if bar.is_none() && !quiet {
            let number = spec.index + 1;
            output::note(&format!("cell {number}/{cells}: {}", describe(spec)));
        }
        Progress {
            bar,
            live: RefCell::new(Live {
                title: format!("{}/{cells} {}", spec.index + 1, short(spec)),
                phase: Phase::Warmup,
                done: 0,
                failed: 0,
                tokens: 0,
                running: 0,
                elapsed: Nanos::ZERO,
                duration: spec.duration_s.map(Nanos::from_secs_f64),
                ttft_us: Histogram::new_with_bounds(1, MAX_US, 3).ok(),
            }),
        }
    }

    /// Takes note of an event.
    pub(crate) fn on(&self, event: &Event<'_>) {
        let mut live = self.live.borrow_mut();
        match event {
            Event::Phase { phase, requests } => {
                live.begin(*phase);
                if let Some(bar) = &self.bar {
                    let length = match live.duration {
                        Some(d) if *phase == Phase::Measured => d.as_nanos() / 1_000_000_000,
                        _ => requests.unwrap_or(0),
                    };
                    bar.set_length(length);
                    bar.set_position(0);
                    bar.reset_eta();
                }
            }
            Event::Record(record) => live.add(record),
            Event::Tick { running, elapsed } => {
                live.running = *running;
                live.elapsed = *elapsed;
            }
            _ => {}
        }
        if let Some(bar) = &self.bar {
            bar.set_position(live.position());
            bar.set_message(live.message());
        }
    }

    /// Takes the line away.
    pub(crate) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Live {
    fn begin(&mut self, phase: Phase) {
        self.phase = phase;
        self.done = 0;
        self.failed = 0;
        self.tokens = 0;
        self.elapsed = Nanos::ZERO;
        if let Some(h) = &mut self.ttft_us {
            h.reset();
        }
    }

    fn add(&mut self, record: &RequestRecord) {
        self.done += 1;
        self.failed += u64::from(record.outcome.is_failure());
        self.tokens += record.output_tokens();
        if let (Some(h), Some(t)) = (&mut self.ttft_us, record.reads.first_token()) {
            h.saturating_record((t.as_nanos() / 1000).max(1));
        }
    }

    fn position(&self) -> u64 {
        match self.duration {
            Some(_) if self.phase == Phase::Measured => self.elapsed.as_nanos() / 1_000_000_000,
            _ => self.done,
        }
    }

    fn message(&self) -> String {
        let seconds = self.elapsed.as_secs_f64();
        let rate = if seconds > 0.0 {
            format!("{:.0} tok/s", self.tokens as f64 / seconds)
        } else {
            "- tok/s".to_owned()
        };
        let ttft = match &self.ttft_us {
            Some(h) if !h.is_empty() => {
                format!(
                    ", TTFT p50 {:.1} ms",
                    h.value_at_quantile(0.5) as f64 / 1000.0
                )
            }
            _ => String::new(),
        };
        // What matters most comes first: the end is cut off on a narrow terminal.
        format!(
            "{} {}: {} running, {} failed, {rate}{ttft}",
            self.title,
            phase_word(self.phase),
            self.running,
            self.failed
        )
    }
}

fn bar(spec: &CellSpec) -> ProgressBar {
    let bar = ProgressBar::new(spec.requests.unwrap_or(0));
    let style = ProgressStyle::with_template("{bar:10} {pos}/{len} {eta} left, {wide_msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// A cell in the fewest words.
fn short(spec: &CellSpec) -> String {
    let load = match spec.load.concurrency() {
        Some(c) => format!("C {c}"),
        None => spec.load.to_string(),
    };
    match spec.input_len {
        Some(length) => format!("in {length} {load}"),
        None => load,
    }
}

/// A cell in a few words.
pub(crate) fn describe(spec: &CellSpec) -> String {
    let length = |l: Option<u64>| l.map_or_else(|| "file".to_owned(), |l| l.to_string());
    let load = match spec.load.concurrency() {
        Some(c) => format!("concurrency {c}"),
        None => format!("rate {}", spec.load),
    };
    format!(
        "input {}, output {}, {load}, cache {}",
        length(spec.input_len),
        length(spec.output_len),
        spec.cache
    )
}
