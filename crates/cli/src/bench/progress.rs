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
    /// Requests of the phase, if that is what ends it.
    requests: Option<u64>,
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
                requests: None,
                ttft_us: Histogram::new_with_bounds(1, MAX_US, 3).ok(),
            }),
        }
    }

    /// Takes note of an event.
    pub(crate) fn on(&self, event: &Event<'_>) {
        let mut live = self.live.borrow_mut();
        match event {
            Event::Phase { phase, requests } => {
                live.begin(*phase, *requests);
                if let Some(bar) = &self.bar {
                    let length = match live.duration {
                        Some(d) if *phase == Phase::Measured => d.as_nanos() / 1_000_000_000,
                        _ => requests.unwrap_or(0),
                    };
                    bar.set_length(length);
                    bar.set_position(0);
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
            bar.set_prefix(live.left());
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
    fn begin(&mut self, phase: Phase, requests: Option<u64>) {
        self.phase = phase;
        self.requests = requests;
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

    /// Time left in the phase, as the requests so far suggest.
    fn left(&self) -> String {
        let elapsed = self.elapsed.as_secs_f64();
        let left = match (self.duration, self.requests) {
            (Some(d), _) if self.phase == Phase::Measured => Some(d.as_secs_f64() - elapsed),
            (_, Some(all)) if self.done > 0 => {
                Some(elapsed / self.done as f64 * all.saturating_sub(self.done) as f64)
            }
            _ => None,
        };
        match left {
            Some(s) if s >= 100.0 => format!("{:.0} min left", s / 60.0),
            Some(s) => format!("{:.0} s left", s.max(0.0)),
            None => "- s left".to_owned(),
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
    let style = ProgressStyle::with_template("{bar:10} {pos}/{len} {prefix}, {wide_msg}");
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

#[cfg(test)]
mod tests {
    use super::*;

    fn live(duration: Option<u64>, requests: Option<u64>, done: u64, elapsed_ms: u64) -> Live {
        Live {
            title: "1/2 in 1024 C 8".to_owned(),
            phase: Phase::Measured,
            done,
            failed: 1,
            tokens: 500,
            running: 8,
            elapsed: Nanos::from_millis(elapsed_ms),
            duration: duration.map(|s| Nanos::from_millis(1000 * s)),
            requests,
            ttft_us: None,
        }
    }

    #[test]
    fn time_left_follows_the_clock_or_the_requests_so_far() {
        assert_eq!(live(Some(60), None, 5, 18_000).left(), "42 s left");
        assert_eq!(live(Some(600), None, 0, 0).left(), "10 min left");
        assert_eq!(live(Some(1), None, 9, 1_500).left(), "0 s left");
        assert_eq!(live(None, Some(40), 10, 5_000).left(), "15 s left");
        assert_eq!(live(None, Some(40), 0, 5_000).left(), "- s left");
        assert_eq!(live(None, None, 10, 5_000).left(), "- s left");
    }

    #[test]
    fn the_message_begins_with_what_matters() {
        let message = live(None, Some(40), 10, 5_000).message();
        assert_eq!(
            message,
            "1/2 in 1024 C 8 measuring: 8 running, 1 failed, 100 tok/s"
        );
    }
}
