use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use linktax_loadgen::LoadPlan;
use linktax_mockserver::{Fault, FaultKind, MockConfig};
use linktax_records::{Outcome, RequestRecord};

use crate::harness::{PROBES, closed, plan, quick, run, sent, spawn};
use crate::scripted::{STREAM_HEAD, Say, Scripted, json, token};

/// A mock that does `fault` to every request but the probe.
fn failing(fault: Fault) -> MockConfig {
    MockConfig {
        record_requests: true,
        fault: vec![Fault {
            skip_first: PROBES,
            ..fault
        }],
        ..quick()
    }
}

fn after(tokens: u64, kind: FaultKind) -> Fault {
    Fault {
        after_tokens: tokens,
        ..Fault::always(kind)
    }
}

/// What is expected of a request that met a fault.
struct Expect {
    outcome: Outcome,
    tokens: u64,
    status: Option<u16>,
    message: &'static str,
    body: Option<&'static str>,
}

const DIED: &str = "EngineCore encountered an issue";

#[track_caller]
fn check(fault: Fault, expect: &Expect) -> Vec<RequestRecord> {
    let server = spawn(failing(fault.clone()));
    let ran = run(LoadPlan {
        idle_timeout_s: 0.4,
        ..plan(server.base_url(), closed(2, 4))
    });
    let records = ran.measured();
    assert_eq!(records.len(), 4, "{fault:?}");
    for r in &records {
        assert_eq!(r.outcome, expect.outcome, "{fault:?}: {r:?}");
        assert!(r.outcome.is_failure());
        assert_eq!(r.reads.counted_tokens(), expect.tokens, "{fault:?}: {r:?}");
        let failure = r.failure.as_ref().unwrap();
        assert_eq!(failure.status, expect.status, "{fault:?}: {failure:?}");
        assert!(failure.message.contains(expect.message), "{failure:?}");
        assert!(!failure.message.contains('\n'));
        let body = failure.body.as_deref();
        match expect.body {
            Some(part) => assert!(body.unwrap().contains(part), "{failure:?}"),
            None => assert_eq!(body, None),
        }
        assert!(r.t_sent_ns.is_some());
    }
    // The cell ran to its end; that its requests failed is data.
    assert!(ran.cell.complete, "{:?}", ran.cell.notes);
    let stats = server.shutdown();
    // Nothing is ever sent a second time.
    assert_eq!(stats.requests, 4 + PROBES, "{fault:?}");
    assert_eq!(stats.faults, 4);
    assert_eq!(sent(&stats).len(), 4);
    records.into_iter().cloned().collect()
}

#[test]
fn an_error_status_is_kept_with_its_body() {
    for (status, body) in [
        (500, None),
        (503, Some("overloaded\nplease wait")),
        (429, Some("slow down")),
        (404, Some("no such model")),
    ] {
        let message: &'static str = match status {
            500 => "HTTP status 500",
            503 => "HTTP status 503",
            429 => "HTTP status 429",
            _ => "HTTP status 404",
        };
        let records = check(
            Fault {
                status,
                body: body.map(str::to_owned),
                ..Fault::always(FaultKind::HttpError)
            },
            &Expect {
                outcome: Outcome::HttpError,
                tokens: 0,
                status: Some(status),
                message,
                body: body.or(Some(DIED)),
            },
        );
        for r in records {
            assert!(r.t_headers_ns.is_some() && r.usage.is_none());
        }
    }
}

