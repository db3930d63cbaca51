//! Streams and reads as the tests write them, and the events as they come out.

use linktax_records::{Nanos, Reads};
use linktax_sse::{
    DecodeOptions, Decoded, Endpoint, ResponseDecoder, SseDecoder, SseError, SseItem, StreamEnd,
};

pub(crate) const DONE: &str = "data: [DONE]\n\n";
/// The role-only chunk that opens a chat stream.
pub(crate) const R: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null},\"finish_reason\":null}]}\n\n";
pub(crate) const FIN: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n";

/// A chat chunk with one field in its delta.
pub(crate) fn delta(field: &str, text: &str) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"{field}\":\"{text}\"}},\"finish_reason\":null}}]}}\n\n"
    )
}

/// A chat chunk with answer text.
pub(crate) fn c(text: &str) -> String {
    delta("content", text)
}

/// The final usage chunk.
pub(crate) fn u(n: u64) -> String {
    let total = 10 + n;
    format!(
        "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":10,\"completion_tokens\":{n},\"total_tokens\":{total}}}}}\n\n"
    )
}

/// A completions chunk with text.
pub(crate) fn t(text: &str) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":0,\"text\":\"{text}\",\"finish_reason\":null}}]}}\n\n"
    )
}

/// Options with the text kept.
pub(crate) fn options(endpoint: Endpoint) -> DecodeOptions {
    DecodeOptions {
        keep_text: true,
        ..DecodeOptions::new(endpoint)
    }
}

/// Decodes socket reads of `(ms, bytes)`; reads at one time are still reads of their own.
pub(crate) fn decode(
    endpoint: Endpoint,
    reads: &[(u64, &str)],
    end: StreamEnd,
    expected: Option<u64>,
) -> Decoded {
    let mut response = ResponseDecoder::new(options(endpoint));
    for (seq, (ms, bytes)) in reads.iter().enumerate() {
        response.read(Nanos::from_millis(*ms), seq as u64, bytes.as_bytes());
    }
    response.finish(end, expected)
}

/// Decodes a chat stream that HTTP ended properly.
pub(crate) fn chat(reads: &[(u64, &str)]) -> Decoded {
    decode(Endpoint::Chat, reads, StreamEnd::Clean, None)
}

/// Milliseconds and tokens of the reads with tokens.
pub(crate) fn token_reads(reads: &Reads) -> Vec<(u64, u32)> {
    reads
        .token_reads()
        .map(|(t, tokens)| (t.as_nanos() / 1_000_000, tokens))
        .collect()
}

/// Gaps between the reads with tokens, in ms.
pub(crate) fn gaps(reads: &Reads) -> Vec<u64> {
    let times = token_reads(reads);
    times.windows(2).map(|w| w[1].0 - w[0].0).collect()
}

pub(crate) fn ms(t: Option<Nanos>) -> Option<u64> {
    t.map(|t| t.as_nanos() / 1_000_000)
}

/// An item that outlives its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Event(String, String),
    Comment,
}

impl Item {
    /// An event of the default type.
    pub(crate) fn message(data: &str) -> Item {
        Item::Event("message".to_owned(), data.to_owned())
    }
}

/// All items of a stream, what was left over, and how it failed if it did.
pub(crate) fn items<'a>(
    max_event_bytes: usize,
    parts: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Item>, Vec<u8>, Option<SseError>) {
    let mut decoder = SseDecoder::new(max_event_bytes);
    let mut seen = Vec::new();
    let mut error = None;
    for part in parts {
        let pushed = decoder.push(part, &mut |item: SseItem<'_>| {
            seen.push(match item {
                SseItem::Event { event, data } => Item::Event(event.to_owned(), data.to_owned()),
                SseItem::Comment => Item::Comment,
            });
        });
        error = pushed.err();
    }
    (seen, decoder.finish(), error)
}

/// All items of a stream that must not fail.
pub(crate) fn events<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<Item> {
    let (seen, _, error) = items(usize::MAX, parts);
    assert_eq!(error, None);
    seen
}
