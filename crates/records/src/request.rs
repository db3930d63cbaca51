use serde::{Deserialize, Serialize};

use crate::{Nanos, Reads};

/// Why a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Fills the server's prefix cache before a warm cell; never counted.
    Prime,
    /// Warms the engine with prompts of its own; never counted.
    Warmup,
    /// Counted.
    Measured,
}

impl Phase {
    /// The name used in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Phase::Prime => "prime",
            Phase::Warmup => "warmup",
            Phase::Measured => "measured",
        }
    }
}

/// How a request ended. Only [`Outcome::Completed`] is a success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The stream ended properly and carried what was asked for.
    Completed,
    /// The connection could not be opened.
    ConnectError,
    /// A status other than 2xx; the body is kept.
    HttpError,
    /// An error object arrived inside a 200 answer.
    ErrorInStream,
    /// The stream ended without a finish reason.
    Truncated,
    /// The connection broke before the end of the answer.
    Reset,
    /// No generated token within the first-token timeout.
    FirstTokenTimeout,
    /// No byte for longer than the idle timeout.
    IdleTimeout,
    /// The stream ended properly with fewer tokens than asked for.
    ShortOutput,
    /// The stream ended properly without a single generated token.
    NoOutput,
    /// The answer could not be understood (not an event stream, unparsable JSON, an oversized event).
    Malformed,
    /// The run was stopped while this request was under way.
    Cancelled,
}

impl Outcome {
    /// The name used in files and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::ConnectError => "connect_error",
            Outcome::HttpError => "http_error",
            Outcome::ErrorInStream => "error_in_stream",
            Outcome::Truncated => "truncated",
            Outcome::Reset => "reset",
            Outcome::FirstTokenTimeout => "first_token_timeout",
            Outcome::IdleTimeout => "idle_timeout",
            Outcome::ShortOutput => "short_output",
            Outcome::NoOutput => "no_output",
            Outcome::Malformed => "malformed",
            Outcome::Cancelled => "cancelled",
        }
    }

    /// Whether this counts as a failure: everything but a completed or a cancelled request.
    pub const fn is_failure(self) -> bool {
        !matches!(self, Outcome::Completed | Outcome::Cancelled)
    }
}

/// What is known of a request that did not complete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureDetail {
    /// HTTP status, when an answer came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// One line on what went wrong.
    pub message: String,
    /// The start of the error body or error frame, at most 4 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// The server's own token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Prompt tokens as the server counted them.
    pub prompt_tokens: u64,
    /// Generated tokens, reasoning included.
    pub completion_tokens: u64,
    /// Prompt tokens taken from the prefix cache, where the server says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// Generated tokens that were reasoning, where the server says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
}

/// How `reads.tokens` was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TokenSource {
    /// Differences of the running usage that the server put on every chunk.
    ContinuousUsage,
    /// Lengths of the chunks' `token_ids` arrays.
    TokenIds,
    /// Entries of the chunks' `logprobs`.
    Logprobs,
    /// One token for each event with text: exact only where the sum equals the usage.
    Events,
}

impl TokenSource {
    /// The name used in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            TokenSource::ContinuousUsage => "continuous_usage",
            TokenSource::TokenIds => "token_ids",
            TokenSource::Logprobs => "logprobs",
            TokenSource::Events => "events",
        }
    }
}

/// One HTTP call, as it is written to `requests.jsonl` when it ends.
///
/// All `t_*_ns` are nanoseconds since the cell's clock origin (taken before its warm-up),
/// except those inside [`Reads`], which count from `t_sent_ns`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestRecord {
    /// Index of the cell in `run.json`.
    pub cell: u32,
    /// Which try at this cell (0, then 1 after a resume that ran the cell again).
    #[serde(default)]
    pub attempt: u32,
    /// Index of the request within its phase, in the order of sending.
    pub index: u64,
    /// Prime, warm-up or measured.
    pub phase: Phase,
    /// Which `--base-url` it went to.
    #[serde(default)]
    pub replica: u32,
    /// The `x-request-id` that was sent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// Prompt tokens asked for; `None` when the workload gives text of unknown length.
    pub input_len: Option<u64>,
    /// Output tokens asked for (`max_tokens`).
    pub output_len: u64,
    /// When it was due: the slot of an open loop, the moment its predecessor ended in a closed one.
    pub t_sched_ns: Nanos,
    /// Before the first byte was written, connection open and body serialised; `None` if it never got that far.
    pub t_sent_ns: Option<Nanos>,
    /// When the response headers were there.
    pub t_headers_ns: Option<Nanos>,
    /// When the request ended, whatever the outcome.
    pub t_done_ns: Nanos,
    /// Whether this request had to open a new connection (before `t_sent_ns`).
    #[serde(default)]
    pub reconnected: bool,
    /// How it ended.
    pub outcome: Outcome,
    /// What went wrong, for anything but a completed request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureDetail>,
    /// The server's finish reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<String>,
    /// Whether `[DONE]` was seen.
    #[serde(default)]
    pub done_marker: bool,
    /// The server's token counts, wherever they stood in the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// How the tokens of each read were counted.
    pub token_source: TokenSource,
    /// SSE comments (keep-alives) seen.
    #[serde(default)]
    pub keepalives: u32,
    /// Socket reads of the response body, those without an event included.
    #[serde(default)]
    pub socket_reads: u32,
    /// The reads that completed an event.
    pub reads: Reads,
    /// For each token read, read time minus the send time that the mock server stamped; calibration only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delivery_lag_ns: Vec<u64>,
    /// The generated text, kept only when asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl RequestRecord {
    /// Output tokens: the server's usage, else what was counted read by read.
    pub fn output_tokens(&self) -> u64 {
        self.usage
            .map_or_else(|| self.reads.counted_tokens(), |u| u.completion_tokens)
    }

    /// Whether [`Self::output_tokens`] is an estimate: no usage, and events counted as tokens.
    pub fn output_tokens_estimated(&self) -> bool {
        self.usage.is_none() && self.token_source == TokenSource::Events
    }

    /// Whether the tokens of each single read are known: counted from ids, log-probabilities or a running
    /// usage, or counted as events with a sum that equals the usage.
    pub fn read_tokens_exact(&self) -> bool {
        match self.token_source {
            TokenSource::Events => self
                .usage
                .is_some_and(|u| u.completion_tokens == self.reads.counted_tokens()),
            _ => true,
        }
    }

    /// Absolute time (cell clock) of the first generated token.
    pub fn t_first_token(&self) -> Option<Nanos> {
        Some(self.t_sent_ns? + self.reads.first_token()?)
    }

    /// Absolute time (cell clock) of the last generated token.
    pub fn t_last_token(&self) -> Option<Nanos> {
        Some(self.t_sent_ns? + self.reads.last_token()?)
    }
}
