//! Tokens and where their counts stand.

use linktax_mockserver::{MockConfig, MockServer, ReasoningField, RoleChunk, UsagePlacement};
use serde_json::{Value, json};

use crate::client::{Answer, CHAT, COMPLETIONS, chat, post, stream};

fn quick() -> MockConfig {
    MockConfig {
        ttft_ms: 1.0,
        step_ms: 0.2,
        ..MockConfig::default()
    }
}

fn streamed(config: MockConfig, tokens: u64) -> Answer {
    let server = MockServer::spawn(config).unwrap();
    let answer = stream(server.addr(), tokens);
    assert_eq!(answer.events().last(), Some(&"[DONE]"));
    answer
}

/// Which events carry usage: (index, completion tokens, `choices`).
fn usages(answer: &Answer) -> Vec<(usize, u64, Value)> {
    let with = |(i, v): (usize, &Value)| {
        let n = v.get("usage")?.get("completion_tokens")?.as_u64()?;
        Some((i, n, v.get("choices").cloned().unwrap_or(json!("absent"))))
    };
    answer
        .chunks_json()
        .iter()
        .enumerate()
        .filter_map(with)
        .collect()
}

#[test]
fn fr_07_usage_stands_where_the_placement_says() {
    let placed = |usage| streamed(MockConfig { usage, ..quick() }, 7);
    let only = |answer: &Answer, choices: Value| {
        assert_eq!(usages(answer), [(7, 7, choices)]);
        assert_eq!(answer.texts().len(), 7);
    };
    only(&placed(UsagePlacement::FinalChunk), json!([]));
    only(&placed(UsagePlacement::NullChoices), Value::Null);
    only(&placed(UsagePlacement::AbsentChoices), json!("absent"));

    let answer = placed(UsagePlacement::InChoicesChunk);
    let found = usages(&answer);
    assert_eq!((found.len(), found[0].0, found[0].1), (1, 7, 7));
    assert_eq!(found[0].2[0]["finish_reason"], "length");
    assert_eq!(found[0].2[0]["text"], "");
    assert!(answer.texts()[..7].iter().all(|t| !t.is_empty()));

    let found = usages(&placed(UsagePlacement::EveryChunk));
    assert_eq!(
        found.iter().map(|f| f.1).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6, 7, 7]
    );

    let answer = placed(UsagePlacement::None);
    assert_eq!(
        (usages(&answer), answer.finish().as_deref()),
        (vec![], Some("length"))
    );
}

#[test]
fn usage_that_was_not_asked_for_is_not_sent_as_in_vllm() {
    let body = r#"{"prompt":"a b","max_tokens":3,"stream":true}"#;
    let ask = |usage| {
        let server = MockServer::spawn(MockConfig { usage, ..quick() }).unwrap();
        usages(&post(server.addr(), COMPLETIONS, body)).len()
    };
    assert_eq!(ask(UsagePlacement::FinalChunk), 0);
    assert_eq!(ask(UsagePlacement::InChoicesChunk), 1);
    assert_eq!(ask(UsagePlacement::EveryChunk), 3);
}

