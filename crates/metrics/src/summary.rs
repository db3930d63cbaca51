use linktax_records::{CellSpec, Note, RecordSource};

use crate::arrival::Arrival;
use crate::bootstrap::{Interval, intervals};
use crate::counts::{Counts, Tokens};
use crate::decode::Decode;
use crate::distribution::{Distribution, needed_samples};
use crate::figure::Figure;
use crate::goodput::Goodput;
use crate::inflight::InFlight;
use crate::latency::Latencies;
use crate::options::Options;
use crate::spool::Spool;
use crate::survey::Survey;
use crate::threshold::Threshold;
use crate::throughput::{Steady, Throughput, steady_span};

/// Every number of one cell, each with the reason where it is missing.
///
/// [`CellSummary::to_json`] writes it with the keys of `vllm bench serve`; `docs/metrics.md` defines them.
#[derive(Clone, Debug, PartialEq)]
pub struct CellSummary {
    /// Requests.
    pub counts: Counts,
    /// Tokens.
    pub tokens: Tokens,
    /// GPUs that the per-GPU figures divide by.
    pub gpus: Option<u32>,
    /// Rates over the full window.
    pub throughput: Throughput,
    /// Rates where the target concurrency held.
    pub steady: Figure<Steady>,
    /// Latencies.
    pub latencies: Latencies,
    /// Decode rates and stalls.
    pub decode: Decode,
    /// Request rates.
    pub arrival: Arrival,
    /// Objectives.
    pub goodput: Goodput,
    /// Bootstrap intervals.
    pub intervals: Vec<Interval>,
    /// The percentiles that were asked for.
    pub percentiles: Vec<f64>,
    /// Remarks that belong beside the numbers.
    pub notes: Vec<Note>,
}

/// Summarises the measured requests of one cell.
///
/// Walks `source` three times and holds, beside a few scalars a request, one word of eight bytes a read.
/// The result does not depend on the order of the records.
///
/// # Errors
/// Only those of the source.
pub fn summarize<S: RecordSource + ?Sized>(
    source: &S,
    spec: &CellSpec,
    opts: &Options,
) -> Result<CellSummary, S::Error> {
    let percentiles = valid_percentiles(&opts.percentiles);
    let mut survey = Survey::take(source)?;
    let flight = InFlight::of(survey.requests.iter().filter_map(|r| r.in_flight()));
    let span = steady_span(&survey, spec, &flight);
    let mut spool = Spool::for_survey(&survey);
    let delivered = spool.deliver(source, &survey, span.as_ref().ok().copied())?;
    let threshold = Threshold::choose(opts.stall, &survey.gaps);
    let gaps = spool.gaps(source, &mut survey, threshold, &percentiles)?;
    drop(spool);
    survey.sort();

    let open_loop = spec.load.concurrency().is_none();
    let counts = Counts::of(&survey);
    let tokens = Tokens::of(&survey);
    let throughput = Throughput::of(&survey, spec, &flight, delivered, &tokens.input);
    let latencies = Latencies::of(
        &survey.requests,
        &gaps,
        &tokens.per_read,
        open_loop,
        &percentiles,
    );
    let mut summary = CellSummary {
        steady: Steady::of(&survey, span, &flight, delivered),
        decode: Decode::of(&survey.requests, &gaps, opts.stall, threshold),
        arrival: Arrival::of(&survey.requests, spec),
        goodput: Goodput::of(
            &survey.requests,
            counts.failed,
            &opts.slos,
            open_loop,
            &throughput.duration_s,
        ),
        intervals: intervals(&survey.requests, opts.bootstrap_resamples, opts.seed),
        gpus: opts.gpus.filter(|&gpus| gpus > 0),
        counts,
        tokens,
        throughput,
        latencies,
        percentiles,
        notes: Vec::new(),
    };
    summary.notes = notes(&summary);
    Ok(summary)
}

/// Those between 0 and 100, ascending, each once.
fn valid_percentiles(asked: &[f64]) -> Vec<f64> {
    let inside = asked.iter().copied().filter(|p| *p > 0.0 && *p < 100.0);
    let mut percentiles: Vec<f64> = inside.collect();
    percentiles.sort_unstable_by(f64::total_cmp);
    percentiles.dedup();
    percentiles
}

fn notes(s: &CellSummary) -> Vec<Note> {
    let mut notes = token_notes(s);
    notes.extend(first_chunk_note(s));
    if let (Err(why), Ok(_)) = (&s.latencies.itl, &s.latencies.step_gap) {
        notes.push(Note::new("itl", format!("no itl: {why}")));
    }
    if s.throughput.prefill.is_ok() && s.throughput.prefill_assumes_cold {
        notes.push(Note::new(
            "prefill_tokens",
            "cached prompt tokens are unknown: prefill_throughput counts all of them as computed",
        ));
    }
    if s.latencies.tpot_unmeasured > 0 {
        notes.push(Note::new(
            "tpot_unmeasured",
            format!(
                "{} requests delivered all their tokens at one instant and have no tpot",
                s.latencies.tpot_unmeasured
            ),
        ));
    }
    notes
}

