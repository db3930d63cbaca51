use linktax_loadgen::{LoadPlan, Run, Secrets, TokenCounting};
use linktax_mockserver::{Fault, FaultKind, MockConfig, UsagePlacement};
use linktax_records::{Outcome, TokenSource};

use crate::harness::{closed, header, plan, quick, refusal, run, run_with, sent, spawn};
use crate::scripted::{Say, Scripted, chunk, good, json, stream, token, whole};

#[track_caller]
fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} missing in: {message}");
    }
}

fn key(key: &str) -> Secrets {
    Secrets {
        api_key: Some(key.to_owned()),
        headers: Vec::new(),
    }
}

#[test]
fn a_model_that_is_not_served() {
    let server = spawn(quick());
    let message = refusal(
        LoadPlan {
            model: Some("llama".to_owned()),
            ..plan(server.base_url(), closed(1, 1))
        },
        &Secrets::default(),
    );
    assert_says(
        &message,
        &[
            &server.base_url(),
            "\"llama\"",
            "--model must be one of: mock",
        ],
    );
    assert_eq!(server.shutdown().requests, 0);
}

#[test]
fn a_missing_or_wrong_key() {
    let server = spawn(MockConfig {
        api_key: Some("sesame".to_owned()),
        ..quick()
    });
    let plan = || plan(server.base_url(), closed(1, 2));
    for secrets in [Secrets::default(), key("open")] {
        let message = refusal(plan(), &secrets);
        assert_says(
            &message,
            &["/v1/models", "HTTP status 401", "API key", "--api-key-env"],
        );
        assert!(!message.contains("open"), "{message}");
    }
    run_with(plan(), &key("sesame"), &mut |_, _| {}).assert_all_completed(2);
}

