//! Every fault, byte by byte.

use linktax_mockserver::{Fault, FaultKind, MockConfig, MockServer};

use crate::client::{Answer, COMPLETIONS, Client, End, chat, post, stream, stream_body};

fn with(fault: Fault) -> MockConfig {
    MockConfig {
        ttft_ms: 1.0,
        step_ms: 1.0,
        fault: vec![fault],
        ..MockConfig::default()
    }
}

fn hit(kind: FaultKind, after_tokens: u64) -> Answer {
    let fault = Fault {
        after_tokens,
        ..Fault::always(kind)
    };
    let server = MockServer::spawn(with(fault)).unwrap();
    let answer = stream(server.addr(), 6);
    assert_eq!(server.stats().faults, 1);
    answer
}

/// Texts, finish reason, whether `[DONE]` came, and how the connection looked.
fn seen(answer: &Answer) -> (usize, Option<String>, bool, End) {
    let done = answer.events().contains(&"[DONE]");
    (answer.texts().len(), answer.finish(), done, answer.end)
}

const ERROR: &str = r#"{"error": {"message": "EngineCore encountered an issue. See stack trace (above) for the root cause.", "type": "InternalServerError", "param": null, "code": 500}}"#;

#[test]
fn fr_05_error_frame_inside_a_200_stream() {
    let answer = hit(FaultKind::ErrorFrame, 2);
    assert_eq!(answer.status, 200);
    assert_eq!(seen(&answer), (2, None, true, End::Complete));
    assert!(
        answer
            .text()
            .ends_with(&format!("data: {ERROR}\n\ndata: [DONE]\n\n"))
    );
}

#[test]
fn fr_05_error_event_inside_a_200_stream() {
    let answer = hit(FaultKind::ErrorEvent, 2);
    assert!(
        answer
            .text()
            .ends_with(&format!("event: error\ndata: {ERROR}\n\ndata: [DONE]\n\n"))
    );
}

#[test]
fn truncate_ends_the_body_properly_and_keeps_the_connection() {
    let server = MockServer::spawn(with(Fault {
        nth: vec![1],
        every: None,
        after_tokens: 3,
        ..Fault::always(FaultKind::Truncate)
    }))
    .unwrap();
    let mut client = Client::connect(server.addr());
    let answer = client.post(COMPLETIONS, &stream_body(6));
    assert_eq!(seen(&answer), (3, None, false, End::Complete));
    let next = client.post(COMPLETIONS, &stream_body(6));
    assert_eq!(
        seen(&next),
        (6, Some("length".to_owned()), true, End::Complete)
    );
}

#[test]
fn fr_05_reset_and_close_in_mid_stream() {
    assert_eq!(
        seen(&hit(FaultKind::Reset, 2)),
        (2, None, false, End::Reset)
    );
    assert_eq!(seen(&hit(FaultKind::Close, 2)), (2, None, false, End::Fin));
    assert_eq!(seen(&hit(FaultKind::Close, 0)), (0, None, false, End::Fin));
    // More than there are: after all of them, still without a finish reason.
    assert_eq!(seen(&hit(FaultKind::Close, 99)), (6, None, false, End::Fin));
}

#[test]
fn hang_is_silent_until_the_client_leaves() {
    let hang = Fault::always(FaultKind::Hang);
    let fault = Fault {
        every: None,
        nth: vec![1],
        after_tokens: 2,
        ..hang
    };
    let config = MockConfig {
        keepalive_ms: 1.0,
        ttft_ms: 30.0,
        step_ms: 0.0,
        ..with(fault)
    };
    let server = MockServer::spawn(config).unwrap();
    let mut client = Client::connect(server.addr());
    client.send(&crate::client::post_bytes(COMPLETIONS, &stream_body(6)));
    while client
        .ahead()
        .windows(7)
        .filter(|w| w == b"\"text\":")
        .count()
        < 2
    {
        client.more().unwrap();
    }
    // Another stream gets its keep-alives meanwhile, this one nothing more.
    assert!(stream(server.addr(), 1).text().starts_with(": keep-alive"));
    assert!(client.silent());
    assert_eq!(server.stats().streams, 1);
    drop(client);
    while server.stats().streams > 0 {
        std::thread::yield_now();
    }
    assert_eq!(server.shutdown().completed, 2);
}

