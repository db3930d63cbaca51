//! Public bug reports of benchmark clients, as far as they concern the reading of a stream.

use linktax_records::{EventClass, Outcome, TokenSource};
use linktax_sse::{Endpoint, StreamEnd};

use crate::wire::{DONE, FIN, R, c, chat, decode, delta, gaps, ms, t, token_reads, u};

#[test]
fn fr_01_the_role_chunk_is_not_the_first_token() {
    for role in [
        R,
        &R.replace("null,\"fin", "\"\",\"fin")
            .replace(":null}", ":\"\"}"),
    ] {
        let tail = format!("{}{FIN}{}{DONE}", c(" there"), u(2));
        let d = chat(&[(5, role), (214, &c("Hi")), (234, &tail)]);
        assert_eq!(d.outcome, Outcome::Completed);
        assert_eq!(
            d.reads.class,
            [EventClass::Role, EventClass::Content, EventClass::Content]
        );
        assert_eq!(token_reads(&d.reads), [(214, 1), (234, 1)]);
        assert_eq!(ms(d.reads.first_token()), Some(214));
        assert_eq!(gaps(&d.reads), [20]);
        assert_eq!(d.text.as_deref(), Some("Hi there"));
        assert_eq!(d.usage.unwrap().completion_tokens, 2);
        assert_eq!(d.reads.events, [1, 1, 4]);
    }
}

#[test]
fn fr_02_a_chunk_may_hold_several_tokens() {
    let last = format!("{}{FIN}{}{DONE}", c("jklm"), u(13));
    let d = chat(&[
        (200, &c("a")),
        (240, &c("bcde")),
        (280, &c("fghi")),
        (320, &last),
    ]);
    assert_eq!(d.outcome, Outcome::Completed);
    // Only the usage knows: the reads are a count of chunks, and said to be one.
    assert_eq!(d.usage.unwrap().completion_tokens, 13);
    assert_eq!(d.token_source, TokenSource::Events);
    assert_eq!(
        token_reads(&d.reads),
        [(200, 1), (240, 1), (280, 1), (320, 1)]
    );
    assert_eq!(gaps(&d.reads), [40, 40, 40]);
}

#[test]
fn fr_03_a_running_usage_gives_the_tokens_of_the_first_chunk() {
    let chunk = |n: u64| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"x\"}}}}],\"usage\":{{\"prompt_tokens\":10,\"completion_tokens\":{n}}}}}\n\n"
        )
    };
    let mut reads = vec![(100, chunk(5))];
    reads.extend((6..=20).map(|n| (100 + (n - 5) * 5, chunk(n))));
    reads.push((176, format!("{FIN}{}{DONE}", u(20))));
    let reads: Vec<_> = reads.iter().map(|(at, s)| (*at, s.as_str())).collect();
    let d = chat(&reads);
    assert_eq!(d.outcome, Outcome::Completed);
    assert_eq!(d.token_source, TokenSource::ContinuousUsage);
    let tokens = token_reads(&d.reads);
    assert_eq!(tokens.len(), 16);
    assert_eq!(tokens[0], (100, 5));
    assert!(tokens[1..].iter().all(|&(_, n)| n == 1));
    assert_eq!(ms(d.reads.last_token()), Some(175));
    assert_eq!(d.reads.counted_tokens(), 20);
}

