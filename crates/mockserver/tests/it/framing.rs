//! What the bytes of a stream look like under each option.

use linktax_mockserver::{MockConfig, MockServer, RoleChunk};

use crate::client::{COMPLETIONS, Client, chat, post, post_bytes, stream, stream_body};

fn quick() -> MockConfig {
    MockConfig {
        ttft_ms: 1.0,
        step_ms: 0.5,
        ..MockConfig::default()
    }
}

#[test]
fn one_event_is_one_http_chunk() {
    let server = MockServer::spawn(quick()).unwrap();
    let answer = stream(server.addr(), 5);
    let blocks: Vec<usize> = answer
        .text()
        .split_inclusive("\n\n")
        .map(str::len)
        .collect();
    assert_eq!(answer.chunks, blocks);
    assert_eq!(blocks.len(), 5 + 1 + 1);
    assert_eq!(server.shutdown().events, 7);
}

#[test]
fn line_ends_spaces_event_fields_and_a_byte_order_mark() {
    let config = MockConfig {
        crlf: true,
        no_space: true,
        event_field: true,
        bom: true,
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    let answer = stream(server.addr(), 2);
    let text = answer.text();
    assert!(
        text.starts_with("\u{feff}event: message\r\ndata:{\"id\""),
        "{text}"
    );
    assert!(
        text.ends_with("event: message\r\ndata:[DONE]\r\n\r\n"),
        "{text}"
    );
    assert_eq!(text.matches("\u{feff}").count(), 1);
    assert_eq!(text.matches('\n').count(), text.matches("\r\n").count());
}

#[test]
fn fr_12_one_event_of_each_stream_is_padded() {
    let config = MockConfig {
        pad_event_bytes: 300 << 10,
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    for tokens in [1, 4] {
        let answer = stream(server.addr(), tokens);
        let long: Vec<usize> = (0..answer.events().len())
            .filter(|i| answer.events()[*i].len() > 300 << 10)
            .collect();
        assert_eq!(long, [usize::from(tokens > 1)]);
        assert_eq!(answer.texts().len() as u64, tokens);
    }
}

#[test]
fn fr_12_a_padded_event_may_be_larger_than_any_buffer() {
    let config = MockConfig {
        pad_event_bytes: 16 << 20,
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    let answer = stream(server.addr(), 3);
    assert!(answer.body.len() > 16 << 20);
    assert_eq!(answer.chunks_json()[3]["usage"]["completion_tokens"], 3);
}

#[test]
fn fr_04_split_writes_change_no_byte() {
    for pieces in [1, 3, 7, 64] {
        let server = MockServer::spawn(MockConfig {
            split_writes: pieces,
            ..quick()
        })
        .unwrap();
        let answer = stream(server.addr(), 3);
        assert_eq!(answer.events().len(), 5);
        assert_eq!(answer.chunks_json()[3]["usage"]["completion_tokens"], 3);
    }
}

#[test]
fn keep_alive_comments_fill_the_wait_for_the_first_token() {
    let config = MockConfig {
        ttft_ms: 60.0,
        step_ms: 0.0,
        keepalive_ms: 10.0,
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    let answer = stream(server.addr(), 2);
    let text = answer.text();
    assert!(text.starts_with(": keep-alive\n\n"), "{text}");
    // Later comments would need a pause of 10 ms, which steps of 0 ms leave no room for by design.
    assert!(text.matches(": keep-alive\n\n").count() <= 6);
    assert_eq!(answer.events().len(), 4);
}

#[test]
fn the_head_comes_at_once_or_with_the_first_token() {
    // The first token never comes within this test.
    let slow = MockConfig {
        ttft_ms: 600_000.0,
        ..quick()
    };
    let server = MockServer::spawn(slow.clone()).unwrap();
    let mut client = Client::connect(server.addr());
    client.send(&post_bytes(COMPLETIONS, &stream_body(1)));
    while !client.ahead().ends_with(b"\r\n\r\n") {
        client.more().unwrap();
    }
    assert!(client.ahead().starts_with(b"HTTP/1.1 200 OK\r\n"));

    // With the option, only what is sent at once makes the head come: here the role chunk.
    let config = MockConfig {
        headers_with_first_token: true,
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    assert_eq!(stream(server.addr(), 2).events().len(), 4);
    let config = MockConfig {
        headers_with_first_token: true,
        role_chunk: RoleChunk::Immediate,
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    assert_eq!(chat(server.addr(), 2).events().len(), 5);
}

#[test]
fn stamps_grow_and_keep_the_schedule_as_lower_bound() {
    let config = MockConfig {
        ttft_ms: 30.0,
        step_ms: 3.0,
        stamp: true,
        record_requests: true,
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    let answer = stream(server.addr(), 10);
    let stamps: Vec<u64> = answer
        .texts()
        .iter()
        .map(|t| t.trim().parse().unwrap())
        .collect();
    let arrival = server.stats().recorded[0].arrival.as_nanos();
    for (k, stamp) in stamps.iter().enumerate() {
        assert!(
            *stamp >= arrival + 30_000_000 + k as u64 * 3_000_000,
            "token {k}"
        );
    }
    assert!(stamps.is_sorted());
}

#[test]
fn a_stall_pauses_every_nth_request_once() {
    let text =
        "ttft_ms = 1\nstep_ms = 1\nstamp = true\nstall = { every = 2, at_token = 4, ms = 50 }";
    let config = MockConfig::from_toml(text, "mock.toml".as_ref()).unwrap();
    let server = MockServer::spawn(config).unwrap();
    let gap = |_| {
        let stamps: Vec<u64> = stream(server.addr(), 6)
            .texts()
            .iter()
            .map(|t| t.trim().parse().unwrap())
            .collect();
        stamps[3] - stamps[0]
    };
    let gaps = [0, 1].map(gap);
    assert!(gaps[1] >= 50_000_000, "{gaps:?}");
}

#[test]
fn prompts_reach_the_server_whole_in_any_size() {
    let server = MockServer::spawn(quick()).unwrap();
    let ids: Vec<String> = (0..131_072).map(|i| (i % 30_000).to_string()).collect();
    let body = format!(r#"{{"prompt":[{}],"max_tokens":1}}"#, ids.join(","));
    assert_eq!(
        post(server.addr(), COMPLETIONS, &body).json()["usage"]["prompt_tokens"],
        131_072
    );
}
