//! `/metrics` and the prefix cache behind it.

use linktax_mockserver::{MockConfig, MockServer, Mode};

use crate::client::{COMPLETIONS, Client, stream_body};

fn quick() -> MockConfig {
    MockConfig {
        ttft_ms: 1.0,
        step_ms: 0.5,
        ..MockConfig::default()
    }
}

struct Page(String);

impl Page {
    fn get(client: &mut Client) -> Self {
        let answer = client.get("/metrics");
        let kind = "text/plain; version=1.0.0; charset=utf-8";
        assert_eq!(answer.header("content-type"), Some(kind));
        Page(answer.text().to_owned())
    }

    /// Sum over the samples of a series that have this label text.
    fn sum(&self, name: &str, label: &str) -> f64 {
        let of = |l: &&str| l.starts_with(&format!("vllm:{name}{{")) && l.contains(label);
        let value = |l: &str| l.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
        self.0.lines().filter(of).map(value).sum()
    }
}

fn prompt(ids: impl Iterator<Item = u64>) -> String {
    let ids: Vec<String> = ids.map(|i| i.to_string()).collect();
    format!(r#"{{"prompt":[{}],"max_tokens":2}}"#, ids.join(","))
}

#[test]
fn every_series_is_one_of_vllm_with_its_type() {
    let known = include_str!("../data/metrics_types.txt");
    let config = MockConfig {
        tokens_per_chunk: vec![4],
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    let page = Page::get(&mut Client::connect(server.addr())).0;
    let types: Vec<&str> = page.lines().filter(|l| l.starts_with("# TYPE")).collect();
    assert!(types.len() > 20);
    for line in types {
        assert!(known.lines().any(|k| k == line), "{line}");
    }
    let samples = page.lines().filter(|l| !l.starts_with('#'));
    for line in samples {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(
            series.contains("engine=\"0\"") && series.ends_with('}'),
            "{line}"
        );
    }
}

#[test]
fn fr_10_prefix_cache_counters_tell_warm_from_cold() {
    for mode in [Mode::PerRequest, Mode::Engine] {
        let config = MockConfig {
            mode,
            prompt_tokens_details: true,
            ..quick()
        };
        let server = MockServer::spawn(config).unwrap();
        let mut client = Client::connect(server.addr());
        let mut ask = |body: &str| {
            let answer = client.post(COMPLETIONS, body).json();
            answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                .as_u64()
                .unwrap()
        };
        assert_eq!(ask(&prompt(0..512)), 0);
        // As recorded from vLLM, less than the whole prompt hits: the last token is computed.
        assert_eq!(ask(&prompt(0..512)), 496);
        assert_eq!(ask(&prompt((0..100).chain(9_000..9_100))), 96);
        let mut client = Client::connect(server.addr());
        let page = Page::get(&mut client);
        assert_eq!(page.sum("prefix_cache_queries_total", ""), 1224.0);
        assert_eq!(page.sum("prefix_cache_hits_total", ""), 592.0);
        assert_eq!(page.sum("prompt_tokens_total", ""), 1224.0);
        assert_eq!(client.post("/reset_prefix_cache", "").status, 200);
        let answer = client.post(COMPLETIONS, &prompt(0..512)).json();
        assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    }
}

#[test]
fn a_small_cache_forgets() {
    let config = MockConfig {
        prefix_cache_tokens: 512,
        prompt_tokens_details: true,
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    let mut client = Client::connect(server.addr());
    let mut ask = |from: u64| {
        let answer = client.post(COMPLETIONS, &prompt(from..from + 320)).json();
        answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(
        [ask(0), ask(0), ask(1_000), ask(2_000), ask(0)],
        [0, 304, 0, 0, 0]
    );
}

#[test]
fn requests_tokens_and_times_are_counted() {
    let server = MockServer::spawn(quick()).unwrap();
    let mut client = Client::connect(server.addr());
    for _ in 0..3 {
        client.post(COMPLETIONS, &stream_body(5));
    }
    let page = Page::get(&mut client);
    assert_eq!(page.sum("generation_tokens_total", ""), 15.0);
    assert_eq!(page.sum("prompt_tokens_total", ""), 9.0);
    assert_eq!(page.sum("request_success_total", "length"), 3.0);
    assert_eq!(page.sum("request_success_total", ""), 3.0);
    assert_eq!(page.sum("num_preemptions_total", ""), 0.0);
    assert_eq!(page.sum("num_requests_running", ""), 0.0);
    let counts = [
        ("time_to_first_token_seconds", 3.0),
        ("inter_token_latency_seconds", 12.0),
        ("request_queue_time_seconds", 3.0),
        ("e2e_request_latency_seconds", 3.0),
    ];
    for (name, n) in counts {
        assert_eq!(page.sum(&format!("{name}_count"), ""), n, "{name}");
        assert_eq!(page.sum(&format!("{name}_bucket"), "+Inf"), n, "{name}");
    }
    // The schedule itself is exact: 1 ms to the first token, steps of 0.5 ms.
    let sum = page.sum("time_to_first_token_seconds_sum", "");
    assert!((sum - 0.003).abs() < 1e-9, "{sum}");
    let sum = page.sum("inter_token_latency_seconds_sum", "");
    assert!((sum - 0.006).abs() < 1e-9, "{sum}");
}

#[test]
fn preemptions_and_drafts_are_as_configured() {
    let config = MockConfig {
        preemptions_per_request: 2,
        tokens_per_chunk: vec![3, 4, 4, 2],
        ..quick()
    };
    let server = MockServer::spawn(config).unwrap();
    let mut client = Client::connect(server.addr());
    client.post(COMPLETIONS, &stream_body(14));
    let page = Page::get(&mut client);
    assert_eq!(page.sum("num_preemptions_total", ""), 2.0);
    assert_eq!(page.sum("spec_decode_num_drafts_total", ""), 4.0);
    assert_eq!(page.sum("spec_decode_num_draft_tokens_total", ""), 12.0);
    assert_eq!(page.sum("spec_decode_num_accepted_tokens_total", ""), 9.0);
    assert_eq!(
        page.sum(
            "spec_decode_num_accepted_tokens_per_pos_total",
            "position=\"2\""
        ),
        2.0
    );
}

#[test]
fn fr_10_metrics_can_be_absent() {
    let server = MockServer::spawn(MockConfig {
        metrics: false,
        ..quick()
    })
    .unwrap();
    assert_eq!(Client::connect(server.addr()).get("/metrics").status, 404);
}
