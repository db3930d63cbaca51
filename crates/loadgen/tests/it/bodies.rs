use std::io::Write;

use linktax_loadgen::workload::{PromptKind, WorkloadKind, WorkloadSpec};
use linktax_loadgen::{Endpoint, LoadPlan, Secrets, TokenCounting};
use linktax_mockserver::{MockConfig, ReasoningField};
use linktax_records::{EventClass, TokenSource};
use serde_json::json;

use crate::harness::{
    Ran, Sent, assert_reads_follow, closed, header, plan, quick, run, run_with, sent, spawn,
};

fn recording() -> MockConfig {
    MockConfig {
        record_requests: true,
        ..quick()
    }
}

/// Runs `adjust`ed requests and returns what was sent.
fn seen(adjust: impl FnOnce(LoadPlan) -> LoadPlan) -> (Ran, Vec<Sent>) {
    let server = spawn(recording());
    let ran = run(adjust(plan(server.base_url(), closed(1, 2))));
    (ran, sent(&server.shutdown()))
}

#[test]
fn a_completion_asks_for_exact_lengths_and_running_usage() {
    let (ran, sent) = seen(|plan| plan);
    ran.assert_all_completed(2);
    for s in &sent {
        assert_eq!(s.raw.path, "/v1/completions");
        assert_eq!(s.prompt().len(), 16);
        let body = &s.body;
        for (key, value) in [
            ("model", json!("mock")),
            ("stream", json!(true)),
            ("max_tokens", json!(6)),
            ("min_tokens", json!(6)),
            ("ignore_eos", json!(true)),
            ("temperature", json!(0.0)),
            (
                "stream_options",
                json!({"include_usage": true, "continuous_usage_stats": true}),
            ),
        ] {
            assert_eq!(body[key], value, "{key}");
        }
        assert_eq!(header(&s.raw, "content-type"), Some("application/json"));
        assert_eq!(header(&s.raw, "accept"), Some("text/event-stream"));
        assert!(header(&s.raw, "authorization").is_none());
        let agent = header(&s.raw, "user-agent").unwrap();
        assert!(agent.starts_with("linktax/"), "{agent}");
    }
    for r in ran.measured() {
        assert_eq!((r.input_len, r.output_len), (Some(16), 6));
        let usage = r.usage.unwrap();
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (16, 6));
        assert_eq!(r.token_source, TokenSource::ContinuousUsage);
        assert_eq!(r.finish_reason.as_deref(), Some("length"));
        assert!(r.done_marker && r.text.is_none());
    }
}

#[test]
fn what_the_user_adds_wins_over_the_defaults() {
    let (ran, sent) = seen(|mut plan| {
        let extra = json!({"top_p": 0.5, "temperature": 0.7, "logit_bias": {"5": 1}});
        plan.sampling.extra_body = extra.as_object().unwrap().clone();
        plan.sampling.ignore_eos = false;
        plan
    });
    ran.assert_all_completed(2);
    let body = &sent[0].body;
    assert_eq!(body["top_p"], json!(0.5));
    assert_eq!(body["temperature"], json!(0.7));
    assert_eq!(body["logit_bias"], json!({"5": 1}));
    assert!(body.get("ignore_eos").is_none() && body.get("min_tokens").is_none());

    let (_, sent) = seen(|mut plan| {
        plan.sampling.temperature = None;
        plan
    });
    assert!(sent[0].body.get("temperature").is_none());
}

#[test]
fn the_key_and_extra_headers_are_sent_with_every_request() {
    let server = spawn(MockConfig {
        api_key: Some("sesame".to_owned()),
        ..recording()
    });
    let secrets = Secrets {
        api_key: Some("sesame".to_owned()),
        headers: vec![("X-Tenant".to_owned(), "blue team".to_owned())],
    };
    let ran = run_with(
        plan(server.base_url(), closed(2, 4)),
        &secrets,
        &mut |_, _| {},
    );
    ran.assert_all_completed(4);
    let stats = server.shutdown();
    // The probe too.
    assert_eq!(stats.recorded.len(), 5);
    for r in &stats.recorded {
        assert_eq!(header(r, "authorization"), Some("Bearer sesame"));
        assert_eq!(header(r, "x-tenant"), Some("blue team"));
    }
}

#[test]
fn token_counts_come_from_where_they_were_asked_for() {
    for (counting, source) in [
        (TokenCounting::Auto, TokenSource::ContinuousUsage),
        (TokenCounting::Continuous, TokenSource::ContinuousUsage),
        (TokenCounting::TokenIds, TokenSource::TokenIds),
        (TokenCounting::Final, TokenSource::Events),
    ] {
        let (ran, sent) = seen(|plan| LoadPlan {
            token_counting: counting,
            ..plan
        });
        ran.assert_all_completed(2);
        for r in ran.measured() {
            assert_eq!(r.token_source, source, "{counting:?}");
            assert_eq!(r.reads.counted_tokens(), 6, "{counting:?}");
            assert!(r.read_tokens_exact());
        }
        let body = &sent[0].body;
        let continuous = source == TokenSource::ContinuousUsage;
        assert_eq!(
            body["stream_options"]
                .get("continuous_usage_stats")
                .is_some(),
            continuous
        );
        assert_eq!(
            body.get("return_token_ids").is_some(),
            source == TokenSource::TokenIds
        );
    }
}

