//! No bytes make the decoders panic, and no split of them changes what comes out.
//!
//! `cargo +nightly fuzz run splits` in `crates/sse`. The first byte of the input chooses endpoint, limit and
//! end, the second the seed of the split, the rest is the stream.

#![no_main]

use libfuzzer_sys::fuzz_target;
use linktax_records::Nanos;
use linktax_sse::{
    DecodeOptions, Decoded, Endpoint, ResponseDecoder, SseDecoder, SseItem, StreamEnd,
};

type Items = (Vec<Option<(String, String)>>, Vec<u8>, bool);

fn items(limit: usize, parts: &[&[u8]]) -> Items {
    let mut decoder = SseDecoder::new(limit);
    let mut seen = Vec::new();
    let mut failed = false;
    for part in parts {
        failed = decoder
            .push(part, &mut |item: SseItem<'_>| {
                seen.push(match item {
                    SseItem::Event { event, data } => Some((event.to_owned(), data.to_owned())),
                    SseItem::Comment => None,
                });
            })
            .is_err();
    }
    (seen, decoder.finish(), failed)
}

fn response(options: DecodeOptions, end: &StreamEnd, parts: &[&[u8]]) -> Decoded {
    let mut decoder = ResponseDecoder::new(options);
    decoder.set_origin(Nanos::from_secs(1));
    for part in parts {
        // One socket read: the frames in it must not matter.
        decoder.read(Nanos::from_millis(1), 0, part);
    }
    decoder.finish(end.clone(), Some(3))
}

/// Parts of pseudo-random length, empty ones included.
fn split(bytes: &[u8], seed: u8) -> Vec<&[u8]> {
    let mut state = u32::from(seed).wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut rest = bytes;
    // A stream without bytes is still one read.
    let mut parts = vec![&bytes[..0]];
    while !rest.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let len = ((state >> 24) as usize % (1 + usize::from(seed % 40))).min(rest.len());
        // A seed that gives only empty parts must still end.
        let (part, after) = rest.split_at(if seed % 40 == 0 { 1 } else { len });
        parts.push(part);
        rest = after;
    }
    parts
}

fuzz_target!(|input: &[u8]| {
    let [mode, seed, bytes @ ..] = input else {
        return;
    };
    let limit = match mode & 3 {
        0 => usize::from(mode >> 2),
        _ => usize::MAX,
    };
    let parts = split(bytes, *seed);
    assert_eq!(items(limit, &parts), items(limit, &[bytes]));

    let options = DecodeOptions {
        keep_text: true,
        send_stamps: true,
        max_event_bytes: limit,
        ..DecodeOptions::new(if mode & 4 == 0 {
            Endpoint::Chat
        } else {
            Endpoint::Completions
        })
    };
    let end = match mode & 8 {
        0 => StreamEnd::Clean,
        _ => StreamEnd::Broken("reset".to_owned()),
    };
    assert_eq!(
        response(options, &end, &parts),
        response(options, &end, &[bytes])
    );
});
