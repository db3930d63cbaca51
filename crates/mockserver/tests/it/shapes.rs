//! Answers have the shape of vLLM's: the same keys in the same order, the same nulls and types.

use linktax_mockserver::{MockConfig, MockServer};

use crate::client::{Answer, CHAT, COMPLETIONS, Client, post};

/// JSON with every string, number and boolean replaced by its type, keys and nulls kept in order.
fn skeleton(json: &str) -> String {
    let mut out = String::new();
    let mut rest = json;
    while let Some(c) = rest.chars().next() {
        if c == '"' {
            let mut end = 1;
            while !rest[end..].starts_with('"') {
                end += if rest[end..].starts_with('\\') { 2 } else { 1 };
                while !rest.is_char_boundary(end) {
                    end += 1;
                }
            }
            let after = rest[end + 1..].trim_start();
            out.push_str(if after.starts_with(':') {
                &rest[..=end]
            } else {
                "s"
            });
            rest = &rest[end + 1..];
        } else if c == '-' || c.is_ascii_digit() {
            let end = rest
                .find(|c: char| !"-+.eE0123456789".contains(c))
                .unwrap_or(rest.len());
            // A list of numbers is one, however long.
            if !out.ends_with("0,") {
                out.push('0');
            } else {
                out.pop();
            }
            rest = &rest[end..];
        } else {
            if !c.is_whitespace() {
                out.push(c);
            }
            rest = &rest[c.len_utf8()..];
        }
    }
    out.replace("true", "b").replace("false", "b")
}

/// Skeletons of a stream's events, repeats left out.
fn stream_shape(events: &[&str]) -> Vec<String> {
    let mut shapes: Vec<String> = events.iter().map(|e| skeleton(e)).collect();
    shapes.dedup();
    shapes
}

fn recorded_events(sse: &str) -> Vec<&str> {
    sse.lines()
        .filter_map(|l| l.strip_prefix("data: "))
        .collect()
}

fn quick() -> MockConfig {
    MockConfig {
        model: "tiny".to_owned(),
        ttft_ms: 1.0,
        step_ms: 0.2,
        ..MockConfig::default()
    }
}

