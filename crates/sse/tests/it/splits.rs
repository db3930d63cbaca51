//! The law of the decoder: the bytes decide, not how they were split.

use linktax_records::Nanos;
use linktax_sse::{Decoded, Endpoint, ResponseDecoder, StreamEnd};
use proptest::prelude::*;

use crate::wire::{Item, events, items, options};

/// Everything at once: BOM, all line ends, comments, multi-line data, split characters, invalid bytes.
const NASTY: &[u8] = b"\xef\xbb\xbf: hi\r\ndata: a\r\n\r\ndata:b\rdata:  c\r\rid: 1\nretry: 9\n\nevent: x\ndata: \xe4\xbd\xa0\xe5\xa5\xbd\n\n\n\r\ndata\n\n:\n\xef\xbb\xbfdata: no\n\ndata: \xff\xe4\n\ndata: \xf0\x9f\x9a\x80 end\r\n\ndata: lost";

fn nasty_items() -> Vec<Item> {
    vec![
        Item::Comment,
        Item::message("a"),
        Item::message("b\n c"),
        Item::Event("x".to_owned(), "你好".to_owned()),
        Item::message(""),
        Item::Comment,
        Item::message("\u{fffd}\u{fffd}"),
        Item::message("🚀 end"),
    ]
}

/// Cuts `bytes` at the given places, whatever order they are in.
pub(crate) fn cut<'a>(bytes: &'a [u8], places: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut at: Vec<usize> = places.iter().map(|i| i.index(bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2).map(|w| &bytes[w[0]..w[1]]).collect()
}

/// Decodes body frames that all came with one socket read, so that nothing may depend on the frames.
pub(crate) fn decode_frames(endpoint: Endpoint, frames: &[&[u8]], end: StreamEnd) -> Decoded {
    let mut response = ResponseDecoder::new(options(endpoint));
    for frame in frames {
        response.read(Nanos::from_millis(1), 0, frame);
    }
    response.finish(end, None)
}

#[test]
fn a_nasty_stream_is_the_same_at_every_byte_offset() {
    assert_eq!(
        items(usize::MAX, [NASTY]),
        (nasty_items(), b"data: lost".to_vec(), None)
    );
    for i in 0..=NASTY.len() {
        for j in i..=NASTY.len() {
            let parts = [&NASTY[..i], &NASTY[i..j], &NASTY[j..]];
            assert_eq!(events(parts), nasty_items(), "cut at {i} and {j}");
        }
    }
}

#[test]
fn a_nasty_stream_is_the_same_in_small_reads() {
    for size in [1, 3, 7, 64] {
        assert_eq!(events(NASTY.chunks(size)), nasty_items(), "{size}");
    }
}

/// One event as it should come out, and its lines as they go in.
fn event() -> impl Strategy<Value = (Vec<Item>, Vec<String>)> {
    let text = "[ -~é你🚀:]{0,12}";
    let data = prop::collection::vec((text, any::<bool>()), 1..4);
    let name = prop::option::of("[a-z]{1,5}");
    let extra = prop::sample::select(vec!["", "id: 4", "retry: 10", "foo", ": ka", ":"]);
    (data, name, extra).prop_map(|(data, name, extra)| {
        let mut items = Vec::new();
        let mut lines = Vec::new();
        if !extra.is_empty() {
            lines.push(extra.to_owned());
            items.extend(extra.starts_with(':').then_some(Item::Comment));
        }
        lines.extend(name.as_ref().map(|n| format!("event: {n}")));
        let mut values = Vec::new();
        for (text, spaced) in data {
            // Without the space, a leading space of the text would be taken for it.
            let spaced = spaced || text.starts_with(' ');
            lines.push(format!("data:{}{text}", if spaced { " " } else { "" }));
            values.push(text);
        }
        lines.push(String::new());
        items.push(Item::Event(
            name.unwrap_or_else(|| "message".to_owned()),
            values.join("\n"),
        ));
        (items, lines)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn events_survive_any_framing(
        stream in prop::collection::vec(event(), 0..6),
        eols in prop::collection::vec(prop::sample::select(vec!["\n", "\r\n", "\r"]), 1..8),
        bom in any::<bool>(),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let mut eols = eols.iter().cycle();
        let mut bytes = if bom { "\u{feff}".to_owned() } else { String::new() };
        let mut expected = Vec::new();
        for (items, lines) in stream {
            expected.extend(items);
            for line in lines {
                // A CR followed by a blank line's LF is one line end, so an LF cannot follow a CR here.
                let mut eol = *eols.next().unwrap();
                if eol == "\n" && line.is_empty() && bytes.ends_with('\r') {
                    eol = "\r\n";
                }
                bytes.push_str(&line);
                bytes.push_str(eol);
            }
        }
        let parts = cut(bytes.as_bytes(), &places);
        prop_assert_eq!(events(parts), expected);
    }

    #[test]
    fn any_bytes_give_the_same_items_for_every_split(
        bytes in prop::collection::vec(
            prop_oneof![
                4 => Just(b"data: ".to_vec()), 4 => Just(b"\n".to_vec()), 2 => Just(b"\r".to_vec()),
                1 => Just(b":".to_vec()), 1 => Just(b"\xef\xbb\xbf".to_vec()),
                2 => prop::collection::vec(any::<u8>(), 0..6),
            ],
            0..40,
        ),
        places in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        limit in prop_oneof![Just(usize::MAX), 0..30_usize],
    ) {
        let bytes = bytes.concat();
        let whole = items(limit, [bytes.as_slice()]);
        prop_assert_eq!(items(limit, cut(&bytes, &places)), whole.clone());
        prop_assert_eq!(items(limit, bytes.chunks(1)), whole);
    }
}
