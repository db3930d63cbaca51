use serde::{Deserialize, Deserializer, Serialize};

use crate::fault::Fault;

/// Everything that a mock server does and answers. Times are milliseconds; a zero switches an option off.
///
/// The default is a well-behaved vLLM: first token after 20 ms, then a token every 10 ms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MockConfig {
    /// The model it serves; another name is answered 404.
    pub model: String,
    /// Context length; `max_tokens` is cut to what is left of it.
    pub max_model_len: u64,
    /// What `/version` says.
    pub version: String,
    /// The bearer token that `/v1/…` asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// Keeps every POST request (head and body) for [`MockStats::recorded`](crate::MockStats::recorded).
    pub record_requests: bool,
    /// An idle connection is closed after this long (uvicorn: 5 s).
    pub keep_alive_timeout_ms: f64,
    /// A longer request body is answered 413.
    pub max_body_bytes: usize,

    /// Who decides when a token comes.
    pub mode: Mode,
    /// `per_request`: from the last request byte to the first token.
    pub ttft_ms: f64,
    /// From one token step to the next.
    pub step_ms: f64,
    /// Time to prefill one prompt token that the prefix cache does not hold. In `per_request` mode it is added to `ttft_ms`.
    pub prefill_us_per_token: f64,
    /// `engine`: most sequences that run at once; others wait.
    pub max_num_seqs: usize,
    /// `engine`: most tokens in one step, which chunks prefills; 0 = a prompt is prefilled in one step.
    pub max_batched_tokens: u64,

    /// Tokens in each step, a number or a cycle such as `[3, 4, 4, 2]` (speculative decoding).
    #[serde(deserialize_with = "one_or_many")]
    pub tokens_per_chunk: Vec<u64>,
    /// Tokens in the first chunk.
    pub first_chunk_tokens: u64,
    /// The model ends by itself after this many tokens, unless `ignore_eos` or `min_tokens` forbid it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eos_after: Option<u64>,
    /// A chunk's text is the `CLOCK_MONOTONIC` time in ns right before its write, instead of words.
    pub stamp: bool,
    /// Tokens gathered before a chunk is sent; the first token is never held back (vLLM's `--stream-interval`).
    pub stream_interval: u64,
    /// Chat: how many tokens at the start are reasoning.
    pub reasoning_tokens: u64,
    /// Chat: the field in which reasoning is sent.
    pub reasoning_field: ReasoningField,
    /// Chat: when the role-only chunk is sent.
    pub role_chunk: RoleChunk,
    /// Chat: the role chunk has `"content":null` instead of `""`.
    pub role_content_null: bool,
    /// The response head waits for the first token instead of going out at once.
    pub headers_with_first_token: bool,

    /// Where a stream carries usage.
    pub usage: UsagePlacement,
    /// Every stream carries usage as if it had been asked for, on every chunk and at the end (vLLM's `--enable-force-include-usage`).
    pub force_include_usage: bool,
    /// Usage has `prompt_tokens_details.cached_tokens`.
    pub prompt_tokens_details: bool,
    /// Stream options other than `include_usage` are answered 400, as stricter servers do.
    pub reject_unknown_stream_options: bool,

    /// Tokens that the chat template adds to the words of the messages.
    pub chat_overhead_tokens: u64,
    /// Multiplies every prompt's token count, to stand for another tokenizer.
    pub prompt_tokens_factor: f64,
    /// Prompt blocks seen before skip their prefill.
    pub prefix_cache: bool,
    /// Tokens in a block of the prefix cache.
    pub block_size: usize,
    /// Capacity of the prefix cache; the least recently used blocks go first.
    pub prefix_cache_tokens: usize,
    /// Whether `/metrics` exists.
    pub metrics: bool,
    /// Preemptions that `/metrics` counts for each request.
    pub preemptions_per_request: u64,

    /// `: keep-alive` comments after this long without an event; 0 = none.
    pub keepalive_ms: f64,
    /// Lines end with CR LF.
    pub crlf: bool,
    /// `data:{…}` without the space.
    pub no_space: bool,
    /// `event: message` before each event's data.
    pub event_field: bool,
    /// A byte order mark before the first event.
    pub bom: bool,
    /// One event of each stream is this much longer; 0 = none.
    pub pad_event_bytes: usize,
    /// Each event is written in pieces of this many bytes; 0 = whole.
    pub split_writes: usize,

    /// A pause in some requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall: Option<Stall>,
    /// Failures; the first one that selects a request hits it.
    pub fault: Vec<Fault>,
}