#[test]
fn short_abort_and_no_output_are_proper_streams() {
    let stop = Some("stop".to_owned());
    assert_eq!(
        seen(&hit(FaultKind::Short, 4)),
        (4, stop.clone(), true, End::Complete)
    );
    let abort = Some("abort".to_owned());
    assert_eq!(
        seen(&hit(FaultKind::Abort, 2)),
        (2, abort, true, End::Complete)
    );
    let answer = hit(FaultKind::NoOutput, 0);
    assert_eq!(seen(&answer), (1, stop, true, End::Complete));
    assert_eq!(answer.texts(), [""]);
    assert_eq!(answer.chunks_json()[1]["usage"]["completion_tokens"], 0);
}

#[test]
fn no_output_of_a_chat_has_a_role_and_no_token() {
    let server = MockServer::spawn(with(Fault::always(FaultKind::NoOutput))).unwrap();
    let chunks = chat(server.addr(), 6).chunks_json();
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(chunks[1]["choices"][0]["finish_reason"], "stop");
    assert_eq!(chunks.len(), 3);
}

#[test]
fn answers_that_are_no_streams() {
    let answer = hit(FaultKind::Html, 0);
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some("text/html"))
    );
    assert!(answer.text().starts_with("<html>"));

    let answer = hit(FaultKind::NotStream, 0);
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some("application/json"))
    );
    assert_eq!(answer.json()["usage"]["completion_tokens"], 6);

    let answer = hit(FaultKind::JsonError200, 0);
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some("application/json"))
    );
    assert_eq!(answer.json()["error"]["code"], 500);
}

#[test]
fn http_error_has_its_status_and_body() {
    let answer = hit(FaultKind::HttpError, 0);
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (500, &500.into())
    );
    let fault = Fault {
        status: 503,
        body: Some("busy".to_owned()),
        ..Fault::always(FaultKind::HttpError)
    };
    let server = MockServer::spawn(with(fault)).unwrap();
    let answer = stream(server.addr(), 6);
    assert_eq!((answer.status, answer.text()), (503, "busy"));
}

#[test]
fn bad_json_is_one_event_of_a_stream_that_goes_on() {
    let answer = hit(FaultKind::BadJson, 2);
    let events = answer.events();
    let bad: Vec<usize> = events
        .iter()
        .enumerate()
        .filter(|(_, e)| serde_json::from_str::<serde_json::Value>(e).is_err() && **e != "[DONE]")
        .map(|(i, _)| i)
        .collect();
    assert_eq!((bad, events.len()), (vec![2], 6 + 1 + 1 + 1));
}

#[test]
fn refuse_counts_connections() {
    let fault = Fault {
        every: None,
        nth: vec![2],
        ..Fault::always(FaultKind::Refuse)
    };
    let server = MockServer::spawn(with(fault)).unwrap();
    for served in [true, false, true] {
        let mut client = Client::connect(server.addr());
        if served {
            assert_eq!(client.get("/health").status, 200);
        } else {
            assert_eq!(client.more(), Err(End::Fin));
        }
    }
}

#[test]
fn faults_count_accepted_generation_requests_after_the_skipped_ones() {
    let fault = Fault {
        every: Some(2),
        skip_first: 1,
        ..Fault::always(FaultKind::HttpError)
    };
    let server = MockServer::spawn(with(fault)).unwrap();
    let mut client = Client::connect(server.addr());
    let mut statuses = Vec::new();
    for _ in 0..6 {
        // Neither a refused request nor another endpoint counts.
        assert_eq!(client.post(COMPLETIONS, "{}").status, 400);
        assert_eq!(client.get("/v1/models").status, 200);
        statuses.push(client.post(COMPLETIONS, &stream_body(1)).status);
    }
    assert_eq!(statuses, [200, 200, 500, 200, 500, 200]);
    let stats = server.shutdown();
    assert_eq!((stats.requests, stats.faults, stats.connections), (6, 2, 1));
}

#[test]
fn whole_answers_fail_too() {
    let whole = r#"{"prompt":[1],"max_tokens":3}"#;
    let ask = |kind| {
        let server = MockServer::spawn(with(Fault::always(kind))).unwrap();
        post(server.addr(), COMPLETIONS, whole)
    };
    assert_eq!(ask(FaultKind::ErrorFrame).status, 500);
    assert_eq!(ask(FaultKind::Reset).end, End::Reset);
    let answer = ask(FaultKind::Truncate);
    assert_eq!((answer.status, answer.end), (200, End::Fin));
    assert!(!answer.body.is_empty());
    let answer = ask(FaultKind::BadJson);
    assert_eq!(answer.end, End::Complete);
    assert!(serde_json::from_slice::<serde_json::Value>(&answer.body).is_err());
}