#[test]
fn fr_03_continuous_usage_tells_the_tokens_of_each_chunk() {
    let config = MockConfig {
        first_chunk_tokens: 5,
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    let body = r#"{"prompt":[1],"max_tokens":20,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}"#;
    let answer = post(server.addr(), COMPLETIONS, body);
    let counts: Vec<u64> = usages(&answer).iter().map(|u| u.1).collect();
    assert_eq!(counts, (5..=20).chain([20]).collect::<Vec<_>>());
}

#[test]
fn fr_02_chunks_follow_the_cycle_and_ids_tell_their_tokens() {
    let config = MockConfig {
        tokens_per_chunk: vec![3, 4, 4, 2],
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    let body = r#"{"prompt":[1],"max_tokens":13,"stream":true,"return_token_ids":true}"#;
    let answer = post(server.addr(), COMPLETIONS, body);
    let ids: Vec<usize> = answer
        .chunks_json()
        .iter()
        .map(|v| v["choices"][0]["token_ids"].as_array().unwrap().len())
        .collect();
    assert_eq!(ids, [1, 3, 4, 4, 1]);
    let words: Vec<usize> = answer
        .texts()
        .iter()
        .map(|t| t.split_whitespace().count())
        .collect();
    assert_eq!(words, ids);
}

#[test]
fn stream_interval_gathers_tokens_but_never_the_first() {
    let config = MockConfig {
        stream_interval: 4,
        ..quick()
    };
    let words: Vec<usize> = streamed(config, 12)
        .texts()
        .iter()
        .map(|t| t.split_whitespace().count())
        .collect();
    assert_eq!(words, [1, 4, 4, 3]);
}

#[test]
fn fr_06_reasoning_comes_first_under_the_chosen_name() {
    for (field, name) in [
        (ReasoningField::Reasoning, "reasoning"),
        (ReasoningField::ReasoningContent, "reasoning_content"),
    ] {
        let config = MockConfig {
            reasoning_tokens: 3,
            reasoning_field: field,
            ..quick()
        };
        let server = MockServer::spawn(config).unwrap();
        let answer = chat(server.addr(), 5);
        let chunks = answer.chunks_json();
        let has = |key: &str| -> Vec<bool> {
            chunks[1..6]
                .iter()
                .map(|v| v["choices"][0]["delta"].get(key).is_some())
                .collect()
        };
        assert_eq!(has(name), [true, true, true, false, false]);
        assert_eq!(has("content"), [false, false, false, true, true]);
        let usage = &chunks[6]["usage"];
        assert_eq!(usage["completion_tokens"], 5);
        assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 3);
    }
}

#[test]
fn a_chunk_across_the_end_of_reasoning_has_both_fields() {
    let config = MockConfig {
        reasoning_tokens: 3,
        tokens_per_chunk: vec![4],
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    let chunks = chat(server.addr(), 5).chunks_json();
    let delta = &chunks[2]["choices"][0]["delta"];
    let words = |key: &str| delta[key].as_str().unwrap().split_whitespace().count();
    assert_eq!((words("reasoning"), words("content")), (2, 2));
}

#[test]
fn fr_01_the_role_chunk_comes_when_the_configuration_says() {
    let roles = |role_chunk| {
        let config = MockConfig {
            role_chunk,
            role_content_null: true,
            ..quick()
        };
        let server = MockServer::spawn(config).unwrap();
        let chunks = chat(server.addr(), 2).chunks_json();
        let role = |v: &Value| v["choices"][0]["delta"].get("role").is_some();
        (
            chunks.len(),
            role(&chunks[0]),
            chunks[0]["choices"][0]["delta"]["content"].clone(),
        )
    };
    assert_eq!(roles(RoleChunk::Immediate), (4, true, Value::Null));
    assert_eq!(roles(RoleChunk::WithFirstToken), (4, true, Value::Null));
    let (n, role, content) = roles(RoleChunk::None);
    assert_eq!((n, role), (3, false));
    assert!(content.is_string());
}

#[test]
fn the_end_follows_max_tokens_eos_and_min_tokens() {
    let server = MockServer::spawn(MockConfig {
        eos_after: Some(5),
        ..quick()
    })
    .unwrap();
    let ask = |extra: &str| {
        let body = format!(
            r#"{{"prompt":[1],"stream":true,"stream_options":{{"include_usage":true}}{extra}}}"#
        );
        let answer = post(server.addr(), COMPLETIONS, &body);
        let usage = answer.chunks_json().last().unwrap()["usage"]["completion_tokens"].clone();
        (usage.as_u64().unwrap(), answer.finish().unwrap())
    };
    let (stop, length) = ("stop".to_owned(), "length".to_owned());
    assert_eq!(ask(r#","max_tokens":9"#), (5, stop.clone()));
    assert_eq!(ask(r#","max_tokens":4"#), (4, length.clone()));
    assert_eq!(
        ask(r#","max_tokens":9,"ignore_eos":true"#),
        (9, length.clone())
    );
    assert_eq!(ask(r#","max_tokens":9,"min_tokens":7"#), (7, stop));
    assert_eq!(
        ask(r#","max_tokens":9,"min_tokens":9,"ignore_eos":true"#),
        (9, length)
    );
}

#[test]
fn chat_takes_max_completion_tokens_and_adds_the_template() {
    let server = MockServer::spawn(MockConfig {
        chat_overhead_tokens: 11,
        ..quick()
    })
    .unwrap();
    let body =
        r#"{"messages":[{"role":"user","content":"one two three"}],"max_completion_tokens":3}"#;
    let usage = &post(server.addr(), CHAT, body).json()["usage"];
    assert_eq!(
        (&usage["prompt_tokens"], &usage["completion_tokens"]),
        (&json!(14), &json!(3))
    );
}

#[test]
fn several_prompts_are_several_choices() {
    let server = MockServer::spawn(quick()).unwrap();
    let body = r#"{"prompt":["a b","c"],"max_tokens":2,"stream":true,"stream_options":{"include_usage":true}}"#;
    let answer = post(server.addr(), COMPLETIONS, body);
    let chunks = answer.chunks_json();
    let indices: Vec<u64> = chunks[..4]
        .iter()
        .map(|v| v["choices"][0]["index"].as_u64().unwrap())
        .collect();
    assert_eq!(indices, [0, 1, 0, 1]);
    let want = json!({"prompt_tokens": 3, "total_tokens": 7, "completion_tokens": 4});
    assert_eq!(chunks[4]["usage"], want);
}
