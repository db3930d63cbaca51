use linktax_loadgen::LoadPlan;
use linktax_mockserver::{Fault, FaultKind, MockConfig, Stall};
use linktax_records::Outcome;

use crate::harness::{PROBES, closed, plan, quick, run, spawn};
use crate::scripted::{LAST_CHUNK, STREAM_HEAD, Say, Scripted, chunk, ending, good, token};

#[test]
fn no_token_in_time_is_a_first_token_timeout() {
    let server = spawn(MockConfig {
        fault: vec![Fault {
            skip_first: PROBES,
            ..Fault::always(FaultKind::Hang)
        }],
        ..quick()
    });
    let ran = run(LoadPlan {
        first_token_timeout_s: 0.25,
        ..plan(server.base_url(), closed(2, 2))
    });
    for r in ran.measured() {
        assert_eq!(r.outcome, Outcome::FirstTokenTimeout, "{r:?}");
        let message = &r.failure.as_ref().unwrap().message;
        assert!(message.contains("250ms"), "{message}");
        assert!((r.t_done_ns - r.t_sent_ns.unwrap()).as_millis_f64() >= 250.0);
        // The head had come.
        assert!(r.t_headers_ns.is_some());
    }
    let stats = server.shutdown();
    assert_eq!(stats.requests, 2 + PROBES);
}

#[test]
fn keep_alive_comments_are_no_tokens() {
    let server = spawn(MockConfig {
        keepalive_ms: 20.0,
        // The probe is answered in time.
        stall: Some(Stall {
            every: 1,
            at_token: 1,
            ms: 60_000.0,
            skip_first: PROBES,
        }),
        ..quick()
    });
    let ran = run(LoadPlan {
        first_token_timeout_s: 0.4,
        ..plan(server.base_url(), closed(1, 1))
    });
    let r = ran.measured()[0];
    assert_eq!(r.outcome, Outcome::FirstTokenTimeout, "{r:?}");
    assert!(r.keepalives > 0 && r.reads.is_empty(), "{r:?}");
    // Every comment is a read without an event.
    assert!(r.socket_reads >= 1);
}

#[test]
fn keep_alive_comments_are_life() {
    let server = spawn(MockConfig {
        keepalive_ms: 50.0,
        stall: Some(Stall {
            every: 1,
            at_token: 4,
            ms: 1500.0,
            skip_first: PROBES,
        }),
        ..quick()
    });
    let ran = run(LoadPlan {
        idle_timeout_s: 0.7,
        ..plan(server.base_url(), closed(1, 1))
    });
    ran.assert_all_completed(1);
    let r = ran.measured()[0];
    assert!(r.keepalives > 0);
    assert_eq!(r.reads.counted_tokens(), 6);
    // The comments are in no read of the record, but the bytes are.
    assert_eq!(r.reads.events.iter().sum::<u32>(), 8);
}

#[test]
fn the_idle_timeout_holds_even_where_the_first_token_may_take_long() {
    let server = Scripted::generating(|_, _| {
        vec![
            Say::Bytes([STREAM_HEAD, &token("a"), &token("b")].concat()),
            Say::Hang,
        ]
    });
    let ran = run(LoadPlan {
        first_token_timeout_s: 3600.0,
        idle_timeout_s: 0.2,
        ..plan(server.url(), closed(1, 1))
    });
    let r = ran.measured()[0];
    assert_eq!(r.outcome, Outcome::IdleTimeout);
    assert_eq!(r.reads.counted_tokens(), 2);
}

#[test]
fn an_error_frame_keeps_its_verdict_whatever_follows() {
    let error = chunk(r#"{"error":{"message":"boom","code":500}}"#);
    let server = Scripted::generating(move |_, _| {
        vec![
            Say::Bytes([STREAM_HEAD, &token("a"), &error].concat()),
            Say::Hang,
        ]
    });
    let ran = run(LoadPlan {
        idle_timeout_s: 0.2,
        ..plan(server.url(), closed(1, 1))
    });
    let r = ran.measured()[0];
    assert_eq!(r.outcome, Outcome::ErrorInStream, "{r:?}");
    let failure = r.failure.as_ref().unwrap();
    assert_eq!(failure.message, "boom");
    assert_eq!(r.reads.counted_tokens(), 1);
}

#[test]
fn an_answer_that_is_over_needs_no_last_chunk() {
    // Everything was said; then the connection closes, or stays open and silent.
    for end in [Say::Fin, Say::Reset, Say::Hang] {
        let server = Scripted::generating(move |n, _| {
            let mut says = vec![Say::Bytes([STREAM_HEAD, &good(6)].concat())];
            says.push(if n == 0 {
                end.clone()
            } else {
                Say::Bytes(LAST_CHUNK.to_vec())
            });
            says
        });
        let ran = run(LoadPlan {
            idle_timeout_s: 0.3,
            ..plan(server.url(), closed(1, 2))
        });
        ran.assert_all_completed(2);
        let first = ran.measured()[0];
        // The answer ended with its last read, not when the client had waited long enough.
        assert_eq!(
            first.t_done_ns - first.t_sent_ns.unwrap(),
            *first.reads.t_ns.last().unwrap()
        );
        assert!(ran.measured()[1].reconnected);
    }
}

#[test]
fn a_finish_reason_without_the_rest_is_enough_at_a_clean_end() {
    let no_done: Vec<u8> = [
        token("a").repeat(6),
        ending(6)[..ending(6).len() - chunk("[DONE]").len()].to_vec(),
    ]
    .concat();
    let server = Scripted::generating(move |_, _| {
        vec![Say::Bytes([STREAM_HEAD, &no_done, LAST_CHUNK].concat())]
    });
    let ran = run(plan(server.url(), closed(1, 1)));
    ran.assert_all_completed(1);
    assert!(!ran.measured()[0].done_marker);
}
