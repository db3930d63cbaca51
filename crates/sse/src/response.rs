use linktax_records::{FailureDetail, Nanos, Outcome, Reads, TokenSource, Usage};
use serde::{Deserialize, Serialize};

use crate::decoder::DEFAULT_MAX_EVENT_BYTES;
use crate::outcome::{self, Evidence};
use crate::state::State;
use crate::{SseDecoder, SseItem};

/// Which streaming API the response comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// `/v1/completions`: text in `choices[].text`.
    Completions,
    /// `/v1/chat/completions`: text in `choices[].delta`.
    Chat,
}

/// How to decode one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Where the generated text stands.
    pub endpoint: Endpoint,
    /// Keep the generated text.
    pub keep_text: bool,
    /// The text is the server's send time in nanoseconds, one decimal number an event (calibration only).
    pub send_stamps: bool,
    /// Largest event taken; a larger one makes the response [`Outcome::Malformed`].
    pub max_event_bytes: usize,
}

impl DecodeOptions {
    /// Text and stamps off, the default size limit.
    pub fn new(endpoint: Endpoint) -> Self {
        DecodeOptions {
            endpoint,
            keep_text: false,
            send_stamps: false,
            max_event_bytes: DEFAULT_MAX_EVENT_BYTES,
        }
    }
}

/// How the bytes of a response ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// HTTP says that the body is complete.
    Clean,
    /// The connection ended inside the body; the cause in words.
    Broken(String),
}

/// All that one response says, ready to go into a [`linktax_records::RequestRecord`].
#[derive(Clone, Debug, PartialEq)]
pub struct Decoded {
    /// How it ended, as far as the body tells.
    pub outcome: Outcome,
    /// What went wrong, for anything but a completed response. The HTTP status is left to the caller.
    pub failure: Option<FailureDetail>,
    /// The server's finish reason (the last one, where there are several choices).
    pub finish_reason: Option<String>,
    /// Whether `[DONE]` was seen.
    pub done_marker: bool,
    /// The last usage of the stream, wherever it stood.
    pub usage: Option<Usage>,
    /// How the tokens of the reads were counted.
    pub token_source: TokenSource,
    /// SSE comments seen.
    pub keepalives: u32,
    /// The socket reads that completed a data event.
    pub reads: Reads,
    /// The generated text of choice 0, reasoning and answer in the order they came, if it was to be kept.
    pub text: Option<String>,
    /// Read time minus the first stamp in the read, in nanoseconds, for each read with a token and a stamp.
    pub delivery_lag_ns: Vec<u64>,
    /// Socket reads of the body, those without an event included.
    pub socket_reads: u32,
}

/// The state of one streamed response: body bytes and read times in, [`Decoded`] out.
///
/// Tokens are counted from the best source that the server offers, chosen at the first event with a token:
/// running usage on each chunk, else `token_ids`, else `logprobs`, else one token for each event with text.
/// A text event that lacks the chosen figure counts as one token and makes the source [`TokenSource::Events`],
/// because the counts of the single reads are no longer known. The tokens of all choices are summed; timing
/// is only meaningful with one.
///
/// ```
/// use linktax_records::{Nanos, Outcome};
/// use linktax_sse::{DecodeOptions, Endpoint, ResponseDecoder, StreamEnd};
///
/// let mut response = ResponseDecoder::new(DecodeOptions::new(Endpoint::Completions));
/// response.read(Nanos::from_millis(40), 0, b"data: {\"choices\":[{\"text\":\"Hi\"}]}\n\n");
/// assert!(response.first_token_seen());
/// response.read(Nanos::from_millis(50), 1, b"data: [DONE]\n\n");
///
/// let decoded = response.finish(StreamEnd::Clean, None);
/// assert_eq!(decoded.outcome, Outcome::Completed);
/// assert_eq!(decoded.reads.first_token(), Some(Nanos::from_millis(40)));
/// ```
#[derive(Debug)]
pub struct ResponseDecoder {
    sse: SseDecoder,
    state: State,
}

impl ResponseDecoder {
    /// A response of which nothing has been read yet.
    pub fn new(options: DecodeOptions) -> Self {
        ResponseDecoder {
            sse: SseDecoder::new(options.max_event_bytes),
            state: State::new(options),
        }
    }

    /// Says what time `t_sent` was on the clock of the server's send stamps; without it no lag is computed.
    pub fn set_origin(&mut self, t_sent: Nanos) {
        self.state.origin = Some(t_sent);
    }

    /// Decodes the next body bytes: `t` is when the socket read that brought them returned, since `t_sent`, and
    /// `read_seq` the number of that read.
    ///
    /// One socket read may hold several body frames: calls with one `read_seq` make one entry, at the time of
    /// the first of them.
    pub fn read(&mut self, t: Nanos, read_seq: u64, body_bytes: &[u8]) {
        let state = &mut self.state;
        state.begin_read(t, read_seq, body_bytes.len());
        let pushed = self
            .sse
            .push(body_bytes, &mut |item: SseItem<'_>| match item {
                SseItem::Event { event, data } => state.on_event(event, data),
                SseItem::Comment => state.keepalives = state.keepalives.saturating_add(1),
            });
        if let Err(error) = pushed {
            self.state.on_malformed(error.to_string(), None);
        }
    }

    /// Whether a generated token of any kind has come.
    pub fn first_token_seen(&self) -> bool {
        self.state.counted > 0
    }

    /// Tokens counted so far.
    pub fn counted(&self) -> u64 {
        self.state.counted
    }

    /// Whether an error frame or something unreadable has come: no success is possible any more.
    pub fn failed(&self) -> bool {
        self.state.error.is_some() || self.state.malformed.is_some()
    }

    /// Whether the server has said that the answer is complete: `[DONE]`.
    pub fn done(&self) -> bool {
        self.state.done_marker
    }

    /// Ends the response. `expected_output` is the number of tokens that a complete answer must have, where
    /// the request fixed it.
    pub fn finish(mut self, end: StreamEnd, expected_output: Option<u64>) -> Decoded {
        self.state.end_read();
        let leftover = self.sse.finish();
        self.state.on_leftover(&leftover);
        let State {
            counter,
            reads,
            usage,
            finish_reason,
            done_marker,
            counted,
            ..
        } = self.state;
        let token_source = counter.source();
        let (outcome, failure) = outcome::decide(Evidence {
            error: self.state.error,
            malformed: self.state.malformed,
            end,
            done_marker,
            finish_reason: finish_reason.as_deref(),
            counted,
            usage,
            source: token_source,
            expected_output,
            leftover: leftover.len(),
        });
        Decoded {
            outcome,
            failure,
            finish_reason,
            done_marker,
            usage,
            token_source,
            keepalives: self.state.keepalives,
            reads,
            text: self.state.text,
            delivery_lag_ns: self.state.delivery_lag_ns,
            socket_reads: self.state.socket_reads,
        }
    }
}
