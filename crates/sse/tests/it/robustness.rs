//! Streams that break the parsers of other clients, row by row of what was seen there.

use linktax_records::Outcome;
use linktax_sse::{Endpoint, SseError, StreamEnd};

use crate::wire::{DONE, FIN, Item, c, chat, decode, events, items, u};

fn messages(data: &[&str]) -> Vec<Item> {
    data.iter().map(|d| Item::message(d)).collect()
}

#[test]
fn a_keep_alive_alone_in_a_read_loses_nothing() {
    let parts: [&[u8]; 3] = [
        b": keep-alive\n\n",
        b"data: a\n\ndata: b\n\n",
        b"data: c\n\n",
    ];
    let mut expected = vec![Item::Comment];
    expected.extend(messages(&["a", "b", "c"]));
    assert_eq!(events(parts), expected);
}

#[test]
fn a_keep_alive_between_events_and_inside_one_loses_nothing() {
    let parts: [&[u8]; 1] = [b"data: a\n\n: ka\n\ndata: b\n: ka\ndata: c\n\n"];
    assert_eq!(
        events(parts),
        [
            Item::message("a"),
            Item::Comment,
            Item::Comment,
            Item::message("b\nc")
        ]
    );
}

#[test]
fn a_character_split_over_reads_stays_whole() {
    let bytes = "data: 你好\n\n".as_bytes();
    for at in 0..bytes.len() {
        let (a, b) = bytes.split_at(at);
        assert_eq!(events([a, b]), messages(&["你好"]));
    }
}

#[test]
fn a_read_that_ends_at_a_space_keeps_the_space() {
    let parts: [&[u8]; 2] = [b"data: x ", b"y\n\n"];
    assert_eq!(events(parts), messages(&["x y"]));
    let parts: [&[u8]; 2] = [b"data: x", b" y\n\n"];
    assert_eq!(events(parts), messages(&["x y"]));
}

#[test]
fn line_ends_may_be_lf_crlf_cr_or_mixed() {
    for eol in ["\n", "\r\n", "\r"] {
        let stream = "data: a~data: b~~: ka~event: x~data: c~~".replace('~', eol);
        let expected = [
            Item::message("a\nb"),
            Item::Comment,
            Item::Event("x".to_owned(), "c".to_owned()),
        ];
        assert_eq!(events([stream.as_bytes()]), expected, "{eol:?}");
        assert_eq!(events(stream.as_bytes().chunks(1)), expected, "{eol:?}");
    }
    let parts: [&[u8]; 1] = [b"data: a\r\n\ndata: b\r\rdata: c\n\r\n"];
    assert_eq!(events(parts), messages(&["a", "b", "c"]));
}

#[test]
fn a_bare_cr_at_the_end_of_a_read_completes_the_event_at_once() {
    let mut decoder = linktax_sse::SseDecoder::default();
    let mut seen = 0;
    decoder.push(b"data: a\r\r", &mut |_| seen += 1).unwrap();
    assert_eq!(seen, 1);
    // The LF that comes later belongs to that CR: it is no second blank line and ends nothing.
    decoder.push(b"", &mut |_| panic!("nothing came")).unwrap();
    decoder
        .push(b"\ndata: b\n", &mut |_| panic!("nothing is complete"))
        .unwrap();
    decoder.push(b"\n", &mut |_| seen += 1).unwrap();
    assert_eq!(seen, 2);
}

#[test]
fn the_space_after_the_colon_is_optional_and_only_one_is_dropped() {
    let parts: [&[u8]; 1] = [b"data:a\n\ndata:  b\n\ndata\n\n"];
    assert_eq!(events(parts), messages(&["a", " b", ""]));
}

#[test]
fn id_retry_and_unknown_fields_are_harmless() {
    let parts: [&[u8]; 1] =
        [b"id: 7\nretry: 1\nevent: message\ndata: a\nfoo: bar\nretry: no\n\nid\n\nretry: 5\n\ndata: b\n\n"];
    assert_eq!(events(parts), messages(&["a", "b"]));
}

#[test]
fn a_leading_bom_is_dropped_however_it_is_split() {
    let bytes = "\u{feff}data: a\n\ndata: b\n\n".as_bytes();
    for at in 0..=bytes.len() {
        let (a, b) = bytes.split_at(at);
        assert_eq!(events([a, b]), messages(&["a", "b"]), "split at {at}");
    }
    assert_eq!(events(bytes.chunks(1)), messages(&["a", "b"]));
}

#[test]
fn only_a_leading_bom_is_dropped() {
    // A second BOM belongs to the name of the field, which is then unknown.
    let bytes = "\u{feff}\u{feff}data: a\n\n\u{feff}data: b\ndata: c\n\ndata: \u{feff}d\n\n";
    let expected = messages(&["c", "\u{feff}d"]);
    assert_eq!(events([bytes.as_bytes()]), expected);
    assert_eq!(events(bytes.as_bytes().chunks(1)), expected);
    // Half a BOM is no BOM.
    let parts: [&[u8]; 3] = [b"\xef", b"\xbb", b"data: a\n\ndata: b\n\n"];
    assert_eq!(events(parts), messages(&["b"]));
    assert_eq!(items(99, [b"\xef\xbb".as_slice()]).1, b"\xef\xbb");
}

#[test]
fn invalid_utf8_spoils_its_own_characters_only() {
    let bytes = b"data: a\xffb\n\ndata: \xe4\xbd\n\ndata: ok\n\n";
    let expected = messages(&["a\u{fffd}b", "\u{fffd}", "ok"]);
    assert_eq!(events([bytes.as_slice()]), expected);
    assert_eq!(events(bytes.chunks(1)), expected);
}