#[test]
fn fr_04_reads_do_not_line_up_with_events_or_characters() {
    let hello = "data: {\"choices\":[{\"delta\":{\"content\":\"你好\"}}]}\n\n".as_bytes();
    let cut = hello.iter().position(|&b| b == 0xe4).unwrap() + 1;
    let third = format!("{}{}data: [DO", c("!"), c("?"));
    let mut response = linktax_sse::ResponseDecoder::new(crate::wire::options(Endpoint::Chat));
    let reads: [(u64, &[u8]); 4] = [
        (100, &hello[..cut]),
        (120, &hello[cut..]),
        (140, third.as_bytes()),
        (141, b"NE]\n\n"),
    ];
    for (seq, (at, bytes)) in reads.into_iter().enumerate() {
        response.read(linktax_records::Nanos::from_millis(at), seq as u64, bytes);
        assert_eq!(response.first_token_seen(), seq > 0);
    }
    let d = response.finish(StreamEnd::Clean, None);
    assert_eq!(d.outcome, Outcome::Completed);
    assert_eq!(d.text.as_deref(), Some("你好!?"));
    assert!(d.done_marker);
    // The two events of one read are one entry, so the gap of zero is not an artefact in the gap list.
    assert_eq!(token_reads(&d.reads), [(120, 1), (140, 2)]);
    assert_eq!(d.reads.events, [1, 2, 1]);
    assert_eq!(d.reads.bytes[0] as usize, hello.len());
    assert_eq!(d.socket_reads, 4);

    let whole: Vec<u8> = reads.iter().flat_map(|r| r.1).copied().collect();
    for size in [1, 3, 7, 64] {
        let mut response = linktax_sse::ResponseDecoder::new(crate::wire::options(Endpoint::Chat));
        for (seq, part) in whole.chunks(size).enumerate() {
            response.read(
                linktax_records::Nanos::from_millis(seq as u64),
                seq as u64,
                part,
            );
        }
        let small = response.finish(StreamEnd::Clean, None);
        assert_eq!(small.text, d.text);
        assert_eq!(small.outcome, d.outcome);
        assert_eq!(small.reads.counted_tokens(), 3);
        assert_eq!(small.reads.events.iter().sum::<u32>(), 4);
        assert!(small.done_marker);
    }
}

#[test]
fn fr_05_an_error_inside_the_stream_is_a_failure() {
    let body = r#"{"error":{"message":"engine failed","type":"InternalServerError","code":500}}"#;
    let frame = format!("data: {body}\n\n{DONE}");
    let typed = format!("event: error\n{frame}");
    for frame in [&frame, &typed] {
        let d = chat(&[(100, &c("a")), (200, &c("b")), (200, frame)]);
        assert_eq!(d.outcome, Outcome::ErrorInStream);
        let failure = d.failure.unwrap();
        assert_eq!(failure.message, "engine failed");
        assert_eq!(failure.body.as_deref(), Some(body));
        // The partial tokens stay, and [DONE] does not make it a success.
        assert_eq!(d.reads.counted_tokens(), 2);
        assert_eq!(
            d.reads.class,
            [EventClass::Content, EventClass::Content, EventClass::Error]
        );
        assert!(d.done_marker);
    }
}

#[test]
fn fr_05_a_cut_stream_is_a_failure() {
    let partial = [(100, c("a")), (200, c("b"))];
    let reads: Vec<_> = partial.iter().map(|(at, s)| (*at, s.as_str())).collect();
    let reset = StreamEnd::Broken("connection reset by peer".to_owned());
    let d = decode(Endpoint::Chat, &reads, reset, Some(10));
    assert_eq!(d.outcome, Outcome::Reset);
    assert!(
        d.failure
            .unwrap()
            .message
            .contains("connection reset by peer")
    );
    assert_eq!(token_reads(&d.reads), [(100, 1), (200, 1)]);
    let d = decode(Endpoint::Chat, &reads, StreamEnd::Clean, Some(10));
    assert_eq!(d.outcome, Outcome::Truncated);
    assert_eq!(d.reads.counted_tokens(), 2);
}