fn ask(config: MockConfig, path: &str, request: &str) -> Answer {
    let server = MockServer::spawn(config).unwrap();
    let answer = post(server.addr(), path, request);
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

/// Name, path, request, what vLLM streamed.
macro_rules! streams {
    ($($name:literal at $path:expr),* $(,)?) => {
        [$((
            $name,
            $path,
            include_str!(concat!("../data/", $name, ".request.json")),
            include_str!(concat!("../data/", $name, ".sse")),
        )),*]
    };
}

#[test]
fn skeleton_keeps_keys_and_nulls() {
    let json = r#"{"a": "x\"y", "b":[1,-2.5e3,3],"c":null,"d":true,"e":{"f":"é"}}"#;
    assert_eq!(
        skeleton(json),
        r#"{"a":s,"b":[0],"c":null,"d":b,"e":{"f":s}}"#
    );
}

#[test]
fn streams_have_the_shape_of_the_recorded_ones() {
    let cases = streams![
        "chat_stream" at CHAT,
        "chat_stream_usage" at CHAT,
        "chat_stream_usage_continuous" at CHAT,
        "chat_stream_token_ids" at CHAT,
        "completion_stream" at COMPLETIONS,
        "completion_stream_usage" at COMPLETIONS,
        "completion_stream_usage_continuous" at COMPLETIONS,
        "completion_stream_token_prompt" at COMPLETIONS,
    ];
    for (name, path, request, sse) in cases {
        let answer = ask(quick(), path, request);
        let want = stream_shape(&recorded_events(sse));
        assert_eq!(stream_shape(&answer.events()), want, "{name}");
        let type_ = "text/event-stream; charset=utf-8";
        assert_eq!(answer.header("content-type"), Some(type_), "{name}");
    }
}

#[test]
fn streams_of_several_prompts_have_the_shapes_of_the_recorded_one() {
    let request = include_str!("../data/completion_stream_two_prompts.request.json");
    let answer = ask(quick(), COMPLETIONS, request);
    // vLLM's two prompts did not advance in step, so the order is theirs.
    let set = |events: &[&str]| std::collections::BTreeSet::from_iter(stream_shape(events));
    let recorded = recorded_events(include_str!("../data/completion_stream_two_prompts.sse"));
    assert_eq!(set(&answer.events()), set(&recorded));
    assert_eq!(answer.events().len(), recorded.len());
}

#[test]
fn a_model_that_ends_by_itself_sends_a_last_token_without_text() {
    let config = MockConfig {
        eos_after: Some(5),
        ..quick()
    };
    let request = include_str!("../data/chat_stream_usage.request.json");
    let answer = ask(
        config,
        CHAT,
        &request.replace("\"ignore_eos\": true", "\"ignore_eos\": false"),
    );
    let recorded = recorded_events(include_str!("../data/chat_stream_eos.sse"));
    let got = answer.events();
    let tail = |events: &[&str]| stream_shape(&events[events.len() - 3..]);
    assert_eq!(tail(&got), tail(&recorded));
    assert_eq!(answer.texts().last().unwrap(), "");
    assert_eq!(answer.finish().as_deref(), Some("stop"));
    assert_eq!(
        answer.chunks_json().last().unwrap()["usage"]["completion_tokens"],
        5
    );
}

#[test]
fn cached_tokens_are_told_where_vllm_tells_them() {
    let config = MockConfig {
        prompt_tokens_details: true,
        ..quick()
    };
    let answer = ask(
        config,
        COMPLETIONS,
        include_str!("../data/completion_stream_usage.request.json"),
    );
    let recorded = recorded_events(include_str!("../data/cached_tokens.sse"));
    let without_metrics = |e: &str| {
        let shape = skeleton(e);
        shape
            .split(",\"metrics\"")
            .next()
            .unwrap()
            .trim_end_matches('}')
            .to_owned()
    };
    let last = |events: &[&str]| without_metrics(events[events.len() - 2]);
    assert_eq!(last(&answer.events()), last(&recorded));
}

#[test]
fn fr_06_reasoning_has_the_shape_of_a_reasoning_parser() {
    let config = MockConfig {
        reasoning_tokens: 10,
        force_include_usage: true,
        ..quick()
    };
    let request = include_str!("../data/chat_stream.request.json");
    let answer = ask(
        config,
        CHAT,
        &request.replace("\"max_tokens\": 12", "\"max_tokens\": 10"),
    );
    let recorded = recorded_events(include_str!("../data/reasoning_then_content.sse"));
    // Without the last chunk, which carries another flag's metrics.
    let chunks = |events: &[&str]| stream_shape(&events[..events.len() - 2]);
    assert_eq!(chunks(&answer.events()), chunks(&recorded));
}

#[test]
fn whole_answers_have_the_shape_of_the_recorded_ones() {
    let chat = r#"{"messages":[{"role":"user","content":"a"}],"max_tokens":12}"#;
    let cases = [
        (CHAT, chat, include_str!("../data/chat_nonstream.json")),
        (
            COMPLETIONS,
            r#"{"prompt":"a","max_tokens":12}"#,
            include_str!("../data/completion_nonstream.json"),
        ),
    ];
    for (path, request, recorded) in cases {
        let answer = ask(quick(), path, request);
        assert_eq!(skeleton(answer.text()), skeleton(recorded));
        assert_eq!(answer.json()["usage"]["completion_tokens"], 12);
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
    let answer = ask(
        quick(),
        CHAT,
        &chat.replace("12}", "12,\"return_token_ids\":true}"),
    );
    assert_eq!(
        answer.json()["choices"][0]["token_ids"]
            .as_array()
            .unwrap()
            .len(),
        12
    );
    assert_eq!(
        answer.json()["prompt_token_ids"].as_array().unwrap().len(),
        9
    );
}

#[test]
fn models_have_the_shape_of_the_recorded_ones() {
    let server = MockServer::spawn(quick()).unwrap();
    let answer = Client::connect(server.addr()).get("/v1/models");
    assert_eq!(
        skeleton(answer.text()),
        skeleton(include_str!("../data/models.json"))
    );
    assert_eq!(answer.json()["data"][0]["id"], "tiny");
}

#[test]
fn refusals_are_those_that_were_recorded() {
    let server = MockServer::spawn(MockConfig {
        max_model_len: 4096,
        ..quick()
    })
    .unwrap();
    let recorded = include_str!("../data/errors.jsonl");
    for case in recorded
        .lines()
        .map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap())
    {
        let get = |key: &str| case[key].as_str().unwrap();
        let answer = post(server.addr(), get("path"), get("request"));
        assert_eq!(
            answer.status,
            case["status"].as_u64().unwrap() as u16,
            "{}",
            get("name")
        );
        assert_eq!(answer.text(), get("response"), "{}", get("name"));
    }
    assert_eq!(server.shutdown().requests, 0);
}
