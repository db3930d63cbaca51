//! How many requests and tokens there were, and how well they are known.

use std::collections::BTreeMap;

use linktax_records::Outcome;

use crate::figure::{Figure, missing, ratio};
use crate::request::{Request, Standing};
use crate::survey::Survey;

/// Requests by how they count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Records of the measured phase.
    pub measured: u64,
    /// Records of the prime and warm-up phases; no number includes them.
    pub warmup: u64,
    /// Completed, and fit to be measured.
    pub completed: u64,
    /// Failed, whatever the outcome.
    pub failed: u64,
    /// Stopped by the end of the run.
    pub cancelled: u64,
    /// Completed, but left out because their own times contradict each other.
    pub timing_errors: u64,
    /// Failures by outcome.
    pub failures: BTreeMap<Outcome, u64>,
}

impl Counts {
    pub(crate) fn of(survey: &Survey) -> Self {
        let count = |standing| {
            let with = survey.requests.iter().filter(|r| r.standing == standing);
            with.count() as u64
        };
        Counts {
            measured: survey.requests.len() as u64,
            warmup: survey.warmup_requests,
            completed: count(Standing::Completed),
            failed: count(Standing::Failed),
            cancelled: count(Standing::Cancelled),
            timing_errors: count(Standing::Rejected),
            failures: survey.failures.clone(),
        }
    }

    /// Failed / (completed + failed).
    pub fn failure_share(&self) -> Figure {
        let ended = self.completed + self.failed;
        ratio(self.failed as f64, ended as f64, "no request ended")
    }
}

/// Tokens, and where the counts come from. All of completed requests, unless said otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Tokens {
    /// Prompt tokens: the server's count, else the length asked for.
    pub input: Figure<u64>,
    /// Requests whose prompt length is the one asked for, not confirmed by the server.
    pub input_unconfirmed: u64,
    /// Output tokens.
    pub output: u64,
    /// Tokens that requests which did not complete delivered; part of no rate.
    pub partial_output: u64,
    /// Requests whose output tokens are counted events.
    pub output_estimated: u64,
    /// Requests of which only the sum of the output tokens is known, not those of each read.
    pub reads_estimated: u64,
    /// Prompt tokens that came from the prefix cache, as the answers said.
    pub cached: Figure<u64>,
    /// Cached / prompt tokens, over the requests that said so.
    pub cached_share: Figure,
    /// Prompt tokens by the server / asked for.
    pub input_ratio: Figure,
    /// Output tokens / asked for.
    pub output_ratio: Figure,
    /// Output tokens a token-bearing read.
    pub per_read: Figure,
    /// Fewest and most tokens in the first read, where known.
    pub first_read: Figure<(u32, u32)>,
    /// Share of token-bearing reads (the last of each request left out) that completed several events.
    pub coalesced_read_share: Figure,
}

const NONE_COMPLETED: &str = "no request completed";

impl Tokens {
    pub(crate) fn of(survey: &Survey) -> Self {
        let done: Vec<&Request> = survey.requests.iter().filter(|r| r.completed()).collect();
        let output: u64 = done.iter().map(|r| r.tokens).sum();
        let token_reads: u64 = done.iter().map(|r| u64::from(r.token_reads)).sum();
        let partial = |r: &&Request| matches!(r.standing, Standing::Failed | Standing::Cancelled);
        let cached: Vec<(u64, u64)> = done
            .iter()
            .filter_map(|r| Some((r.cached?, r.prompt?)))
            .collect();
        let asked_output: u64 = done.iter().map(|r| r.asked_output).sum();
        let coalesced = survey.coalesced;
        Tokens {
            input: input_tokens(&done),
            input_unconfirmed: count(&done, |r| r.prompt.is_none() && r.asked_input.is_some()),
            output,
            partial_output: survey
                .requests
                .iter()
                .filter(partial)
                .map(|r| r.tokens)
                .sum(),
            output_estimated: count(&done, |r| r.estimated),
            reads_estimated: count(&done, |r| !r.exact),
            cached: match cached.len() {
                0 => missing("no answer carried usage.prompt_tokens_details.cached_tokens"),
                n if n < done.len() => missing(format!(
                    "only {n} of {} answers carried cached_tokens",
                    done.len()
                )),
                _ => Ok(cached.iter().map(|c| c.0).sum()),
            },
            cached_share: ratio(
                cached.iter().map(|c| c.0 as f64).sum(),
                cached.iter().map(|c| c.1 as f64).sum(),
                "no answer carried usage.prompt_tokens_details.cached_tokens",
            ),
            input_ratio: input_ratio(&done),
            output_ratio: ratio(output as f64, asked_output as f64, NONE_COMPLETED),
            per_read: ratio(output as f64, token_reads as f64, "no read carried a token"),
            first_read: first_read(&done),
            coalesced_read_share: ratio(
                coalesced.shared as f64,
                coalesced.reads as f64,
                "no request had two reads with tokens",
            ),
        }
    }
}

fn count(requests: &[&Request], what: impl Fn(&Request) -> bool) -> u64 {
    requests.iter().filter(|r| what(r)).count() as u64
}

fn input_tokens(done: &[&Request]) -> Figure<u64> {
    let known: Option<u64> = done.iter().map(|r| r.prompt.or(r.asked_input)).sum();
    known.map_or_else(
        || missing("some prompts have neither a length asked for nor usage from the server"),
        Ok,
    )
}

fn input_ratio(done: &[&Request]) -> Figure {
    let both: Vec<(u64, u64)> = done
        .iter()
        .filter_map(|r| Some((r.prompt?, r.asked_input?)))
        .collect();
    ratio(
        both.iter().map(|b| b.0 as f64).sum(),
        both.iter().map(|b| b.1 as f64).sum(),
        "no request has both a length asked for and usage from the server",
    )
}

fn first_read(done: &[&Request]) -> Figure<(u32, u32)> {
    let known = || {
        let exact = done.iter().filter(|r| r.exact && r.token_reads > 0);
        exact.map(|r| r.first_tokens)
    };
    match (known().min(), known().max()) {
        (Some(min), Some(max)) => Ok((min, max)),
        _ if done.is_empty() => missing(NONE_COMPLETED),
        _ => missing("first-chunk size unknown: the tokens of single reads are not known"),
    }
}