impl Default for MockConfig {
    fn default() -> Self {
        MockConfig {
            model: "mock".to_owned(),
            max_model_len: 262_144,
            version: "0.32.0".to_owned(),
            api_key: None,
            record_requests: false,
            keep_alive_timeout_ms: 5_000.0,
            max_body_bytes: 64 << 20,
            mode: Mode::PerRequest,
            ttft_ms: 20.0,
            step_ms: 10.0,
            prefill_us_per_token: 0.0,
            max_num_seqs: 256,
            max_batched_tokens: 8_192,
            tokens_per_chunk: vec![1],
            first_chunk_tokens: 1,
            eos_after: None,
            stamp: false,
            stream_interval: 1,
            reasoning_tokens: 0,
            reasoning_field: ReasoningField::Reasoning,
            role_chunk: RoleChunk::WithFirstToken,
            role_content_null: false,
            headers_with_first_token: false,
            usage: UsagePlacement::FinalChunk,
            force_include_usage: false,
            prompt_tokens_details: false,
            reject_unknown_stream_options: false,
            chat_overhead_tokens: 8,
            prompt_tokens_factor: 1.0,
            prefix_cache: true,
            block_size: 16,
            prefix_cache_tokens: 1_000_000,
            metrics: true,
            preemptions_per_request: 0,
            keepalive_ms: 0.0,
            crlf: false,
            no_space: false,
            event_field: false,
            bom: false,
            pad_event_bytes: 0,
            split_writes: 0,
            stall: None,
            fault: Vec::new(),
        }
    }
}

/// Who decides when a token comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Each request has its own clock: `ttft_ms` after its last byte, then every `step_ms`.
    PerRequest,
    /// One engine loop: every running sequence gets its tokens at the end of a shared step, which lasts
    /// `step_ms` plus the prefill in it. A request's time to first token follows from that.
    Engine,
}

/// The chat field of reasoning tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningField {
    /// `delta.reasoning` (vLLM 0.23 and later).
    Reasoning,
    /// `delta.reasoning_content` (older servers).
    ReasoningContent,
}

/// When a chat stream's role-only chunk is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoleChunk {
    /// Right before the first token, as vLLM does.
    WithFirstToken,
    /// As soon as the request has arrived.
    Immediate,
    /// Never.
    None,
}

/// Where a stream carries usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsagePlacement {
    /// vLLM: a last chunk with `"choices":[]` if `stream_options.include_usage`, and every chunk if `continuous_usage_stats`.
    FinalChunk,
    /// In an extra chunk that has empty text and the finish reason; always.
    InChoicesChunk,
    /// On every chunk, always; the last chunk of `final_chunk` as well if asked.
    EveryChunk,
    /// As `final_chunk`, with `"choices":null`.
    NullChoices,
    /// As `final_chunk`, without the key `choices`.
    AbsentChoices,
    /// Never.
    None,
}

/// One pause before a token of every Nth request, such as another request's prefill makes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// Hits requests N, 2N, …, counted as for [`Fault`].
    pub every: u64,
    /// The token that comes late, counted from 1.
    pub at_token: u64,
    /// How long, on top of the step.
    pub ms: f64,
    /// Requests that are not counted at first.
    #[serde(default)]
    pub skip_first: u64,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number of tokens or a list of them")]
enum OneOrMany {
    One(u64),
    Many(Vec<u64>),
}

fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
    Ok(match OneOrMany::deserialize(from)? {
        OneOrMany::One(n) => vec![n],
        OneOrMany::Many(list) => list,
    })
}
