//! What is kept of one measured request while a cell of millions of reads is summarised.

use linktax_records::{Outcome, RequestRecord};

/// How a measured request counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    Completed,
    Cancelled,
    Failed,
    /// Completed, but its times contradict each other.
    Rejected,
}

/// The scalars of one request; absolute times in nanoseconds on the cell's clock.
///
/// The derived order starts with the send time and covers every field, so sums over sorted requests do
/// not depend on the order of the records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Request {
    /// `None` when it was never sent, or when its times contradict each other.
    pub(crate) sent: Option<u64>,
    pub(crate) index: u64,
    pub(crate) sched: u64,
    pub(crate) done: u64,
    pub(crate) first: Option<u64>,
    pub(crate) answer: Option<u64>,
    pub(crate) last: Option<u64>,
    pub(crate) standing: Standing,
    /// Output tokens; for anything but a completed request those that were counted.
    pub(crate) tokens: u64,
    /// Whether `tokens` is an estimate.
    pub(crate) estimated: bool,
    /// Whether the tokens of each read are known.
    pub(crate) exact: bool,
    /// Tokens in the first token-bearing read, as counted.
    pub(crate) first_tokens: u32,
    pub(crate) token_reads: u32,
    pub(crate) asked_input: Option<u64>,
    pub(crate) asked_output: u64,
    pub(crate) prompt: Option<u64>,
    pub(crate) cached: Option<u64>,
    pub(crate) gaps: GapSums,
}

/// Step gaps of one request, summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GapSums {
    pub(crate) all_ns: u64,
    pub(crate) all_tokens: u64,
    pub(crate) stall_ns: u64,
    pub(crate) stall_tokens: u64,
    pub(crate) stalls: u32,
}

impl GapSums {
    pub(crate) fn kept_ns(&self) -> u64 {
        self.all_ns - self.stall_ns
    }

    pub(crate) fn kept_tokens(&self) -> u64 {
        self.all_tokens - self.stall_tokens
    }
}

impl Request {
    pub(crate) fn of(record: &RequestRecord) -> Self {
        let trusted = times_agree(record);
        let standing = match record.outcome {
            Outcome::Completed if trusted => Standing::Completed,
            Outcome::Completed => Standing::Rejected,
            Outcome::Cancelled => Standing::Cancelled,
            _ => Standing::Failed,
        };
        let sent = record.t_sent_ns.filter(|_| trusted);
        let since = |t: Option<linktax_records::Nanos>| Some((sent? + t?).as_nanos());
        let tokens = match standing {
            Standing::Completed => record.output_tokens(),
            _ => record.reads.counted_tokens(),
        };
        Request {
            sent: sent.map(|t| t.as_nanos()),
            index: record.index,
            sched: record.t_sched_ns.as_nanos(),
            done: record.t_done_ns.as_nanos(),
            first: since(record.reads.first_token()),
            answer: since(record.reads.first_content()),
            last: since(record.reads.last_token()),
            standing,
            tokens: sane(tokens),
            estimated: record.output_tokens_estimated(),
            exact: record.read_tokens_exact(),
            first_tokens: record.reads.token_reads().next().map_or(0, |(_, k)| k),
            token_reads: u32::try_from(record.reads.token_reads().count()).unwrap_or(u32::MAX),
            asked_input: record.input_len.map(sane),
            asked_output: sane(record.output_len),
            prompt: record.usage.map(|u| sane(u.prompt_tokens)),
            cached: record.usage.and_then(|u| u.cached_tokens).map(sane),
            gaps: GapSums::default(),
        }
    }

    pub(crate) fn completed(&self) -> bool {
        self.standing == Standing::Completed
    }

    /// When it left the server, as far as the client can tell: its last token, else its end.
    pub(crate) fn end(&self) -> u64 {
        match self.standing {
            Standing::Completed => self.last.unwrap_or(self.done),
            _ => self.done,
        }
    }

    /// `(send, end)`, if it was sent.
    pub(crate) fn in_flight(&self) -> Option<(u64, u64)> {
        Some((self.sent?, self.end()))
    }

    /// `(send, first token)`, or until its end if there was never one.
    pub(crate) fn prefill(&self) -> Option<(u64, u64)> {
        Some((self.sent?, self.first.unwrap_or(self.done)))
    }

    /// Whether its tokens were really delivered to a user: completed, or stopped by the client's own end.
    pub(crate) fn delivered(&self) -> bool {
        matches!(self.standing, Standing::Completed | Standing::Cancelled)
    }

    pub(crate) fn ttft_ns(&self) -> Option<u64> {
        Some(self.first? - self.sent?)
    }

    pub(crate) fn e2el_ns(&self) -> Option<u64> {
        Some(self.last? - self.sent?)
    }

    /// Time between the first and the last token, where it can be told: two tokens, two instants.
    pub(crate) fn decode_ns(&self) -> Option<u64> {
        let span = self.last? - self.first?;
        (self.tokens > 1 && span > 0).then_some(span)
    }
}

/// A token count that sums of millions of requests can hold, whatever a server claims.
fn sane(tokens: u64) -> u64 {
    tokens.min(1 << 40)
}

/// Whether the times of a record run forwards: due, sent, headers, reads in order, end.
pub(crate) fn times_agree(record: &RequestRecord) -> bool {
    let reads = &record.reads;
    if !reads.is_consistent() || !reads.t_ns.is_sorted() {
        return false;
    }
    let Some(sent) = record.t_sent_ns else {
        // Only a request that never got as far as sending may lack the time of it.
        return record.outcome != Outcome::Completed && reads.is_empty();
    };
    let last_read = reads.t_ns.last().map_or(sent, |&t| sent + t);
    let headers = record.t_headers_ns.unwrap_or(sent);
    record.t_sched_ns <= sent
        && sent <= headers
        && headers <= record.t_done_ns
        && last_read <= record.t_done_ns
}

/// The token-bearing reads of one record: `(absolute time, tokens)`.
///
/// Where only the sum of the tokens is known (events counted, usage differs), the counts are scaled so
/// that they add up to the usage; running totals are rounded, so nothing is lost or invented.
pub(crate) fn token_steps(record: &RequestRecord) -> impl Iterator<Item = (u64, u32)> + '_ {
    let sent = record.t_sent_ns.unwrap_or_default();
    let counted = u128::from(record.reads.counted_tokens());
    let total = match record.usage {
        Some(usage) if !record.read_tokens_exact() => u128::from(usage.completion_tokens),
        _ => counted,
    };
    let (mut before, mut given) = (0_u128, 0_u128);
    record.reads.token_reads().map(move |(t, tokens)| {
        before += u128::from(tokens);
        let until = (2 * before * total + counted) / (2 * counted);
        let here = until - given;
        given = until;
        (
            (sent + t).as_nanos(),
            u32::try_from(here).unwrap_or(u32::MAX),
        )
    })
}
