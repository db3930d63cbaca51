//! Replays of what real servers sent (see `tests/data/README.md`).

use std::fs;
use std::path::PathBuf;

use linktax_records::{EventClass, Nanos, Outcome, TokenSource};
use linktax_sse::{Decoded, Endpoint, ResponseDecoder, StreamEnd};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde::Deserialize;

use crate::splits::{cut, decode_frames};
use crate::wire::options;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

fn load(name: &str) -> Vec<u8> {
    fs::read(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A row of `expected.tsv`.
struct Expected {
    name: String,
    endpoint: Endpoint,
    outcome: String,
    source: String,
    counted: u64,
    usage: Option<u64>,
    finish: Option<String>,
    comments: u32,
    events: u32,
    chars: usize,
    replacements: usize,
}

fn expected() -> Vec<Expected> {
    let table = String::from_utf8(load("expected.tsv")).unwrap();
    let rows = table.lines().skip(1).map(|line| {
        let f: Vec<_> = line.split('\t').collect();
        let known = |s: &str| (s != "-").then(|| s.to_owned());
        Expected {
            name: f[0].to_owned(),
            endpoint: match f[1] {
                "chat" => Endpoint::Chat,
                _ => Endpoint::Completions,
            },
            outcome: f[2].to_owned(),
            source: f[3].to_owned(),
            counted: f[4].parse().unwrap(),
            usage: known(f[5]).map(|n| n.parse().unwrap()),
            finish: known(f[6]),
            comments: f[7].parse().unwrap(),
            events: f[8].parse().unwrap(),
            chars: f[9].parse().unwrap(),
            replacements: f[10].parse().unwrap(),
        }
    });
    rows.collect()
}

fn end_of(row: &Expected) -> StreamEnd {
    match row.outcome.as_str() {
        "reset" => StreamEnd::Broken("the body ended inside a chunk".to_owned()),
        _ => StreamEnd::Clean,
    }
}

fn snake<T: serde::Serialize>(value: T) -> String {
    serde_json::to_value(value)
        .unwrap()
        .as_str()
        .unwrap()
        .to_owned()
}

#[test]
fn every_recording_holds_what_its_json_says() {
    let rows = expected();
    assert_eq!(rows.len(), 37);
    for row in rows {
        let body = load(&format!("{}.sse", row.name));
        let d = decode_frames(row.endpoint, &[&body], end_of(&row));
        let text = d.text.unwrap();
        assert_eq!(d.outcome.as_str(), row.outcome, "{}", row.name);
        assert_eq!(snake(d.token_source), row.source, "{}", row.name);
        assert_eq!(d.reads.counted_tokens(), row.counted, "{}", row.name);
        assert_eq!(
            d.usage.map(|u| u.completion_tokens),
            row.usage,
            "{}",
            row.name
        );
        assert_eq!(d.finish_reason, row.finish, "{}", row.name);
        assert_eq!(d.keepalives, row.comments, "{}", row.name);
        assert_eq!(d.reads.events, [row.events], "{}", row.name);
        assert_eq!(text.chars().count(), row.chars, "{}", row.name);
        assert_eq!(
            text.matches('\u{fffd}').count(),
            row.replacements,
            "{}",
            row.name
        );
    }
}

#[test]
fn every_recording_is_the_same_for_every_split() {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(12));
    for row in expected() {
        let body = load(&format!("{}.sse", row.name));
        let whole = decode_frames(row.endpoint, &[&body], end_of(&row));
        for size in [1, 3, 7, 64, 1000] {
            let frames: Vec<_> = body.chunks(size).collect();
            assert_eq!(
                decode_frames(row.endpoint, &frames, end_of(&row)),
                whole,
                "{}",
                row.name
            );
        }
        let places = prop::collection::vec(any::<prop::sample::Index>(), 0..200);
        runner
            .run(&places, |places| {
                let frames = cut(&body, &places);
                prop_assert_eq!(
                    decode_frames(row.endpoint, &frames, end_of(&row)),
                    whole.clone()
                );
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn what_a_recording_carries_does_not_depend_on_its_reads() {
    for row in expected() {
        let body = load(&format!("{}.sse", row.name));
        let whole = decode_frames(row.endpoint, &[&body], end_of(&row));
        for size in [1, 37, 400] {
            let mut response = ResponseDecoder::new(options(row.endpoint));
            for (i, read) in body.chunks(size).enumerate() {
                response.read(Nanos::from_micros(i as u64), i as u64, read);
            }
            let d = response.finish(end_of(&row), None);
            assert_eq!(
                (d.outcome, &d.failure, &d.text),
                (whole.outcome, &whole.failure, &whole.text)
            );
            assert_eq!((d.usage, d.token_source), (whole.usage, whole.token_source));
            assert_eq!(d.reads.counted_tokens(), whole.reads.counted_tokens());
            assert_eq!(d.reads.events.iter().sum::<u32>(), row.events);
            assert!(d.reads.is_consistent());
        }
    }
}

/// The body frames of a raw chunked response, as an HTTP client delivers them.
fn http_frames(raw: &[u8]) -> Vec<Vec<u8>> {
    let find = |b: &[u8], what: &[u8]| b.windows(what.len()).position(|w| w == what);
    let mut rest = &raw[find(raw, b"\r\n\r\n").unwrap() + 4..];
    let mut frames = Vec::new();
    while let Some(eol) = find(rest, b"\r\n") {
        let size = std::str::from_utf8(&rest[..eol]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            break;
        }
        frames.push(rest[eol + 2..eol + 2 + size].to_vec());
        rest = &rest[eol + 2 + size + 2..];
    }
    frames
}

#[test]
fn raw_responses_hold_the_same_body_frame_by_frame() {
    for (name, events_of_reads) in [
        ("vllm-abort/chat_engine_killed", 23),
        ("vllm-abort/chat_server_sigterm", 22),
        ("vllm-flags/keepalive_comment_while_queued", 5),
        ("vllm/chat_stream_multibyte", 27),
    ] {
        let frames = http_frames(&load(&format!("{name}.response.http")));
        assert!(frames.concat() == load(&format!("{name}.sse")), "{name}");
        let mut response = ResponseDecoder::new(options(Endpoint::Chat));
        for (i, frame) in frames.iter().enumerate() {
            response.read(Nanos::from_micros(i as u64), i as u64, frame);
        }
        let d = response.finish(StreamEnd::Clean, None);
        assert_eq!(
            d.reads.events.iter().sum::<u32>(),
            events_of_reads,
            "{name}"
        );
        assert_eq!(d.socket_reads as usize, frames.len());
    }
}

#[test]
fn a_killed_engine_is_an_error_in_the_stream() {
    let body = load("vllm-abort/chat_engine_killed.sse");
    let d = decode_frames(Endpoint::Chat, &[&body], StreamEnd::Clean);
    assert_eq!(d.outcome, Outcome::ErrorInStream);
    assert!(d.done_marker);
    let failure = d.failure.unwrap();
    assert!(
        failure
            .message
            .starts_with("EngineCore encountered an issue.")
    );
    assert!(failure.body.unwrap().contains("\"code\": 500"));
}

#[test]
fn a_stopped_server_leaves_a_truncated_stream() {
    let body = load("vllm-abort/chat_server_sigterm.sse");
    let outcome = |end| decode_frames(Endpoint::Chat, &[&body], end).outcome;
    assert_eq!(outcome(StreamEnd::Clean), Outcome::Truncated);
    assert_eq!(outcome(StreamEnd::Broken("eof".to_owned())), Outcome::Reset);
}

#[test]
fn streams_of_other_apis_are_never_answers() {
    for name in ["vllm/responses_stream", "vllm/messages_stream"] {
        for endpoint in [Endpoint::Chat, Endpoint::Completions] {
            let d = decode_frames(endpoint, &[&load(&format!("{name}.sse"))], StreamEnd::Clean);
            assert!(d.outcome.is_failure(), "{name}: {:?}", d.outcome);
            assert_eq!(d.reads.counted_tokens(), 0);
        }
    }
}

#[derive(Deserialize)]
struct RecordedRead {
    t_ns: u64,
    data: String,
}

fn replay(endpoint: Endpoint, reads: &[RecordedRead]) -> Decoded {
    let mut response = ResponseDecoder::new(options(endpoint));
    for (i, read) in reads.iter().enumerate() {
        response.read(Nanos::from_nanos(read.t_ns), i as u64, read.data.as_bytes());
    }
    response.finish(StreamEnd::Clean, None)
}

#[test]
fn recorded_chat_reads_keep_their_times() {
    let reads: Vec<RecordedRead> =
        serde_json::from_slice(&load("reads/vllm0.24-chat.json")).unwrap();
    let d = replay(Endpoint::Chat, &reads);
    assert_eq!(d.outcome, Outcome::Completed);
    assert_eq!(d.reads.len(), 26);
    assert_eq!(d.reads.class[..2], [EventClass::Role, EventClass::Content]);
    assert_eq!(d.reads.class[25], EventClass::Usage);
    assert_eq!(d.reads.events[25], 2);
    assert_eq!(d.reads.first_token(), Some(Nanos::from_nanos(56_352_355)));
    assert_eq!(d.reads.last_token(), Some(Nanos::from_nanos(137_050_998)));
    assert_eq!(d.reads.counted_tokens(), 24);
    assert_eq!(d.usage.unwrap().completion_tokens, 24);
}

#[test]
fn speculative_chunks_are_counted_by_usage_not_by_chunk() {
    let requests: Vec<Vec<RecordedRead>> =
        serde_json::from_slice(&load("reads/vllm0.24-completions-ngram-c1.json")).unwrap();
    let d = replay(Endpoint::Completions, &requests[0]);
    assert_eq!(d.outcome, Outcome::Completed);
    assert_eq!(d.usage.unwrap().completion_tokens, 64);
    assert_eq!(d.token_source, TokenSource::Events);
    assert_eq!(d.reads.counted_tokens(), 20);

    let reads: Vec<RecordedRead> =
        serde_json::from_slice(&load("reads/vllm0.24-chat-ngram.json")).unwrap();
    let d = replay(Endpoint::Chat, &reads);
    assert_eq!(d.usage.unwrap().completion_tokens, 24);
    assert_eq!(d.reads.counted_tokens(), 9);

    // With a running usage each read knows its own tokens.
    let body = load("vllm-ngram/chat_stream_usage_continuous.sse");
    let events: Vec<_> = body.split_inclusive(|&b| b == b'\n').collect();
    let mut response = ResponseDecoder::new(options(Endpoint::Chat));
    for (i, line) in events.iter().enumerate() {
        response.read(Nanos::from_micros(i as u64), i as u64, line);
    }
    let d = response.finish(StreamEnd::Clean, Some(120));
    assert_eq!(d.outcome, Outcome::Completed);
    assert_eq!(d.token_source, TokenSource::ContinuousUsage);
    assert_eq!(d.reads.counted_tokens(), 120);
    assert_eq!(d.reads.tokens.iter().max(), Some(&3));
}

#[test]
fn concurrent_completions_keep_their_times() {
    let requests: Vec<Vec<RecordedRead>> =
        serde_json::from_slice(&load("reads/vllm0.24-completions-c16-in8192-first4.json")).unwrap();
    // The server put two tokens into one chunk of the first request, without any speculation.
    let truth = [(151, 63), (454, 64), (580, 64), (707, 64)];
    for (reads, (first_ms, chunks)) in requests.iter().zip(truth) {
        let d = replay(Endpoint::Completions, reads);
        assert_eq!(d.outcome, Outcome::Completed);
        assert_eq!(d.usage.unwrap().completion_tokens, 64);
        assert_eq!(
            d.reads.first_token().unwrap().as_nanos() / 1_000_000,
            first_ms
        );
        assert_eq!(
            d.reads.last_token().unwrap().as_nanos(),
            reads[reads.len() - 2].t_ns
        );
        assert_eq!(d.reads.counted_tokens(), chunks);
        let bytes: usize = reads.iter().map(|r| r.data.len()).sum();
        assert_eq!(d.reads.bytes.iter().sum::<u32>() as usize, bytes);
    }
}
