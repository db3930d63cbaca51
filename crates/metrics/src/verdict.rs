//! Whether a cell may be used: valid, flagged with reasons, or invalid.

mod cache;
mod client;
mod load;

use linktax_records::{CellSpec, ClientStats, Note, ServerDelta, Verdict, VerdictStatus};

use crate::server::server_means;
use crate::summary::CellSummary;

/// Lengths and rates may be off by this share.
const TOLERANCE: f64 = 0.02;

/// Where [`judge`] draws its lines, and what only the caller knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Failed requests that are still accepted.
    pub max_failures: u64,
    /// Above this share of failures the cell is invalid.
    pub max_invalid_failure_share: f64,
    /// Timer lateness (99th percentile, ms) above which the client limited the cell.
    pub max_timer_lag_p99_ms: f64,
    /// Lateness above which no number of the cell should be used.
    pub max_invalid_timer_lag_p99_ms: f64,
    /// CPU of the busiest receive thread, in percent, above which the client limited the cell.
    pub max_loop_cpu_pct: f64,
    /// CPU above which no number of the cell should be used.
    pub max_invalid_loop_cpu_pct: f64,
    /// CPU above which it is remarked on.
    pub note_loop_cpu_pct: f64,
    /// Largest prefix cache hit rate of a cell declared cold.
    pub max_cold_hit_rate: f64,
    /// Smallest prefix cache hit rate of a cell declared warm.
    pub min_warm_hit_rate: f64,
    /// Largest difference from a declared prefix share.
    pub max_prefix_share_error: f64,
    /// Share of the target concurrency that must be in flight on average over the steady window.
    pub min_mean_concurrency_share: f64,
    /// Samples of the server's gauges below which their peaks prove nothing.
    pub min_gauge_samples: u32,
    /// Whether the cell was stopped before its end.
    pub incomplete: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_failures: 0,
            max_invalid_failure_share: 0.5,
            max_timer_lag_p99_ms: 5.0,
            max_invalid_timer_lag_p99_ms: 50.0,
            max_loop_cpu_pct: 80.0,
            max_invalid_loop_cpu_pct: 97.0,
            note_loop_cpu_pct: 60.0,
            max_cold_hit_rate: 0.02,
            min_warm_hit_rate: 0.8,
            max_prefix_share_error: 0.1,
            min_mean_concurrency_share: 0.5,
            min_gauge_samples: 5,
            incomplete: false,
        }
    }
}

/// Everything a check may look at.
struct Case<'a> {
    spec: &'a CellSpec,
    summary: &'a CellSummary,
    server: Option<&'a ServerDelta>,
    client: Option<&'a ClientStats>,
    limits: &'a Limits,
}

/// What the checks found.
#[derive(Default)]
struct Findings {
    invalid: bool,
    reasons: Vec<Note>,
    notes: Vec<Note>,
}

impl Findings {
    fn invalid(&mut self, code: &str, message: impl Into<String>) {
        self.invalid = true;
        self.flag(code, message);
    }

    fn flag(&mut self, code: &str, message: impl Into<String>) {
        self.reasons.push(Note::new(code, message));
    }

    fn note(&mut self, code: &str, message: impl Into<String>) {
        self.notes.push(Note::new(code, message));
    }
}

/// Judges a cell by its own numbers, the server's counters and the client's view of itself.
///
/// What is unknown (no `/metrics`, no client statistics) is remarked on, never held against the cell.
pub fn judge(
    spec: &CellSpec,
    summary: &CellSummary,
    server: Option<&ServerDelta>,
    client: Option<&ClientStats>,
    limits: &Limits,
) -> Verdict {
    let case = Case {
        spec,
        summary,
        server,
        client,
        limits,
    };
    let mut found = Findings {
        notes: summary.notes.clone(),
        ..Findings::default()
    };
    outcomes(&case, &mut found);
    lengths(&case, &mut found);
    load::check(&case, &mut found);
    cache::check(&case, &mut found);
    client::check(&case, &mut found);
    server_side(&case, &mut found);
    for line in summary.percentile_notes() {
        found.note("percentiles", line);
    }
    Verdict {
        status: match (found.invalid, found.reasons.is_empty()) {
            (true, _) => VerdictStatus::Invalid,
            (false, false) => VerdictStatus::Flagged,
            (false, true) => VerdictStatus::Valid,
        },
        reasons: found.reasons,
        notes: found.notes,
    }
}

