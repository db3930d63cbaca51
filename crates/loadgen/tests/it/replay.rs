//! Recorded answers, byte for byte over TCP, in several write sizes.

use linktax_loadgen::Endpoint;
use linktax_loadgen::workload::PromptKind;
use linktax_records::{Outcome, RequestRecord, TokenSource};

use crate::harness::{closed, plan, run};
use crate::scripted::{Say, Scripted};

/// What a recording holds, read off the file.
struct Holds {
    outcome: Outcome,
    source: TokenSource,
    counted: u64,
    usage: Option<u64>,
    finish: Option<&'static str>,
    comments: u32,
    events: u32,
}

/// Bytes a write: one, a few, a packet's worth of a slow link, all at once.
const SIZES: [usize; 4] = [1, 7, 64, usize::MAX];

#[track_caller]
fn replay(
    recording: &'static [u8],
    endpoint: Endpoint,
    output_len: u64,
    holds: &Holds,
) -> RequestRecord {
    let server = Scripted::generating(move |n, _| {
        vec![Say::Pieces(recording.to_vec(), SIZES[n as usize]), Say::Fin]
    });
    let mut spec = closed(1, SIZES.len() as u64);
    spec.output_len = Some(output_len);
    let mut plan = plan(server.url(), spec);
    plan.endpoint = endpoint;
    plan.keep_text = true;
    if endpoint == Endpoint::Chat {
        plan.workload.prompt_kind = Some(PromptKind::Text);
    }
    let ran = run(plan);
    let records = ran.measured();
    assert_eq!(records.len(), SIZES.len());
    for (r, size) in records.iter().zip(SIZES) {
        let seen = (r.outcome, r.token_source, r.reads.counted_tokens());
        assert_eq!(seen, (holds.outcome, holds.source, holds.counted), "{size}");
        assert_eq!(r.usage.map(|u| u.completion_tokens), holds.usage, "{size}");
        assert_eq!(r.finish_reason.as_deref(), holds.finish, "{size}");
        assert_eq!(r.keepalives, holds.comments, "{size}");
        assert_eq!(r.reads.events.iter().sum::<u32>(), holds.events, "{size}");
        assert_eq!(r.text, records[0].text, "{size}");
        assert_eq!(r.failure, records[0].failure, "{size}");
        assert!(r.reads.is_consistent() && r.reads.t_ns.is_sorted());
    }
    records[0].clone()
}

#[test]
fn completion_with_usage_at_the_end() {
    let r = replay(
        include_bytes!("../data/wire/vllm/completion_stream_usage.response.http"),
        Endpoint::Completions,
        12,
        &Holds {
            outcome: Outcome::Completed,
            source: TokenSource::Events,
            counted: 12,
            usage: Some(12),
            finish: Some("length"),
            comments: 0,
            events: 14,
        },
    );
    assert_eq!(r.usage.unwrap().prompt_tokens, 7);
    assert!(r.read_tokens_exact() && r.done_marker);
}

#[test]
fn chat_with_running_usage() {
    let r = replay(
        include_bytes!("../data/wire/vllm/chat_stream_usage_continuous.response.http"),
        Endpoint::Chat,
        12,
        &Holds {
            outcome: Outcome::Completed,
            source: TokenSource::ContinuousUsage,
            counted: 12,
            usage: Some(12),
            finish: Some("length"),
            comments: 0,
            events: 15,
        },
    );
    assert_eq!(r.usage.unwrap().prompt_tokens, 18);
}

#[test]
fn speculative_decoding_counted_by_chunks() {
    let r = replay(
        include_bytes!("../data/wire/vllm-ngram/completion_stream_usage.response.http"),
        Endpoint::Completions,
        120,
        &Holds {
            outcome: Outcome::Completed,
            source: TokenSource::Events,
            counted: 73,
            usage: Some(120),
            finish: Some("length"),
            comments: 0,
            events: 75,
        },
    );
    // 73 chunks held 120 tokens: which held how many is not known, and the record says so.
    assert!(!r.read_tokens_exact());
    assert_eq!(r.output_tokens(), 120);
}

#[test]
fn comments_while_the_request_was_queued() {
    replay(
        include_bytes!("../data/wire/vllm-flags/keepalive_comment_while_queued.response.http"),
        Endpoint::Chat,
        4,
        &Holds {
            outcome: Outcome::Completed,
            source: TokenSource::ContinuousUsage,
            counted: 4,
            usage: Some(4),
            finish: Some("length"),
            comments: 7,
            events: 5,
        },
    );
}

#[test]
fn an_engine_that_was_killed() {
    let r = replay(
        include_bytes!("../data/wire/vllm-abort/chat_engine_killed.response.http"),
        Endpoint::Chat,
        3500,
        &Holds {
            outcome: Outcome::ErrorInStream,
            source: TokenSource::Events,
            counted: 18,
            usage: None,
            finish: None,
            comments: 0,
            events: 23,
        },
    );
    let failure = r.failure.unwrap();
    assert!(
        failure
            .message
            .starts_with("EngineCore encountered an issue.")
    );
    assert!(failure.body.unwrap().contains("InternalServerError"));
    assert!(r.done_marker);
}

#[test]
fn a_server_that_was_terminated() {
    let r = replay(
        include_bytes!("../data/wire/vllm-abort/chat_server_sigterm.response.http"),
        Endpoint::Chat,
        3500,
        &Holds {
            outcome: Outcome::Truncated,
            source: TokenSource::Events,
            counted: 19,
            usage: None,
            finish: None,
            comments: 0,
            events: 22,
        },
    );
    assert!(!r.done_marker);
}