#[test]
fn fr_06_reasoning_comes_under_two_names() {
    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,\"completion_tokens_details\":{\"reasoning_tokens\":3}}}\n\n";
    for field in ["reasoning_content", "reasoning"] {
        let think = delta(field, "hm");
        let last = format!("{}{FIN}{usage}{DONE}", c("b"));
        let d = chat(&[
            (150, &think),
            (170, &think),
            (190, &think),
            (210, &c("a")),
            (230, &last),
        ]);
        assert_eq!(d.outcome, Outcome::Completed);
        assert_eq!(ms(d.reads.first_token()), Some(150));
        assert_eq!(ms(d.reads.first_content()), Some(210));
        assert_eq!(ms(d.reads.last_token()), Some(230));
        assert_eq!(d.reads.counted_tokens(), 5);
        let usage = d.usage.unwrap();
        assert_eq!(
            (usage.completion_tokens, usage.reasoning_tokens),
            (5, Some(3))
        );
        assert_eq!(d.text.as_deref(), Some("hmhmhmab"));

        let last = format!("{think}{FIN}{}{DONE}", u(3));
        let d = chat(&[(150, &think), (170, &think), (190, &last)]);
        assert_eq!(d.outcome, Outcome::Completed);
        assert_eq!(ms(d.reads.first_token()), Some(150));
        assert_eq!(d.reads.first_content(), None);
        assert_eq!(d.reads.counted_tokens(), 3);
    }
    // A server that sends both names says the same thing twice.
    let both =
        "data: {\"choices\":[{\"delta\":{\"reasoning\":\"hm\",\"reasoning_content\":\"hm\"}}]}\n\n";
    let d = chat(&[(1, both), (2, DONE)]);
    assert_eq!(d.reads.counted_tokens(), 1);
    assert_eq!(d.text.as_deref(), Some("hm"));
}

#[test]
fn fr_07_usage_may_sit_anywhere() {
    let usage = r#""usage":{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17}"#;
    let fin = r#"data: {"choices":[{"index":0,"text":"","finish_reason":"length"}]}"#;
    let in_choices = r#"[{"index":0,"text":"","finish_reason":"length"}]"#;
    let tails = [
        (
            format!("{fin}\n\ndata: {{\"choices\":[],{usage}}}\n\n"),
            true,
        ),
        (
            format!("{fin}\n\ndata: {{\"choices\":null,{usage}}}\n\n"),
            true,
        ),
        (
            format!("data: {{\"choices\":{in_choices},{usage}}}\n\n"),
            true,
        ),
        (format!("{fin}\n\ndata: {{{usage}}}\n\n"), true),
        (
            format!("{fin}\n\ndata: {{\"choices\":[],\"usage\":null}}\n\n"),
            false,
        ),
        (format!("{fin}\n\n"), false),
    ];
    for (tail, has_usage) in tails {
        let tail = format!("{tail}{DONE}");
        let texts: Vec<_> = (0..7).map(|i| (100 + 20 * i, t("x"))).collect();
        let mut reads: Vec<_> = texts.iter().map(|(at, s)| (*at, s.as_str())).collect();
        reads.push((240, &tail));
        let d = decode(Endpoint::Completions, &reads, StreamEnd::Clean, None);
        assert_eq!(d.outcome, Outcome::Completed, "{tail}");
        assert_eq!(d.token_source, TokenSource::Events);
        assert_eq!(d.usage.map(|u| u.completion_tokens), has_usage.then_some(7));
        assert_eq!(d.reads.counted_tokens(), 7);
        assert_eq!(ms(d.reads.first_token()), Some(100));
        assert_eq!(ms(d.reads.last_token()), Some(220));
        let class = if has_usage {
            EventClass::Usage
        } else {
            EventClass::Done
        };
        assert_eq!(*d.reads.class.last().unwrap(), class);
        assert_eq!(d.finish_reason.as_deref(), Some("length"));
        // 256 were asked for: the usage proves it short, counted chunks prove nothing.
        let d = decode(Endpoint::Completions, &reads, StreamEnd::Clean, Some(256));
        let expected = if has_usage {
            Outcome::ShortOutput
        } else {
            Outcome::Completed
        };
        assert_eq!(d.outcome, expected);
    }
}

#[test]
fn fr_08_one_token_is_a_complete_answer() {
    let only = format!("{}{FIN}{}{DONE}", c("x"), u(1));
    let d = decode(Endpoint::Chat, &[(100, &only)], StreamEnd::Clean, Some(1));
    assert_eq!(d.outcome, Outcome::Completed);
    assert_eq!(d.reads.first_token(), d.reads.last_token());
    assert_eq!(gaps(&d.reads), [] as [u64; 0]);
}