#[test]
fn an_unterminated_last_event_is_dropped_and_reported() {
    let (seen, left, error) = items(99, [b"data: a\n\ndata: b\r\n: ka\ndata: c".as_slice()]);
    assert_eq!(
        (seen, error),
        (vec![Item::message("a"), Item::Comment], None)
    );
    assert_eq!(left, b"data: b\ndata: c");
    assert_eq!(items(99, [b"data: a\n\n: ka".as_slice()]).1, b": ka");
}

#[test]
fn an_event_over_the_limit_ends_the_stream_whatever_the_split() {
    let stream = b"data: ok\n\ndata: 1234567\ndata: 890\n\ndata: late\n\n";
    let too_large = Some(SseError::EventTooLarge { limit: 20 });
    for size in [1, 2, 3, 7, 64] {
        let (seen, left, error) = items(20, stream.chunks(size));
        assert_eq!(
            (seen, left, error),
            (messages(&["ok"]), vec![], too_large.clone())
        );
    }
    // Exactly the limit fits: two lines, one line end.
    assert_eq!(items(23, stream.chunks(5)).2, None);
    assert!(items(22, stream.chunks(5)).2.is_some());
    let line = b"data: 1234567\n\n";
    assert_eq!(items(13, [line.as_slice()]).2, None);
    assert!(items(12, [line.as_slice()]).2.is_some());
    assert!(items(12, line.chunks(1)).2.is_some());
    // A comment is not kept, but it must not grow without end either.
    assert!(items(12, [b": a long comment\n".as_slice()]).2.is_some());
    assert_eq!(items(12, [b":23456789\n".repeat(9).as_slice()]).2, None);
}

#[test]
fn a_16_mb_event_comes_through_4_kib_reads() {
    let text = "y".repeat(16 << 20);
    let stream = format!("data: {text}\n\ndata: b\n\n");
    let seen = events(stream.as_bytes().chunks(4096));
    assert!(seen == messages(&[&text, "b"]));
}

#[test]
fn a_1_mb_event_comes_through_1_byte_reads() {
    let text = "é".repeat(1 << 19);
    let stream = format!("data: {text}\r\n\r\n");
    assert!(events(stream.as_bytes().chunks(1)) == messages(&[&text]));
}

#[test]
fn an_event_of_many_lines_is_joined() {
    // Quadratic work in the number of lines would make this one take minutes.
    let stream = format!("{}\n", "data: x\n".repeat(1 << 18));
    let expected = ["x"; 1 << 18].join("\n");
    assert!(events([stream.as_bytes()]) == messages(&[&expected]));
}

#[test]
fn error_frames_make_a_failure_in_every_shape() {
    for frame in [
        r#"data: {"error":{"message":"boom","code":500}}"#,
        r#"data: {"error":"boom"}"#,
        r#"data: {"object":"error","message":"boom","type":"x","code":400}"#,
        "event: error\ndata: boom",
        "event: error\ndata: {\"message\":\"boom\"}",
        r#"data: {"choices":[],"error":{"message":"boom"}}"#,
    ] {
        let d = chat(&[
            (1, &c("a")),
            (2, &format!("{frame}\n\n{FIN}{}{DONE}", u(1))),
        ]);
        assert_eq!(d.outcome, Outcome::ErrorInStream, "{frame}");
        assert_eq!(d.failure.unwrap().message, "boom", "{frame}");
        assert_eq!(d.reads.counted_tokens(), 1);
    }
    let fine = r#"data: {"error":null,"choices":[{"delta":{"content":"a"}}]}"#;
    assert_eq!(
        chat(&[(1, &format!("{fine}\n\n{DONE}"))]).outcome,
        Outcome::Completed
    );
}

#[test]
fn a_clean_end_without_finish_reason_or_done_is_truncated() {
    assert_eq!(chat(&[(1, &c("a"))]).outcome, Outcome::Truncated);
    assert_eq!(chat(&[]).outcome, Outcome::Truncated);
    // A usage does not make it complete.
    assert_eq!(
        chat(&[(1, &c("a")), (2, &u(1))]).outcome,
        Outcome::Truncated
    );
    // Neither does a marker that the end cut off.
    let d = chat(&[(1, &c("a")), (2, "data: [DONE]\n")]);
    assert_eq!((d.outcome, d.done_marker), (Outcome::Truncated, false));
    assert!(
        d.failure
            .unwrap()
            .message
            .contains("13 bytes into an event")
    );
}

#[test]
fn a_reset_after_a_token_is_a_reset() {
    let end = StreamEnd::Broken("reset".to_owned());
    let d = decode(Endpoint::Chat, &[(1, &c("a"))], end, None);
    assert_eq!((d.outcome, d.reads.counted_tokens()), (Outcome::Reset, 1));
}

#[test]
fn a_body_that_is_no_event_stream_is_never_a_success() {
    let json = r#"{"choices":[{"text":"hi","finish_reason":"stop"}]}"#;
    let d = chat(&[(1, json)]);
    assert_eq!(d.outcome, Outcome::Malformed);
    assert_eq!(d.failure.unwrap().body.as_deref(), Some(json));
    assert_eq!(
        chat(&[(1, "<html>\n<body>oops</body>\n</html>\n")]).outcome,
        Outcome::Malformed
    );
    let d = chat(&[(
        1,
        "{\n  \"error\": {\n    \"message\": \"no such model\"\n  }\n}\n",
    )]);
    assert_eq!(d.outcome, Outcome::ErrorInStream);
    assert_eq!(d.failure.unwrap().message, "no such model");
    // The start of an event stream is one, even if nothing came of it.
    assert_eq!(chat(&[(1, "data: {\"choi")]).outcome, Outcome::Truncated);
}
