//! Bytes and their arrival times to SSE events to OpenAI deltas with token counts.
//!
//! No socket, no clock, no runtime: the caller says which bytes came and when. [`SseDecoder`] turns bytes into
//! events, the same events for every split of the bytes; [`ResponseDecoder`] follows one streamed answer of
//! `/v1/completions` or `/v1/chat/completions` and ends as a [`Decoded`]: reads with their times, tokens and
//! classes, the usage, and an outcome that is a success only if nothing failed.
//!
//! One timestamp belongs to one socket read. Events that came in one read share it, and one entry of
//! [`linktax_records::Reads`] holds them all, so coalesced delivery shows as such and never as gaps of zero.
//!
//! ```
//! use linktax_records::{EventClass, Nanos, Outcome, TokenSource};
//! use linktax_sse::{DecodeOptions, Endpoint, ResponseDecoder, StreamEnd};
//!
//! let mut response = ResponseDecoder::new(DecodeOptions {
//!     keep_text: true,
//!     ..DecodeOptions::new(Endpoint::Chat)
//! });
//! // The role comes before any token, and an event may be split anywhere.
//! response.read(Nanos::from_millis(5), 0, b"data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"}}]}\n\n");
//! response.read(Nanos::from_millis(214), 1, b"data: {\"choices\":[{\"delta\":{\"content\":\"H");
//! response.read(Nanos::from_millis(215), 2, b"i\"}}]}\n\n");
//! response.read(
//!     Nanos::from_millis(240),
//!     3,
//!     b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
//! );
//!
//! let decoded = response.finish(StreamEnd::Clean, None);
//! assert_eq!(decoded.outcome, Outcome::Completed);
//! assert_eq!(decoded.text.as_deref(), Some("Hi"));
//! assert_eq!(decoded.reads.class, [EventClass::Role, EventClass::Content, EventClass::Done]);
//! assert_eq!(decoded.reads.tokens, [0, 1, 0]);
//! assert_eq!(decoded.reads.first_token(), Some(Nanos::from_millis(215)));
//! assert_eq!(decoded.token_source, TokenSource::Events);
//! assert_eq!(decoded.socket_reads, 4);
//! ```

mod chunk;
mod classify;
mod decoder;
mod error;
mod lines;
mod outcome;
mod response;
mod state;
mod tokens;

pub use decoder::{DEFAULT_MAX_EVENT_BYTES, SseDecoder, SseItem};
pub use error::SseError;
pub use response::{DecodeOptions, Decoded, Endpoint, ResponseDecoder, StreamEnd};