#[test]
fn a_key_that_only_the_completions_ask_for() {
    let server = Scripted::spawn(|asked| {
        vec![Say::Bytes(match asked.line.as_str() {
            "GET /v1/models" => json(200, r#"{"data":[{"id":"tiny"}]}"#),
            line if line.starts_with("POST") => json(403, "{\"error\":\"Forbidden\"}"),
            _ => json(404, "{}"),
        })]
    });
    let message = refusal(plan(server.url(), closed(1, 1)), &Secrets::default());
    assert_says(
        &message,
        &[
            "/v1/completions",
            "HTTP status 403",
            "Forbidden",
            "--api-key-env",
        ],
    );
}

#[test]
fn a_wrong_path() {
    let server = spawn(quick());
    let message = refusal(
        plan(format!("{}/api", server.base_url()), closed(1, 1)),
        &Secrets::default(),
    );
    assert_says(
        &message,
        &[
            "/api/v1/models",
            "HTTP status 404",
            "expected the base URL without /v1/...",
        ],
    );
}

#[test]
fn a_base_url_may_end_in_v1() {
    let server = spawn(quick());
    let ran = run(plan(format!("{}/v1/", server.base_url()), closed(1, 2)));
    ran.assert_all_completed(2);
}

#[test]
fn an_api_that_the_server_lacks() {
    let server = Scripted::spawn(|asked| {
        vec![Say::Bytes(match asked.line.as_str() {
            "GET /v1/models" => json(200, r#"{"data":[{"id":"tiny"}]}"#),
            _ => json(404, r#"{"detail":"Not Found"}"#),
        })]
    });
    let message = refusal(plan(server.url(), closed(1, 1)), &Secrets::default());
    assert_says(
        &message,
        &["/v1/completions", "404", "Not Found", "--endpoint chat"],
    );
}

#[test]
fn a_web_page_in_place_of_an_api() {
    let server = Scripted::spawn(|_| {
        let page = "<!DOCTYPE html>\n<html><body>Welcome</body></html>";
        vec![Say::Bytes(whole(200, "text/html", page))]
    });
    let message = refusal(plan(server.url(), closed(1, 1)), &Secrets::default());
    assert_says(
        &message,
        &["expected JSON", "an HTML page", "check host and port"],
    );
}

#[test]
fn another_json_api() {
    let server = Scripted::spawn(|_| vec![Say::Bytes(json(200, r#"{"ok":true}"#))]);
    let message = refusal(plan(server.url(), closed(1, 1)), &Secrets::default());
    assert_says(
        &message,
        &["expected a list of models under \"data\"", "{\"ok\":true}"],
    );
}

#[test]
fn something_that_is_no_http() {
    let server =
        Scripted::spawn(|_| vec![Say::Bytes(b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()), Say::Fin]);
    let message = refusal(plan(server.url(), closed(1, 1)), &Secrets::default());
    assert_says(&message, &["/v1/models", "no answer", "is the server up?"]);
}

#[test]
fn a_server_that_does_not_stream() {
    for (kind, said) in [
        (FaultKind::NotStream, "text_completion"),
        (FaultKind::Html, "an HTML page"),
    ] {
        let server = spawn(MockConfig {
            fault: vec![Fault::always(kind)],
            ..quick()
        });
        let message = refusal(plan(server.base_url(), closed(1, 1)), &Secrets::default());
        assert_says(
            &message,
            &[
                "/v1/completions",
                "linktax needs a server that streams (stream: true as text/event-stream)",
                said,
            ],
        );
    }
}

#[test]
fn a_server_whose_engine_is_dead() {
    for (kind, said) in [
        (FaultKind::ErrorFrame, "error_in_stream"),
        (FaultKind::JsonError200, "error_in_stream"),
        (FaultKind::Reset, "reset"),
        (FaultKind::Truncate, "truncated"),
        (FaultKind::HttpError, "HTTP status 500"),
        (FaultKind::NoOutput, "without a single token"),
    ] {
        let server = spawn(MockConfig {
            fault: vec![Fault::always(kind)],
            ..quick()
        });
        let message = refusal(plan(server.base_url(), closed(1, 1)), &Secrets::default());
        assert_says(&message, &[said]);
    }
}

#[test]
fn nobody_listens() {
    let url = spawn(quick()).base_url();
    let message = refusal(plan(url.as_str(), closed(1, 1)), &Secrets::default());
    assert_says(
        &message,
        &[&url, "no answer", "refused", "is the server up?", "--mock"],
    );
}

#[test]
fn a_server_that_lists_several_models_or_none() {
    let listing = |models: &'static str| {
        Scripted::spawn(move |asked| {
            vec![Say::Bytes(match asked.line.as_str() {
                "GET /v1/models" => json(200, models),
                line if line.starts_with("POST") => stream(&good(6)),
                _ => json(404, "{}"),
            })]
        })
    };
    let several = listing(r#"{"data":[{"id":"a"},{"id":"b"}]}"#);
    let message = refusal(plan(several.url(), closed(1, 1)), &Secrets::default());
    assert_says(
        &message,
        &["several models", "choose one with --model: a, b"],
    );
    let ran = run(LoadPlan {
        model: Some("b".to_owned()),
        ..plan(several.url(), closed(1, 1))
    });
    ran.assert_all_completed(1);

    let none = listing(r#"{"data":[]}"#);
    let message = refusal(plan(none.url(), closed(1, 1)), &Secrets::default());
    assert_says(&message, &["lists no model"]);
}

#[test]
fn a_redirect_is_an_error_that_names_the_new_place() {
    let server = Scripted::spawn(|_| {
        let head = "HTTP/1.1 308 Permanent Redirect\r\nlocation: https://llm.example/v1/models\r\ncontent-length: 0\r\n\r\n";
        vec![Say::Bytes(head.as_bytes().to_vec())]
    });
    let message = refusal(plan(server.url(), closed(1, 1)), &Secrets::default());
    assert_says(
        &message,
        &[
            "HTTP status 308",
            "https://llm.example/v1/models",
            "--base-url",
        ],
    );
}

#[test]
fn a_redirect_of_the_api_alone_is_named_too() {
    let server = Scripted::spawn(|asked| match asked.line.as_str() {
        "GET /v1/models" => vec![Say::Bytes(json(200, r#"{"data":[{"id":"tiny"}]}"#))],
        _ => {
            let head = "HTTP/1.1 307 Temporary Redirect\r\nlocation: /llm/v1/completions\r\ncontent-length: 0\r\n\r\n";
            vec![Say::Bytes(head.as_bytes().to_vec())]
        }
    });
    let message = refusal(plan(server.url(), closed(1, 1)), &Secrets::default());
    assert_says(&message, &["307", "/llm/v1/completions", "--base-url"]);
}

#[test]
fn a_usage_that_is_no_count_is_not_taken_for_a_missing_stream() {
    let server = Scripted::spawn(|asked| match asked.line.as_str() {
        "GET /v1/models" => vec![Say::Bytes(json(200, r#"{"data":[{"id":"tiny"}]}"#))],
        _ if !asked.line.starts_with("POST") => vec![Say::Bytes(json(404, "{}"))],
        _ => {
            let usage = r#"{"choices":[],"usage":{"prompt_tokens":-3,"completion_tokens":4}}"#;
            vec![Say::Bytes(stream(&[token("x"), chunk(usage)].concat()))]
        }
    });
    let message = refusal(plan(server.url(), closed(1, 1)), &Secrets::default());
    assert_says(&message, &["cannot be read", "-3", "prompt_tokens"]);
    assert!(
        !message.contains("needs a server that streams"),
        "{message}"
    );
}

#[test]
fn a_host_header_of_the_users_is_sent_and_framing_headers_are_refused() {
    let with = |name: &str, value: &str| Secrets {
        api_key: None,
        headers: vec![(name.to_owned(), value.to_owned())],
    };
    let server = spawn(MockConfig {
        record_requests: true,
        ..quick()
    });
    let asked = plan(server.base_url(), closed(1, 1));
    let secrets = with("Host", "llm.example");
    run_with(asked.clone(), &secrets, &mut |_, _| {}).assert_all_completed(1);
    for name in ["Content-Length", "transfer-encoding", "Accept-Encoding"] {
        let message = refusal(asked.clone(), &with(name, "3"));
        assert_says(&message, &["--header", name, "set by linktax itself"]);
    }
    let stats = server.shutdown();
    for request in &stats.recorded {
        assert_eq!(header(request, "host"), Some("llm.example"));
    }
}

#[test]
fn a_server_that_rejects_running_usage_is_asked_without() {
    let strict = || MockConfig {
        reject_unknown_stream_options: true,
        record_requests: true,
        ..quick()
    };
    let server = spawn(strict());
    let ran = run(plan(server.base_url(), closed(1, 3)));
    ran.assert_all_completed(3);
    let note = ran.note("no_continuous_usage").unwrap();
    assert_says(note, &[&server.base_url(), "refuses running usage"]);
    for r in ran.measured() {
        assert_eq!(r.token_source, TokenSource::Events);
        assert_eq!(r.usage.unwrap().completion_tokens, 6);
        // Every event was a token, as the sum proves.
        assert!(r.read_tokens_exact());
    }
    for s in sent(&server.shutdown()) {
        let options = &s.body["stream_options"];
        assert_eq!(options["include_usage"], true);
        assert!(options.get("continuous_usage_stats").is_none());
    }

    // Whoever insists on it is told.
    let server = spawn(strict());
    let message = refusal(
        LoadPlan {
            token_counting: TokenCounting::Continuous,
            ..plan(server.base_url(), closed(1, 1))
        },
        &Secrets::default(),
    );
    assert_says(&message, &["HTTP status 400", "continuous_usage_stats"]);
}

#[test]
fn a_server_without_usage_gives_estimates_and_says_so() {
    let server = spawn(MockConfig {
        usage: UsagePlacement::None,
        ..quick()
    });
    let ran = run(plan(server.base_url(), closed(1, 2)));
    ran.assert_all_completed(2);
    assert_says(
        ran.note("no_usage").unwrap(),
        &[&server.base_url(), "estimated from events"],
    );
    for r in ran.measured() {
        assert!(r.usage.is_none() && r.output_tokens_estimated());
        assert_eq!(r.output_tokens(), 6);
    }
}

#[test]
fn the_second_replica_is_checked_as_well() {
    let good = spawn(quick());
    let other = spawn(MockConfig {
        model: "other".to_owned(),
        ..quick()
    });
    let message = refusal(
        LoadPlan {
            base_urls: vec![good.base_url(), other.base_url()],
            ..plan("", closed(2, 2))
        },
        &Secrets::default(),
    );
    assert_says(&message, &[&other.base_url(), "\"mock\"", "other"]);
}

#[test]
fn what_the_servers_say_of_themselves_is_kept() {
    let server = spawn(MockConfig {
        version: "0.99.1".to_owned(),
        ..quick()
    });
    let run = Run::prepare(plan(server.base_url(), closed(1, 1)), &Secrets::default()).unwrap();
    assert_eq!(run.model(), "mock");
    assert_eq!(run.gpus(), None);
    let said = &run.servers()[0];
    assert_eq!(said["version"], "0.99.1");
    assert_eq!(said["models"][0], "mock");
    assert_eq!(said["base_url"], server.base_url());
}

#[test]
fn gpus_are_counted_where_the_server_tells_its_parallel_sizes() {
    let gpus = |device: &str| {
        let info = format!(
            r#"{{"vllm_config":"model='m', tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=4, device_config={device}, x=1"}}"#
        );
        let server = Scripted::spawn(move |asked| {
            vec![Say::Bytes(match asked.line.as_str() {
                "GET /v1/models" => json(200, r#"{"data":[{"id":"tiny"}]}"#),
                "GET /server_info" => json(200, &info),
                line if line.starts_with("POST") => stream(&good(4)),
                _ => json(404, "{}"),
            })]
        });
        let run = Run::prepare(plan(server.url(), closed(1, 1)), &Secrets::default());
        run.unwrap().gpus()
    };
    assert_eq!(gpus("cuda"), Some(8));
    assert_eq!(gpus("cpu"), None, "a CPU is no GPU");
}

#[test]
fn a_short_probe_is_no_reason_to_stop() {
    // The model may end by itself; whether that matters is for the records to say.
    let server = spawn(MockConfig {
        fault: vec![Fault {
            after_tokens: 2,
            ..Fault::always(FaultKind::Short)
        }],
        ..quick()
    });
    let ran = run(plan(server.base_url(), closed(1, 1)));
    assert_eq!(ran.outcomes(), [Outcome::ShortOutput]);
}