fn outcomes(case: &Case<'_>, found: &mut Findings) {
    let counts = &case.summary.counts;
    if counts.completed == 0 {
        found.invalid(
            "nothing_completed",
            format!("none of {} requests completed", counts.measured),
        );
    }
    if counts.failed > case.limits.max_failures {
        let by_outcome: Vec<String> = counts
            .failures
            .iter()
            .map(|(outcome, count)| format!("{} {count}", outcome.as_str()))
            .collect();
        let share = counts.failure_share().unwrap_or(1.0);
        let message = format!(
            "{} of {} requests failed ({:.1} %): {}",
            counts.failed,
            counts.completed + counts.failed,
            share * 100.0,
            by_outcome.join(", ")
        );
        if share > case.limits.max_invalid_failure_share {
            found.invalid("failures", message);
        } else {
            found.flag("failures", message);
        }
    }
    if counts.timing_errors > 0 {
        found.flag(
            "timing_errors",
            format!(
                "{} completed requests were left out: their times run backwards (an internal timing error)",
                counts.timing_errors
            ),
        );
    }
    if case.limits.incomplete {
        found.flag(
            "incomplete",
            format!(
                "the cell was stopped before its end: {} requests completed, {} were cut off",
                counts.completed, counts.cancelled
            ),
        );
    }
}

fn lengths(case: &Case<'_>, found: &mut Findings) {
    let tokens = &case.summary.tokens;
    if let Ok(ratio) = tokens.input_ratio
        && (ratio - 1.0).abs() > TOLERANCE
    {
        found.flag(
            "input_length",
            format!(
                "prompts are {ratio:.2} x the requested length, by the server's count \
                 (tokenizer, special tokens or chat template)"
            ),
        );
    }
    // Where lengths are not set by the workload, max_tokens is only a limit.
    if let (Ok(ratio), Some(_)) = (&tokens.output_ratio, case.spec.output_len)
        && (ratio - 1.0).abs() > TOLERANCE
    {
        found.flag(
            "output_length",
            format!("answers are {ratio:.2} x the requested length"),
        );
    }
}

fn server_side(case: &Case<'_>, found: &mut Findings) {
    let Some(server) = case.server else {
        return;
    };
    match server.preemptions {
        Some(n) if n > 0.0 => found.flag(
            "preemptions",
            format!("the server preempted and recomputed {n} requests: its KV cache was full"),
        ),
        Some(_) => {}
        None => found.note(
            "preemptions_unknown",
            format!("preemptions unknown: {}", why_unknown(server)),
        ),
    }
    speculation(case, server, found);
    let ours = case.summary.ttft().map(|d| d.mean);
    if let (Some(theirs), Some(ours)) = (server_means(server).ttft_ms, ours) {
        found.note(
            "server_ttft",
            format!(
                "mean TTFT {ours:.1} ms here, {theirs:.1} ms by the server's own clock: \
                 {:.1} ms is network, HTTP and client",
                ours - theirs
            ),
        );
    }
}

/// The acceptance length counts only steps with a draft: the tokens of a mean step stand beside it.
fn speculation(case: &Case<'_>, server: &ServerDelta, found: &mut Findings) {
    let Some(spec) = &server.spec_decode else {
        return;
    };
    let (Some(length), Some(rate)) = (spec.acceptance_length(), spec.acceptance_rate()) else {
        return;
    };
    let mut message = format!(
        "{length:.2} tokens a step that had a draft, {:.0} % of the draft tokens accepted",
        rate * 100.0
    );
    if let Some(tokens) = server
        .generation_tokens
        .filter(|t| *t > spec.accepted_tokens)
    {
        message += &format!(
            "; {:.2} a step over all steps",
            tokens / (tokens - spec.accepted_tokens)
        );
    }
    if let Ok(chunk) = &case.summary.tokens.per_read {
        message += &format!("; {chunk:.2} a read here");
    }
    found.note("speculation", message);
}

fn why_unknown(server: &ServerDelta) -> String {
    let why = server.unavailable.as_deref();
    why.unwrap_or("/metrics lacks the counter, or it was reset")
        .to_owned()
}
