//! Classes, token counts, outcomes and the grouping of reads.

use linktax_records::{EventClass, Nanos, Outcome, TokenSource};
use linktax_sse::{DecodeOptions, Decoded, Endpoint, ResponseDecoder, StreamEnd};

use crate::wire::{DONE, FIN, R, c, chat, decode, t, token_reads, u};

/// One chat chunk: the insides of its only choice, and what stands beside `choices`.
fn chunk(choice: &str, beside: &str) -> String {
    format!("data: {{\"choices\":[{{{choice}}}]{beside}}}\n\n")
}

fn chat_of(parts: &[&str]) -> Decoded {
    let reads: Vec<_> = parts
        .iter()
        .enumerate()
        .map(|(i, s)| (i as u64, *s))
        .collect();
    chat(&reads)
}

#[test]
fn classes_of_chat_chunks() {
    use EventClass::*;
    let tool = r#""delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}"#;
    for (choice, class, tokens) in [
        (r#""delta":{"role":"assistant"}"#, Role, 0),
        (r#""delta":{"role":"assistant","content":""}"#, Role, 0),
        (r#""delta":{"role":"assistant","content":"x"}"#, Content, 1),
        (r#""delta":{"content":"x"}"#, Content, 1),
        (r#""delta":{"content":""}"#, Empty, 0),
        (r#""delta":{"content":null,"reasoning":"x"}"#, Reasoning, 1),
        (
            r#""delta":{"reasoning":null,"reasoning_content":"x"}"#,
            Reasoning,
            1,
        ),
        (r#""delta":{"content":"x","reasoning":"y"}"#, Content, 1),
        (r#""delta":{"refusal":"no"}"#, Content, 1),
        (r#""delta":{"function_call":{"name":"f"}}"#, Tool, 1),
        (r#""delta":{"tool_calls":[]}"#, Empty, 0),
        (r#""delta":null"#, Empty, 0),
        (r#""delta":{},"finish_reason":"stop""#, Empty, 0),
        (r#""text":"x""#, Empty, 0),
        (tool, Tool, 1),
    ] {
        let d = chat_of(&[&chunk(choice, ""), DONE]);
        assert_eq!(
            (d.reads.class[0], d.reads.tokens[0]),
            (class, tokens),
            "{choice}"
        );
        assert_eq!(d.reads.class[1], Done);
    }
    let d = chat_of(&[
        "data: {}\n\n",
        "data: {\"choices\":[]}\n\n",
        &u(3),
        "data:\n\n",
        DONE,
    ]);
    assert_eq!(d.reads.class, [Empty, Empty, Usage, Empty, Done]);
    // A role beside later text says nothing new.
    let d = chat_of(&[R, &c("x"), R, DONE]);
    assert_eq!(d.reads.class, [Role, Content, Empty, Done]);
}

#[test]
fn completions_read_text_and_nothing_else() {
    let delta = c("x");
    let d = decode(
        Endpoint::Completions,
        &[(1, &t("a")), (2, &t("")), (3, &delta), (4, DONE)],
        StreamEnd::Clean,
        None,
    );
    assert_eq!(d.reads.tokens, [1, 0, 0, 0]);
    assert_eq!(d.text.as_deref(), Some("a"));
}

#[test]
fn the_most_telling_class_of_a_read_wins() {
    let d = chat_of(&[&format!("{R}{}", c("x")), &format!("{FIN}{}{DONE}", u(1))]);
    assert_eq!(d.reads.class, [EventClass::Content, EventClass::Usage]);
    assert_eq!(d.reads.events, [2, 3]);
}

#[test]
fn a_running_usage_finds_tokens_without_text() {
    let usage = |n: u64| format!(",\"usage\":{{\"prompt_tokens\":4,\"completion_tokens\":{n}}}");
    let d = chat_of(&[
        &chunk(r#""delta":{"role":"assistant","content":""}"#, &usage(0)),
        // Half a character: a token, but no text yet.
        &chunk(r#""delta":{"content":""}"#, &usage(1)),
        &chunk(r#""delta":{"content":"é"}"#, &usage(2)),
        // Text held back and sent later costs no token.
        &chunk(r#""delta":{"content":"x"}"#, &usage(2)),
        &chunk(r#""delta":{"content":"abc"}"#, &usage(5)),
        // The end-of-sequence token.
        &chunk(r#""delta":{},"finish_reason":"stop""#, &usage(6)),
        &u(6),
        DONE,
    ]);
    assert_eq!(d.token_source, TokenSource::ContinuousUsage);
    assert_eq!(d.reads.tokens, [0, 1, 1, 0, 3, 1, 0, 0]);
    assert_eq!(
        d.reads.class[..3],
        [EventClass::Role, EventClass::Empty, EventClass::Content]
    );
    assert_eq!(d.outcome, Outcome::Completed);
}

#[test]
fn a_final_usage_never_counts_as_a_token_read() {
    let usage = ",\"usage\":{\"completion_tokens\":1}";
    let d = chat_of(&[
        &chunk(r#""delta":{"content":"a"}"#, usage),
        FIN,
        &u(9),
        DONE,
    ]);
    assert_eq!(d.reads.tokens, [1, 0, 0, 0]);
    assert_eq!(d.usage.unwrap().completion_tokens, 9);
}

#[test]
fn a_usage_of_zero_on_every_chunk_is_no_running_usage() {
    let zero = ",\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":0}";
    let text = chunk(r#""delta":{"content":"a"}"#, zero);
    let d = chat_of(&[&text, &text, &u(2), DONE]);
    assert_eq!(d.token_source, TokenSource::Events);
    assert_eq!(d.reads.tokens, [1, 1, 0, 0]);
}

#[test]
fn token_ids_come_before_logprobs_and_logprobs_before_events() {
    let ids = r#""token_ids":[5,6,7]"#;
    let logprobs = r#""logprobs":{"content":[{"token":"a"},{"token":"b"}]}"#;
    let text = r#""delta":{"content":"ab"}"#;
    let d = chat_of(&[&chunk(&format!("{text},{ids},{logprobs}"), ""), DONE]);
    assert_eq!(
        (d.token_source, d.reads.tokens[0]),
        (TokenSource::TokenIds, 3)
    );
    let d = chat_of(&[
        &chunk(&format!("{text},\"token_ids\":null,{logprobs}"), ""),
        DONE,
    ]);
    assert_eq!(
        (d.token_source, d.reads.tokens[0]),
        (TokenSource::Logprobs, 2)
    );
    let d = decode(
        Endpoint::Completions,
        &[
            (
                1,
                &chunk(
                    r#""text":"ab","logprobs":{"tokens":["a","b"],"token_logprobs":[null,-1]}"#,
                    "",
                ),
            ),
            (2, &chunk(r#""text":"","logprobs":{"tokens":["c"]}"#, "")),
            (3, DONE),
        ],
        StreamEnd::Clean,
        None,
    );
    assert_eq!(d.token_source, TokenSource::Logprobs);
    assert_eq!(d.reads.tokens, [2, 1, 0]);
    let d = chat_of(&[&chunk(&format!("{text},\"logprobs\":null"), ""), DONE]);
    assert_eq!(
        (d.token_source, d.reads.tokens[0]),
        (TokenSource::Events, 1)
    );
}

#[test]
fn the_source_is_kept_and_a_gap_in_it_is_admitted() {
    let ids = chunk(r#""delta":{"content":"a"},"token_ids":[1,2]"#, "");
    let later_usage = chunk(
        r#""delta":{"content":"b"},"token_ids":[3]"#,
        ",\"usage\":{\"completion_tokens\":3}",
    );
    let d = chat_of(&[&ids, &later_usage, DONE]);
    assert_eq!(d.token_source, TokenSource::TokenIds);
    assert_eq!(d.reads.tokens, [2, 1, 0]);
    // Text without ids is at least one token; the counts are not exact any more.
    let d = chat_of(&[&ids, &c("b"), DONE]);
    assert_eq!(d.token_source, TokenSource::Events);
    assert_eq!(d.reads.tokens, [2, 1, 0]);
    // A running usage that skips a chunk does not count its token twice.
    let running = |n: u64| {
        chunk(
            r#""delta":{"content":"x"}"#,
            &format!(",\"usage\":{{\"completion_tokens\":{n}}}"),
        )
    };
    let d = chat_of(&[&running(1), &c("b"), &running(3), DONE]);
    assert_eq!(d.reads.tokens, [1, 1, 1, 0]);
    assert_eq!(d.token_source, TokenSource::Events);
}

#[test]
fn a_running_usage_counts_each_choice_by_itself() {
    let of = |index: u32, n: u64| {
        chunk(
            &format!("\"index\":{index},\"delta\":{{\"content\":\"{index}\"}}"),
            &format!(",\"usage\":{{\"completion_tokens\":{n}}}"),
        )
    };
    let d = chat_of(&[&of(0, 1), &of(1, 1), &of(0, 2), &of(1, 3), &u(5), DONE]);
    assert_eq!(d.reads.tokens, [1, 1, 1, 2, 0, 0]);
    assert_eq!(d.text.as_deref(), Some("00"));
    let two = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}},{\"index\":4294967295,\"delta\":{\"content\":\"b\"}}]}\n\n";
    assert_eq!(chat_of(&[two, DONE]).reads.tokens, [2, 0]);
}

#[test]
fn absurd_counts_saturate() {
    let huge = format!(",\"usage\":{{\"completion_tokens\":{}}}", u64::MAX);
    let d = chat_of(&[&chunk(r#""delta":{"content":"a"}"#, &huge), DONE]);
    assert_eq!(d.reads.tokens, [u32::MAX, 0]);
    let d = chat_of(&[
        &chunk(
            r#""delta":{"content":"a"}"#,
            ",\"usage\":{\"completion_tokens\":5}",
        ),
        &chunk(
            r#""delta":{"content":"a"}"#,
            ",\"usage\":{\"completion_tokens\":3}",
        ),
        DONE,
    ]);
    assert_eq!(d.reads.tokens, [5, 0, 0]);
}

#[test]
fn outcomes_in_their_order() {
    let broken = || StreamEnd::Broken("reset".to_owned());
    let error = "data: {\"error\":\"boom\"}\n\n";
    let junk = "data: {\"choices\":[\n\n";
    let outcome = |parts: &[&str], end, expected| {
        let reads: Vec<_> = parts.iter().map(|s| (1, *s)).collect();
        let d = decode(Endpoint::Chat, &reads, end, expected);
        assert_eq!(d.failure.is_some(), d.outcome.is_failure());
        d.outcome
    };
    let a = c("a");
    use StreamEnd::Clean;
    assert_eq!(
        outcome(&[junk, error], broken(), None),
        Outcome::ErrorInStream
    );
    assert_eq!(
        outcome(&[&a, junk, DONE], broken(), None),
        Outcome::Malformed
    );
    assert_eq!(outcome(&[&a, FIN, DONE], broken(), None), Outcome::Reset);
    assert_eq!(outcome(&[&a], Clean, None), Outcome::Truncated);
    assert_eq!(
        outcome(&[R, FIN, &u(0), DONE], Clean, Some(4)),
        Outcome::NoOutput
    );
    assert_eq!(
        outcome(&[R, FIN, &u(1), DONE], Clean, None),
        Outcome::NoOutput
    );
    assert_eq!(
        outcome(&[&a, FIN, &u(1), DONE], Clean, Some(2)),
        Outcome::ShortOutput
    );
    assert_eq!(
        outcome(&[&a, FIN, &u(2), DONE], Clean, Some(2)),
        Outcome::Completed
    );
    assert_eq!(
        outcome(&[&a, FIN, &u(3), DONE], Clean, Some(2)),
        Outcome::Completed
    );
    // Counted exactly, without usage.
    let ids = chunk(r#""delta":{"content":"a"},"token_ids":[1]"#, "");
    assert_eq!(outcome(&[&ids, FIN], Clean, Some(2)), Outcome::ShortOutput);
    // Counted events prove nothing; a finish reason or [DONE] alone is a proper end.
    assert_eq!(outcome(&[&a, FIN], Clean, Some(2)), Outcome::Completed);
    assert_eq!(outcome(&[&a, &u(1), DONE], Clean, None), Outcome::Completed);
}

#[test]
fn an_aborted_answer_is_a_failure() {
    for reason in ["abort", "error"] {
        let fin = FIN.replace("length", reason);
        let d = chat_of(&[&c("a"), &fin, &u(1), DONE]);
        assert_eq!(d.outcome, Outcome::ErrorInStream);
        assert_eq!(d.finish_reason.as_deref(), Some(reason));
        assert!(d.failure.unwrap().message.contains(reason));
    }
}

#[test]
fn what_is_no_chunk_is_malformed() {
    for data in [
        "hello",
        "5",
        "[]",
        "[null]",
        "\"x\"",
        "{\"choices\":[{}",
        "{\"choices\":7}",
        "[DONE",
    ] {
        let d = chat_of(&[&c("a"), &format!("data: {data}\n\n"), &c("b"), DONE]);
        assert_eq!(d.outcome, Outcome::Malformed, "{data}");
        let failure = d.failure.unwrap();
        assert!(
            failure.message.starts_with("event 2 is not a chunk"),
            "{}",
            failure.message
        );
        assert_eq!(failure.body.as_deref(), Some(data));
        // What came besides is kept.
        assert_eq!(d.reads.tokens, [1, 0, 1, 0]);
    }
}

#[test]
fn an_oversized_event_is_malformed_and_known_at_once() {
    let mut response = ResponseDecoder::new(DecodeOptions {
        max_event_bytes: 100,
        ..DecodeOptions::new(Endpoint::Chat)
    });
    response.read(Nanos::ZERO, 0, c("a").as_bytes());
    assert!(!response.failed());
    response.read(
        Nanos::ZERO,
        1,
        format!("data: {}", "x".repeat(100)).as_bytes(),
    );
    assert!(response.failed());
    response.read(Nanos::ZERO, 2, DONE.as_bytes());
    let d = response.finish(StreamEnd::Clean, None);
    assert_eq!(d.outcome, Outcome::Malformed);
    assert!(d.failure.unwrap().message.contains("100 bytes"));
    assert_eq!((d.reads.counted_tokens(), d.socket_reads), (1, 3));
}

#[test]
fn frames_of_one_read_are_one_entry() {
    let mut response = ResponseDecoder::new(DecodeOptions::new(Endpoint::Chat));
    let (first, last) = (c("a"), format!("{FIN}{DONE}"));
    response.read(Nanos::from_millis(5), 3, b": keep-alive\n\n");
    response.read(Nanos::from_millis(10), 4, &first.as_bytes()[..20]);
    response.read(Nanos::from_millis(20), 7, &first.as_bytes()[20..]);
    response.read(Nanos::from_millis(20), 7, first.as_bytes());
    response.read(Nanos::from_millis(20), 7, first.as_bytes());
    assert!(!response.done());
    response.read(Nanos::from_millis(30), 8, last.as_bytes());
    assert!(response.done());
    let d = response.finish(StreamEnd::Clean, None);
    assert_eq!(token_reads(&d.reads), [(20, 3)]);
    assert_eq!(d.reads.events, [3, 2]);
    // The reads without an event gave their bytes to the next one.
    let bytes = [14 + 3 * first.len() as u32, last.len() as u32];
    assert_eq!(d.reads.bytes, bytes);
    assert_eq!((d.socket_reads, d.keepalives), (4, 1));
    assert!(d.reads.is_consistent());
}

#[test]
fn send_stamps_give_the_delivery_lag_of_each_token_read() {
    let mut response = ResponseDecoder::new(DecodeOptions {
        send_stamps: true,
        ..DecodeOptions::new(Endpoint::Completions)
    });
    response.set_origin(Nanos::from_nanos(123_456_789_000_000));
    let reads = [
        (2_000, t("")),
        (5_000, t(" 123456789002000")),
        // Two in one read: the first waited longest. One stamped in the future, one unreadable.
        (9_000, t(" 123456789006000") + &t(" 123456789008000")),
        (10_000, t(" 123456789999999")),
        (11_000, t(" x")),
        (12_000, format!("{}{DONE}", u(5))),
    ];
    for (seq, (t_ns, bytes)) in reads.iter().enumerate() {
        response.read(Nanos::from_nanos(*t_ns), seq as u64, bytes.as_bytes());
    }
    let d = response.finish(StreamEnd::Clean, None);
    assert_eq!(d.delivery_lag_ns, [3_000, 3_000, 0]);
    assert_eq!(d.text, None);

    let mut unstamped = ResponseDecoder::new(DecodeOptions::new(Endpoint::Completions));
    unstamped.set_origin(Nanos::ZERO);
    unstamped.read(Nanos::from_nanos(9), 0, t(" 5").as_bytes());
    assert!(
        unstamped
            .finish(StreamEnd::Clean, None)
            .delivery_lag_ns
            .is_empty()
    );
}

#[test]
fn usage_details_are_kept_and_gaps_in_a_usage_tolerated() {
    let full = "data: {\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":6},\"completion_tokens_details\":null}}\n\n";
    let d = chat_of(&[&c("a"), full, "data: {\"usage\":{}}\n\n", DONE]);
    let usage = d.usage.unwrap();
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (8, 1));
    assert_eq!(
        (usage.cached_tokens, usage.reasoning_tokens),
        (Some(6), None)
    );
}
