//! HTTP around the answers.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use linktax_mockserver::{MockConfig, MockError, MockServer};
use serde_json::json;

use crate::client::{CHAT, COMPLETIONS, Client, End, post, post_bytes, stream_body};

fn quick() -> MockConfig {
    MockConfig {
        ttft_ms: 1.0,
        step_ms: 0.5,
        ..MockConfig::default()
    }
}

#[test]
fn the_small_endpoints() {
    let server = MockServer::spawn(quick()).unwrap();
    let mut client = Client::connect(server.addr());
    assert_eq!(client.get("/version").json(), json!({"version": "0.32.0"}));
    assert_eq!(client.get("/health").body, b"");
    for path in ["/reset_prefix_cache", "/start_profile", "/stop_profile"] {
        assert_eq!(client.post(path, "").status, 200);
    }
    let tokens = client
        .post("/tokenize", r#"{"model":"mock","prompt":"one two  two"}"#)
        .json();
    assert_eq!(
        (&tokens["count"], &tokens["max_model_len"]),
        (&json!(3), &json!(262_144))
    );
    assert_eq!(tokens["tokens"][1], tokens["tokens"][2]);
    let chat = r#"{"messages":[{"role":"user","content":"one two"}]}"#;
    assert_eq!(client.post("/tokenize", chat).json()["count"], 10);
    assert_eq!(client.post("/tokenize", "{}").status, 400);
    assert_eq!(server.shutdown().connections, 1);
}

#[test]
fn unknown_paths_and_methods() {
    let server = MockServer::spawn(quick()).unwrap();
    let mut client = Client::connect(server.addr());
    let answer = client.get("/v2/nope");
    assert_eq!(
        (answer.status, answer.text()),
        (404, r#"{"detail":"Not Found"}"#)
    );
    let answer = client.get(COMPLETIONS);
    assert_eq!(
        (answer.status, answer.text()),
        (405, r#"{"detail":"Method Not Allowed"}"#)
    );
    assert_eq!(answer.header("allow"), Some("POST"));
    assert_eq!(client.post("/health", "").status, 405);
}

#[test]
fn the_api_key_guards_v1_only() {
    let config = MockConfig {
        api_key: Some("k1".to_owned()),
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    let mut client = Client::connect(server.addr());
    for path in [CHAT, COMPLETIONS] {
        let answer = client.post(path, &stream_body(1));
        assert_eq!(
            (answer.status, answer.text()),
            (401, r#"{"error":"Unauthorized"}"#)
        );
    }
    assert_eq!(client.get("/v1/models").status, 401);
    assert_eq!(client.get("/health").status, 200);
    assert_eq!(client.get("/metrics").status, 200);
    client.send(b"GET /v1/models HTTP/1.1\r\nAuthorization: Bearer k1\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    client.send(b"GET /v1/models HTTP/1.1\r\nAuthorization: Bearer k2\r\n\r\n");
    assert_eq!(client.answer().status, 401);
}

#[test]
fn only_json_is_taken() {
    let server = MockServer::spawn(quick()).unwrap();
    let body = stream_body(1);
    let plain = String::from_utf8(post_bytes(COMPLETIONS, &body)).unwrap();
    let ask = |with: &str| {
        let mut client = Client::connect(server.addr());
        client.send(plain.replace("application/json", with).as_bytes());
        client.answer().status
    };
    assert_eq!(ask("text/plain"), 400);
    assert_eq!(ask("application/json; charset=utf-8"), 200);
}

#[test]
fn stricter_servers_refuse_unknown_stream_options() {
    let body = r#"{"prompt":[1],"max_tokens":1,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}"#;
    for (strict, status) in [(false, 200), (true, 400)] {
        let config = MockConfig {
            reject_unknown_stream_options: strict,
            ..quick()
        };
        let server = MockServer::spawn(config).unwrap();
        let answer = post(server.addr(), COMPLETIONS, body);
        assert_eq!(answer.status, status);
        if strict {
            let param = "body.stream_options.continuous_usage_stats";
            assert_eq!(answer.json()["error"]["param"], param);
            assert_eq!(
                post(server.addr(), COMPLETIONS, &stream_body(1)).status,
                200
            );
        }
    }
}

#[test]
fn a_connection_serves_many_requests_until_told_to_close() {
    let server = MockServer::spawn(quick()).unwrap();
    let mut client = Client::connect(server.addr());
    for _ in 0..3 {
        let answer = client.post(COMPLETIONS, &stream_body(2));
        assert_eq!(
            (answer.end, answer.header("connection")),
            (End::Complete, None)
        );
    }
    let plain = String::from_utf8(post_bytes(COMPLETIONS, &stream_body(2))).unwrap();
    client.send(plain.replace("host: mock", "Connection: close").as_bytes());
    assert_eq!(client.answer().header("connection"), Some("close"));
    assert_eq!(client.more(), Err(End::Fin));
    let stats = server.shutdown();
    assert_eq!(
        (stats.connections, stats.http_requests, stats.completed),
        (1, 4, 4)
    );
}

#[test]
fn an_idle_connection_is_closed_after_the_timeout() {
    let config = MockConfig {
        keep_alive_timeout_ms: 50.0,
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    let mut client = Client::connect(server.addr());
    let asked = Instant::now();
    assert_eq!(client.get("/health").status, 200);
    assert_eq!(client.more(), Err(End::Fin));
    assert!(asked.elapsed() >= Duration::from_millis(50));
    // A stream that lasts longer is not idle.
    let config = MockConfig {
        keep_alive_timeout_ms: 5.0,
        ttft_ms: 30.0,
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    assert_eq!(
        post(server.addr(), COMPLETIONS, &stream_body(2)).end,
        End::Complete
    );
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = MockServer::spawn(quick()).unwrap();
    let mut client = Client::connect(server.addr());
    let mut bytes = post_bytes(COMPLETIONS, &stream_body(2));
    bytes.extend(post_bytes(COMPLETIONS, &stream_body(4)));
    client.send(&bytes);
    assert_eq!(client.answer().texts().len(), 2);
    assert_eq!(client.answer().texts().len(), 4);
}

#[test]
fn request_bodies_may_be_chunked_and_come_in_any_pieces() {
    let config = MockConfig {
        record_requests: true,
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    let body = stream_body(2);
    let (a, b) = body.split_at(10);
    let head = "POST /v1/completions HTTP/1.1\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let bytes = format!(
        "{head}{:x}\r\n{a}\r\n{:X};x=y\r\n{b}\r\n0\r\n\r\n",
        a.len(),
        b.len()
    );
    let mut client = Client::connect(server.addr());
    for byte in bytes.as_bytes().chunks(1) {
        client.send(byte);
    }
    assert_eq!(client.answer().texts().len(), 2);
    assert_eq!(client.post(COMPLETIONS, &stream_body(1)).status, 200);
    let recorded = server.shutdown().recorded;
    assert_eq!(recorded[0].body, body.as_bytes());
    assert_eq!(
        (recorded[0].path.as_str(), recorded[0].connection),
        (COMPLETIONS, 1)
    );
    assert!(
        recorded[0]
            .headers
            .contains(&("transfer-encoding".into(), "chunked".into()))
    );
}

#[test]
fn big_bodies_up_to_the_limit() {
    let config = MockConfig {
        max_body_bytes: 9 << 20,
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    let padded = |n: usize| {
        format!(
            r#"{{"prompt":"a b","max_tokens":1,"user":"{}"}}"#,
            "x".repeat(n)
        )
    };
    let answer = post(server.addr(), COMPLETIONS, &padded(8 << 20));
    assert_eq!(
        (answer.status, &answer.json()["usage"]["prompt_tokens"]),
        (200, &json!(2))
    );
    let mut client = Client::connect(server.addr());
    // Only the head: the server refuses by the announced length.
    client.send(b"POST /v1/completions HTTP/1.1\r\ncontent-length: 10000000\r\n\r\n");
    assert_eq!(client.answer().status, 413);
    assert_eq!(client.more(), Err(End::Fin));
}

#[test]
fn curl_asks_before_it_sends_a_long_body() {
    let server = MockServer::spawn(quick()).unwrap();
    let mut client = Client::connect(server.addr());
    let bytes = String::from_utf8(post_bytes(COMPLETIONS, &stream_body(2))).unwrap();
    let bytes = bytes.replace("host: mock", "Expect: 100-continue");
    let (head, body) = bytes.split_at(bytes.find("\r\n\r\n").unwrap() + 4);
    client.send(head.as_bytes());
    while client.ahead() != b"HTTP/1.1 100 Continue\r\n\r\n" {
        client.more().unwrap();
    }
    client.send(body.as_bytes());
    client.send(b"");
    let text = loop {
        client.more().unwrap();
        let text = String::from_utf8(client.ahead().to_vec()).unwrap();
        if text.ends_with("0\r\n\r\n") {
            break text;
        }
    };
    assert!(text.contains("HTTP/1.1 200 OK\r\n"));
}

#[test]
fn what_is_not_http_is_refused() {
    let server = MockServer::spawn(quick()).unwrap();
    let mut client = Client::connect(server.addr());
    client.send(b"\x16\x03\x01 hello\r\n\r\n");
    let answer = client.answer();
    assert_eq!(
        (answer.status, answer.text()),
        (400, "Invalid HTTP request received.")
    );
    assert_eq!(client.more(), Err(End::Fin));
}

#[test]
fn a_client_that_leaves_frees_its_place() {
    let config = MockConfig {
        ttft_ms: 600_000.0,
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    let mut client = Client::connect(server.addr());
    client.send(&post_bytes(COMPLETIONS, &stream_body(5)));
    while server.stats().streams == 0 {
        std::thread::yield_now();
    }
    drop(client);
    while server.stats().streams > 0 {
        std::thread::yield_now();
    }
    let stats = server.shutdown();
    assert_eq!(
        (stats.aborted, stats.completed, stats.peak_streams),
        (1, 0, 1)
    );
}

#[test]
fn shutdown_closes_open_connections_and_the_port() {
    let server = MockServer::spawn(quick()).unwrap();
    let addr = server.addr();
    let mut client = Client::connect(addr);
    assert_eq!(client.get("/health").status, 200);
    server.shutdown();
    assert!(client.more().is_err());
    assert!(std::net::TcpStream::connect(addr).is_err());
}

#[test]
fn start_errors_say_what_is_wrong() {
    let e = MockServer::spawn(MockConfig {
        step_ms: -1.0,
        ..quick()
    })
    .unwrap_err();
    assert_eq!(
        e.to_string(),
        "mock server: `step_ms` is -1; expected 0 to 86400000"
    );
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap();
    // Port 1 of an address that is not ours.
    let foreign = SocketAddr::from(([192, 0, 2, 1], taken.port()));
    let e = MockServer::spawn_on(quick(), foreign).unwrap_err();
    assert!(matches!(e, MockError::Bind { .. }), "{e}");
}

#[test]
fn a_server_runs_inside_a_callers_runtime_too() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let stats = runtime.block_on(async {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = MockServer::bind(quick(), any).await.unwrap();
        let addr = server.addr();
        let client = tokio::task::spawn_blocking(move || {
            post(addr, COMPLETIONS, &stream_body(3)).texts().len()
        });
        server
            .run_until(async move {
                assert_eq!(client.await.unwrap(), 3);
            })
            .await
            .unwrap()
    });
    assert_eq!((stats.completed, stats.tokens), (1, 3));
}
