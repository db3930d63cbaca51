use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::MockError;
use crate::fault::{Fault, FaultKind};

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

impl MockConfig {
    /// Reads TOML; `path` is only named in errors, with the line.
    pub fn from_toml(text: &str, path: &Path) -> Result<Self, MockError> {
        let in_file = |line, reason| MockError::ConfigFile {
            path: path.to_owned(),
            line,
            reason,
        };
        let config: MockConfig = toml::from_str(text).map_err(|e| {
            let at = e.span().map_or(0, |s| s.start);
            let line = 1 + text.bytes().take(at).filter(|b| *b == b'\n').count();
            in_file(line, e.message().trim().replace('\n', ", "))
        })?;
        config
            .check()
            .map_err(|(key, reason)| in_file(line_of(text, key), format!("`{key}` {reason}")))?;
        Ok(config)
    }

    /// Says which value makes no sense, if one does.
    pub fn validate(&self) -> Result<(), MockError> {
        self.check().map_err(|(key, reason)| MockError::Config {
            key: key.to_owned(),
            reason,
        })
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        // A day: beyond it, absolute deadlines in ns are surely a mistake.
        let times = [
            ("ttft_ms", self.ttft_ms),
            ("step_ms", self.step_ms),
            ("keepalive_ms", self.keepalive_ms),
            ("keep_alive_timeout_ms", self.keep_alive_timeout_ms),
            ("prefill_us_per_token", self.prefill_us_per_token),
            ("stall", self.stall.as_ref().map_or(0.0, |s| s.ms)),
        ];
        for (key, value) in times {
            if !(0.0..=86_400_000.0).contains(&value) {
                return Err((key, format!("is {value}; expected 0 to 86400000")));
            }
        }
        let at_least_one = [
            ("max_num_seqs", self.max_num_seqs as u64),
            ("first_chunk_tokens", self.first_chunk_tokens),
            ("stream_interval", self.stream_interval),
            ("block_size", self.block_size as u64),
            ("max_model_len", self.max_model_len),
            ("eos_after", self.eos_after.unwrap_or(1)),
            (
                "stall",
                self.stall.as_ref().map_or(1, |s| s.every.min(s.at_token)),
            ),
            (
                "tokens_per_chunk",
                self.tokens_per_chunk.iter().copied().min().unwrap_or(0),
            ),
        ];
        for (key, value) in at_least_one {
            if value == 0 {
                return Err((key, "has a zero or is empty; expected 1 or more".to_owned()));
            }
        }
        if self.mode == Mode::Engine && self.step_ms == 0.0 {
            return Err((
                "step_ms",
                "is 0; the engine needs a step longer than that".to_owned(),
            ));
        }
        if !(0.001..=1000.0).contains(&self.prompt_tokens_factor) {
            let reason = format!("is {}; expected 0.001 to 1000", self.prompt_tokens_factor);
            return Err(("prompt_tokens_factor", reason));
        }
        if self.model.is_empty() {
            return Err(("model", "is empty; expected a name".to_owned()));
        }
        self.fault.iter().try_for_each(check_fault)
    }
}

fn check_fault(fault: &Fault) -> Result<(), (&'static str, String)> {
    if fault.every.is_none() && fault.nth.is_empty() {
        return Err((
            "fault",
            "selects nothing; give `every = N` or `nth = [..]`".to_owned(),
        ));
    }
    if fault.every == Some(0) || fault.nth.contains(&0) {
        return Err((
            "fault",
            "selects request 0; requests count from 1".to_owned(),
        ));
    }
    if fault.kind == FaultKind::HttpError && !(400..=599).contains(&fault.status) {
        let reason = format!("has status {}; expected 400 to 599", fault.status);
        return Err(("fault", reason));
    }
    Ok(())
}

/// The line that sets `key`, else the first one.
fn line_of(text: &str, key: &str) -> usize {
    let sets = |line: &str| {
        let line = line.trim_start().trim_start_matches('[').trim_start();
        line.strip_prefix(key)
            .is_some_and(|rest| rest.trim_start().starts_with(['=', ']', '.']))
    };
    text.lines().position(sets).map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<MockConfig, String> {
        MockConfig::from_toml(text, Path::new("mock.toml")).map_err(|e| e.to_string())
    }

    #[test]
    fn empty_file_is_the_default_and_the_default_survives_a_round_trip() {
        assert_eq!(parse("").unwrap(), MockConfig::default());
        let written = toml::to_string(&MockConfig::default()).unwrap();
        assert_eq!(parse(&written).unwrap(), MockConfig::default());
    }

    #[test]
    fn tokens_per_chunk_is_a_number_or_a_cycle() {
        assert_eq!(parse("tokens_per_chunk = 4").unwrap().tokens_per_chunk, [4]);
        assert_eq!(
            parse("tokens_per_chunk = [3, 4, 4, 2]")
                .unwrap()
                .tokens_per_chunk,
            [3, 4, 4, 2]
        );
        let e = parse("model = \"m\"\ntokens_per_chunk = \"x\"").unwrap_err();
        assert_eq!(
            e,
            "mock.toml:2: expected a number of tokens or a list of them"
        );
    }

    #[test]
    fn mistakes_name_the_line_and_what_would_be_right() {
        let e = parse("model = \"m\"\n\nttft = 3\n").unwrap_err();
        assert!(
            e.starts_with("mock.toml:3: unknown field `ttft`, expected one of"),
            "{e}"
        );
        let e = parse("step_ms = 1\nmode = \"engin\"\n").unwrap_err();
        assert!(
            e.starts_with("mock.toml:2: unknown variant `engin`, expected `per_request` or"),
            "{e}"
        );
        let e = parse("model = \"m\"\nstep_ms = -1\n").unwrap_err();
        assert_eq!(e, "mock.toml:2: `step_ms` is -1; expected 0 to 86400000");
        let e = parse("model = \"m\"\n[[fault]]\nkind = \"reset\"\n").unwrap_err();
        assert_eq!(
            e,
            "mock.toml:2: `fault` selects nothing; give `every = N` or `nth = [..]`"
        );
        let e = parse("model = \"m\"\nmodel = \n").unwrap_err();
        assert!(e.starts_with("mock.toml:2: "), "{e}");
    }

    #[test]
    fn senseless_values_are_refused() {
        let base = MockConfig::default;
        let bad = [
            MockConfig {
                tokens_per_chunk: vec![],
                ..base()
            },
            MockConfig {
                tokens_per_chunk: vec![3, 0],
                ..base()
            },
            MockConfig {
                ttft_ms: f64::NAN,
                ..base()
            },
            MockConfig {
                max_num_seqs: 0,
                ..base()
            },
            MockConfig {
                mode: Mode::Engine,
                step_ms: 0.0,
                ..base()
            },
            MockConfig {
                prompt_tokens_factor: 0.0,
                ..base()
            },
            MockConfig {
                stall: Some(Stall {
                    every: 1,
                    at_token: 0,
                    ms: 1.0,
                    skip_first: 0,
                }),
                ..base()
            },
            MockConfig {
                fault: vec![Fault {
                    status: 200,
                    ..Fault::always(FaultKind::HttpError)
                }],
                ..base()
            },
        ];
        for config in bad {
            assert!(config.validate().is_err(), "{config:?}");
        }
    }
}