#[test]
fn a_redirect_is_not_followed() {
    let asked = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&asked);
    let server = Scripted::generating(move |_, _| {
        counter.fetch_add(1, Ordering::Relaxed);
        let head = b"HTTP/1.1 307 Temporary Redirect\r\nlocation: /v1/completions\r\ncontent-length: 0\r\n\r\n";
        vec![Say::Bytes(head.to_vec())]
    });
    let ran = run(plan(server.url(), closed(1, 3)));
    assert_eq!(ran.outcomes(), [Outcome::HttpError; 3]);
    for r in ran.measured() {
        let failure = r.failure.as_ref().unwrap();
        assert_eq!(failure.status, Some(307));
        assert!(failure.message.contains("redirects to \"/v1/completions\""));
        assert!(!r.reconnected);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

#[test]
fn a_long_error_body_is_kept_in_part() {
    let page = format!("x{}", "é".repeat(100_000));
    let server = Scripted::generating(move |_, _| vec![Say::Bytes(json(502, &page))]);
    let ran = run(plan(server.url(), closed(1, 2)));
    assert_eq!(ran.outcomes(), [Outcome::HttpError; 2]);
    for r in ran.measured() {
        let body = r.failure.as_ref().unwrap().body.as_deref().unwrap();
        // The last character was cut in two: it is left out.
        assert_eq!(body.len(), 4095);
        assert!(body.chars().skip(1).all(|c| c == 'é'), "{body}");
    }
    // It was read to its end, so that its connection could be used again.
    assert!(ran.measured().iter().all(|r| !r.reconnected));
}

#[test]
fn an_error_frame_inside_a_stream_is_a_failure() {
    for kind in [FaultKind::ErrorFrame, FaultKind::ErrorEvent] {
        for tokens in [0, 3] {
            let records = check(
                after(tokens, kind),
                &Expect {
                    outcome: Outcome::ErrorInStream,
                    tokens,
                    status: Some(200),
                    message: DIED,
                    body: Some(r#""code": 500"#),
                },
            );
            assert!(records.iter().all(|r| r.done_marker));
        }
    }
}

#[test]
fn a_stream_that_stops_short_is_truncated() {
    // Ended properly, or with the connection: neither brought a finish reason.
    for kind in [FaultKind::Truncate, FaultKind::Close] {
        for tokens in [0, 3] {
            check(
                after(tokens, kind),
                &Expect {
                    outcome: Outcome::Truncated,
                    tokens,
                    status: Some(200),
                    message: "neither a finish reason nor [DONE]",
                    body: None,
                },
            );
        }
    }
}

#[test]
fn a_reset_is_not_an_end_of_file() {
    let records = check(
        after(3, FaultKind::Reset),
        &Expect {
            outcome: Outcome::Reset,
            tokens: 3,
            status: Some(200),
            message: "connection broke after 3 tokens",
            body: None,
        },
    );
    let message = &records[0].failure.as_ref().unwrap().message;
    assert!(message.to_lowercase().contains("reset"), "{message}");
}

#[test]
fn silence_in_mid_stream_is_an_idle_timeout() {
    check(
        after(3, FaultKind::Hang),
        &Expect {
            outcome: Outcome::IdleTimeout,
            tokens: 3,
            status: Some(200),
            message: "400ms",
            body: None,
        },
    );
}

#[test]
fn fewer_tokens_than_asked_for_are_no_success() {
    let records = check(
        after(3, FaultKind::Short),
        &Expect {
            outcome: Outcome::ShortOutput,
            tokens: 3,
            status: Some(200),
            message: "3 output tokens of the 6 asked for",
            body: None,
        },
    );
    for r in records {
        assert_eq!(r.finish_reason.as_deref(), Some("stop"));
        assert_eq!(r.usage.unwrap().completion_tokens, 3);
    }
}

#[test]
fn a_short_answer_is_fine_where_the_model_may_end_by_itself() {
    let server = spawn(failing(after(3, FaultKind::Short)));
    let mut plan = plan(server.base_url(), closed(2, 4));
    plan.sampling.ignore_eos = false;
    run(plan).assert_all_completed(4);
}

#[test]
fn a_proper_stream_without_a_token_is_no_output() {
    check(
        Fault::always(FaultKind::NoOutput),
        &Expect {
            outcome: Outcome::NoOutput,
            tokens: 0,
            status: Some(200),
            message: "without a generated token",
            body: None,
        },
    );
}

#[test]
fn documents_in_place_of_a_stream_are_malformed() {
    for (kind, body) in [
        (FaultKind::Html, "502 Bad Gateway"),
        (FaultKind::NotStream, "text_completion"),
    ] {
        check(
            Fault::always(kind),
            &Expect {
                outcome: Outcome::Malformed,
                tokens: 0,
                status: Some(200),
                message: "expected an event stream (text/event-stream)",
                body: Some(body),
            },
        );
    }
}

#[test]
fn an_error_object_under_status_200_is_an_error() {
    check(
        Fault::always(FaultKind::JsonError200),
        &Expect {
            outcome: Outcome::ErrorInStream,
            tokens: 0,
            status: Some(200),
            message: "error object",
            body: Some(DIED),
        },
    );
}

#[test]
fn an_event_that_is_no_json_spoils_the_answer_but_not_its_tokens() {
    check(
        after(3, FaultKind::BadJson),
        &Expect {
            outcome: Outcome::Malformed,
            tokens: 6,
            status: Some(200),
            message: "is not a chunk",
            body: Some("\"index\":0,\"te"),
        },
    );
}

#[test]
fn an_aborted_answer_is_an_error() {
    let records = check(
        after(3, FaultKind::Abort),
        &Expect {
            outcome: Outcome::ErrorInStream,
            tokens: 3,
            status: Some(200),
            message: "\"abort\"",
            body: Some("abort"),
        },
    );
    assert_eq!(records[0].finish_reason.as_deref(), Some("abort"));
}

#[test]
fn a_server_that_hangs_up_on_every_connection_resets_every_request() {
    // Pre-flight takes two connections: the control plane's and the probe's.
    let server = spawn(MockConfig {
        fault: vec![Fault {
            skip_first: 2,
            ..Fault::always(FaultKind::Refuse)
        }],
        ..quick()
    });
    let ran = run(plan(server.base_url(), closed(2, 4)));
    for r in ran.measured() {
        assert_eq!(r.outcome, Outcome::Reset, "{r:?}");
        assert_eq!(r.failure.as_ref().unwrap().status, None);
        assert!(r.reads.is_empty() && r.t_headers_ns.is_none());
    }
    assert_eq!(ran.measured().len(), 4);
    assert_eq!(server.shutdown().requests, PROBES);
}

#[test]
fn a_broken_connection_is_replaced_and_a_sound_one_is_used_again() {
    for (kind, kept) in [
        (FaultKind::Reset, false),
        (FaultKind::Close, false),
        (FaultKind::Hang, false),
        (FaultKind::ErrorFrame, true),
        (FaultKind::Truncate, true),
        (FaultKind::HttpError, true),
        (FaultKind::NotStream, true),
    ] {
        // The second of four requests fails.
        let server = spawn(failing(Fault {
            every: None,
            nth: vec![2],
            ..after(2, kind)
        }));
        let ran = run(LoadPlan {
            idle_timeout_s: 0.4,
            ..plan(server.base_url(), closed(1, 4))
        });
        let failed: Vec<bool> = ran.outcomes().iter().map(|o| o.is_failure()).collect();
        assert_eq!(failed, [false, true, false, false], "{kind:?}");
        let reconnected: Vec<bool> = ran.measured().iter().map(|r| r.reconnected).collect();
        assert_eq!(reconnected, [false, false, !kept, false], "{kind:?}");
        assert_eq!(ran.cell.client.reconnects, u64::from(!kept), "{kind:?}");
        let stats = server.shutdown();
        let on: Vec<u64> = sent(&stats).iter().map(|s| s.connection).collect();
        assert_eq!(on[0], on[1]);
        assert_eq!(on[1] == on[2], kept, "{kind:?}");
        assert_eq!(on[2], on[3]);
    }
}

#[test]
fn fr_05_a_server_error_inside_a_200_stream_is_no_success() {
    // Request 1 is normal; request 2 ends after two tokens in each of the reported ways.
    for (kind, outcome) in [
        (FaultKind::ErrorFrame, Outcome::ErrorInStream),
        (FaultKind::Reset, Outcome::Reset),
        (FaultKind::Close, Outcome::Truncated),
        (FaultKind::ErrorEvent, Outcome::ErrorInStream),
    ] {
        let server = spawn(failing(Fault {
            every: None,
            nth: vec![2],
            ..after(2, kind)
        }));
        let ran = run(plan(server.base_url(), closed(1, 2)));
        assert_eq!(ran.outcomes(), [Outcome::Completed, outcome], "{kind:?}");
        let (good, bad) = (ran.measured()[0], ran.measured()[1]);
        assert_eq!((good.output_tokens(), bad.reads.counted_tokens()), (6, 2));
        assert!(good.failure.is_none() && bad.failure.is_some());
        assert_eq!(bad.finish_reason, None);
        assert_eq!(bad.done_marker, outcome == Outcome::ErrorInStream);
    }
}

#[test]
fn an_answer_without_an_end_is_cut_off() {
    let server = Scripted::generating(|_, _| {
        let endless = token("x").repeat(3000);
        vec![
            Say::Bytes(STREAM_HEAD.to_vec()),
            Say::Bytes(endless),
            Say::Hang,
        ]
    });
    let ran = run(plan(server.url(), closed(1, 2)));
    assert_eq!(ran.outcomes(), [Outcome::Malformed; 2]);
    for r in ran.measured() {
        let message = &r.failure.as_ref().unwrap().message;
        assert!(message.contains("an answer without an end"), "{message}");
        assert!(r.reads.counted_tokens() < 3000);
    }
}

#[test]
fn a_compressed_answer_is_called_that() {
    let server = Scripted::generating(|_, _| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x0b\x08\x00";
        vec![Say::Bytes(head.as_bytes().to_vec())]
    });
    let ran = run(plan(server.url(), closed(1, 1)));
    assert_eq!(ran.outcomes(), [Outcome::Malformed]);
    let message = &ran.measured()[0].failure.as_ref().unwrap().message;
    assert!(message.contains("compressed as gzip"), "{message}");
}