#[test]
fn a_chat_sends_text_fitted_to_the_server_and_keeps_reasoning_apart() {
    let server = spawn(MockConfig {
        reasoning_tokens: 2,
        reasoning_field: ReasoningField::ReasoningContent,
        ..recording()
    });
    let mut spec = closed(1, 2);
    spec.input_len = Some(40);
    let ran = run(LoadPlan {
        endpoint: Endpoint::Chat,
        workload: WorkloadSpec {
            prompt_kind: Some(PromptKind::Text),
            ..WorkloadSpec::default()
        },
        keep_text: true,
        ..plan(server.base_url(), spec)
    });
    ran.assert_all_completed(2);
    let stats = server.shutdown();
    for s in sent(&stats) {
        assert_eq!(s.raw.path, "/v1/chat/completions");
        assert_eq!(s.body["messages"][0]["role"], "user");
        assert_eq!(s.body["max_completion_tokens"], 6);
        assert!(s.body.get("max_tokens").is_none());
    }
    for r in ran.measured() {
        // The mock's template costs 8 tokens and a word one: 32 words make 40.
        assert_eq!(r.usage.unwrap().prompt_tokens, 40);
        assert_eq!(r.usage.unwrap().reasoning_tokens, Some(2));
        let classes = &r.reads.class;
        assert!(classes.contains(&EventClass::Reasoning), "{classes:?}");
        assert!(classes.contains(&EventClass::Content));
        assert!(r.reads.first_token() < r.reads.first_content());
        // The role chunk is the first event and holds no token; usage and [DONE] end the stream.
        assert_reads_follow(r, &[0, 1, 1, 1, 1, 1, 1, 0, 0]);
        assert!(!r.text.as_deref().unwrap().is_empty());
    }
}

#[test]
fn stamps_of_the_mock_server_become_delivery_lags() {
    let server = spawn(MockConfig {
        stamp: true,
        ..quick()
    });
    let ran = run(LoadPlan {
        send_stamps: true,
        ..plan(server.base_url(), closed(2, 6))
    });
    ran.assert_all_completed(6);
    for r in ran.measured() {
        assert_eq!(r.delivery_lag_ns.len(), r.reads.token_reads().count());
        // Both clocks are one: bytes are read after they were written.
        assert!(r.delivery_lag_ns.iter().all(|&lag| lag > 0), "{r:?}");
    }
}

#[test]
fn the_prompts_of_a_file_are_sent_as_they_are_and_in_order() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, r#"{{"prompt": "one  two", "output_len": 3}}"#).unwrap();
    writeln!(file, r#"{{"prompt": [5, 6, 7], "max_tokens": 4}}"#).unwrap();
    writeln!(file, r#"{{"prompt": "Grüße, 世界"}}"#).unwrap();
    let server = spawn(recording());
    let mut spec = closed(1, 3);
    spec.input_len = None;
    spec.output_len = Some(5);
    spec.cache = linktax_records::CacheMode::Workload;
    let ran = run(LoadPlan {
        workload: WorkloadSpec {
            kind: WorkloadKind::Jsonl,
            path: Some(file.path().to_owned()),
            ..WorkloadSpec::default()
        },
        ..plan(server.base_url(), spec)
    });
    ran.assert_all_completed(3);
    let stats = server.shutdown();
    let sent = sent(&stats);
    let prompts: Vec<_> = sent.iter().map(|s| s.body["prompt"].clone()).collect();
    assert_eq!(
        prompts,
        [json!("one  two"), json!([5, 6, 7]), json!("Grüße, 世界")]
    );
    let lengths: Vec<_> = ran
        .measured()
        .iter()
        .map(|r| {
            (
                r.input_len,
                r.output_len,
                r.usage.unwrap().completion_tokens,
            )
        })
        .collect();
    assert_eq!(lengths, [(None, 3, 3), (Some(3), 4, 4), (None, 5, 5)]);
}

#[test]
fn fr_11_input_tokens_are_those_that_the_server_counted() {
    for (factor, counted) in [(5.128, 5128), (1.003, 1003)] {
        let server = spawn(MockConfig {
            prompt_tokens_factor: factor,
            ..recording()
        });
        let mut spec = closed(1, 1);
        spec.input_len = Some(1000);
        let ran = run(plan(server.base_url(), spec));
        ran.assert_all_completed(1);
        let record = ran.measured()[0];
        assert_eq!(record.input_len, Some(1000));
        assert_eq!(record.usage.unwrap().prompt_tokens, counted);
        assert_eq!(sent(&server.shutdown())[0].prompt().len(), 1000);
    }
}

#[test]
fn fr_11_a_length_of_one_sends_a_prompt() {
    let server = spawn(recording());
    let mut spec = closed(1, 2);
    spec.input_len = Some(1);
    let ran = run(plan(server.base_url(), spec));
    ran.assert_all_completed(2);
    assert!(
        sent(&server.shutdown())
            .iter()
            .all(|s| s.prompt().len() == 1)
    );
}