fn first_chunk_note(s: &CellSummary) -> Option<Note> {
    let message = match &s.tokens.first_read {
        Ok((_, 0 | 1)) => return None,
        Ok((min, max)) => {
            let held = if min == max {
                format!("{max} tokens")
            } else {
                format!("{min} to {max} tokens")
            };
            format!(
                "first chunk held {held}: tpot counts them as decoded, decode_time_per_token does not"
            )
        }
        Err(_) if s.tokens.reads_estimated > 0 => "first-chunk size unknown".to_owned(),
        Err(_) => return None,
    };
    Some(Note::new("first_chunk", message))
}

/// How well the tokens are known.
fn token_notes(s: &CellSummary) -> Vec<Note> {
    let (tokens, completed) = (&s.tokens, s.counts.completed);
    let mut notes = Vec::new();
    if tokens.output_estimated > 0 {
        notes.push(Note::new(
            "output_tokens_estimated",
            format!(
                "output tokens of {} of {completed} requests are estimated from chunks: the server sent no usage",
                tokens.output_estimated
            ),
        ));
    } else if tokens.reads_estimated > 0 {
        notes.push(Note::new(
            "read_tokens_estimated",
            format!(
                "{} of {completed} requests: only the sum of the output tokens is known; \
                 those of each read are scaled to it",
                tokens.reads_estimated
            ),
        ));
    }
    if tokens.input_unconfirmed > 0 {
        notes.push(Note::new(
            "input_tokens_unconfirmed",
            format!(
                "input length of {} of {completed} requests: requested, not confirmed",
                tokens.input_unconfirmed
            ),
        ));
    }
    notes
}

impl CellSummary {
    /// The latency families with their names, in the order of the file.
    pub fn families(&self) -> [(&'static str, &Figure<Distribution>); 11] {
        let l = &self.latencies;
        [
            ("ttft", &l.ttft),
            ("tpot", &l.tpot),
            ("itl", &l.itl),
            ("e2el", &l.e2el),
            ("ttft_answer", &l.ttft_answer),
            ("decode_time_per_token", &l.decode_time_per_token),
            ("step_gap", &l.step_gap),
            ("token_time", &l.token_time),
            ("queue", &l.queue),
            ("ttft_from_sched", &l.ttft_from_sched),
            ("e2el_from_sched", &l.e2el_from_sched),
        ]
    }

    /// For each family with missing percentiles, one line that says how many samples they need.
    pub fn percentile_notes(&self) -> Vec<String> {
        self.families()
            .into_iter()
            .filter_map(|(name, family)| {
                let d = family.as_ref().ok()?;
                let missing: Vec<String> = d
                    .percentiles
                    .iter()
                    .filter(|(_, value)| value.is_err())
                    .map(|(p, _)| format!("p{p} (needs {})", needed_samples(*p)))
                    .collect();
                (!missing.is_empty()).then(|| {
                    let list = missing.join(", ");
                    format!(
                        "{name}: {} samples are too few for {list}; the maximum is given",
                        d.count
                    )
                })
            })
            .collect()
    }

    /// The interval of the number with this key.
    pub fn interval(&self, key: &str) -> Option<(f64, f64)> {
        let interval = self.intervals.iter().find(|i| i.key == key)?;
        interval.bounds.as_ref().ok().copied()
    }

    /// A throughput divided by the GPUs that serve the endpoint.
    pub fn per_gpu(&self, throughput: &Figure) -> Option<f64> {
        Some(throughput.as_ref().ok()? / f64::from(self.gpus?))
    }

    /// Seconds from the first send to the last token.
    pub fn duration_s(&self) -> Option<f64> {
        self.throughput.duration_s.as_ref().ok().copied()
    }

    /// Output tokens a second over the full window.
    pub fn output_throughput(&self) -> Option<f64> {
        self.throughput.rates.output.as_ref().ok().copied()
    }

    /// Prompt and output tokens a second over the full window.
    pub fn total_token_throughput(&self) -> Option<f64> {
        self.throughput.rates.total.as_ref().ok().copied()
    }

    /// Output tokens a second over the steady window.
    pub fn steady_output_throughput(&self) -> Option<f64> {
        self.steady
            .as_ref()
            .ok()?
            .rates
            .output
            .as_ref()
            .ok()
            .copied()
    }

    /// Uncached prompt tokens over the time that some request waited for its first token.
    pub fn prefill_throughput(&self) -> Option<f64> {
        self.throughput.prefill.as_ref().ok().copied()
    }

    /// Kept tokens / kept gap time.
    pub fn decode_tok_s(&self) -> Option<f64> {
        self.decode.tok_s.as_ref().ok().copied()
    }

    /// Time to first token.
    pub fn ttft(&self) -> Option<&Distribution> {
        self.latencies.ttft.as_ref().ok()
    }

    /// Time per output token.
    pub fn tpot(&self) -> Option<&Distribution> {
        self.latencies.tpot.as_ref().ok()
    }

    /// Time to the last token.
    pub fn e2el(&self) -> Option<&Distribution> {
        self.latencies.e2el.as_ref().ok()
    }

    /// Seconds in stalls, and how many.
    pub fn stalls(&self) -> Option<(f64, u64)> {
        let seconds = self.decode.stall_s.as_ref().ok()?;
        Some((*seconds, *self.decode.stall_count.as_ref().ok()?))
    }
}
