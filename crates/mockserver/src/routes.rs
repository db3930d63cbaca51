//! Which path is answered by what.

use linktax_records::Nanos;
use serde_json::{Value, json};

use crate::body::{ApiError, invalid};
use crate::conn::{Conn, Gone};
use crate::generate;
use crate::http::Request;
use crate::prompt::word_ids;
use crate::stats::RecordedRequest;

const JSON: &str = "application/json";
const METRICS: &str = "text/plain; version=1.0.0; charset=utf-8";

enum Route {
    Completions,
    Chat,
    Models,
    Version,
    Health,
    Metrics,
    Tokenize,
    ResetPrefixCache,
    Profile,
}

/// The route and the method that it takes.
fn route(path: &str, metrics: bool) -> Option<(Route, &'static str)> {
    Some(match path {
        "/v1/completions" => (Route::Completions, "POST"),
        "/v1/chat/completions" => (Route::Chat, "POST"),
        "/v1/models" => (Route::Models, "GET"),
        "/version" => (Route::Version, "GET"),
        "/health" => (Route::Health, "GET"),
        "/metrics" if metrics => (Route::Metrics, "GET"),
        "/tokenize" => (Route::Tokenize, "POST"),
        "/reset_prefix_cache" => (Route::ResetPrefixCache, "POST"),
        "/start_profile" | "/stop_profile" => (Route::Profile, "POST"),
        _ => return None,
    })
}

/// Answers one request. Returns whether the connection is kept.
pub(crate) async fn answer(conn: &mut Conn, request: Request) -> Result<bool, Gone> {
    let config = conn.server.config.clone();
    let keep = request.keep_alive;
    if config.record_requests && request.method == "POST" {
        record(conn, &request);
    }
    if let Some(key) = &config.api_key
        && request.path.starts_with("/v1")
        && request.header("authorization") != Some(&format!("Bearer {key}"))
    {
        return conn
            .respond(401, JSON, "", br#"{"error":"Unauthorized"}"#, keep)
            .await;
    }
    let Some((route, method)) = route(&request.path, config.metrics) else {
        return conn
            .respond(404, JSON, "", br#"{"detail":"Not Found"}"#, keep)
            .await;
    };
    if request.method != method {
        let allow = format!("allow: {method}\r\n");
        let body = br#"{"detail":"Method Not Allowed"}"#;
        return conn.respond(405, JSON, &allow, body, keep).await;
    }
    let takes_json = matches!(route, Route::Completions | Route::Chat | Route::Tokenize);
    if takes_json && let Err(e) = check_content_type(&request) {
        return refuse(conn, &e, keep).await;
    }
    let (content_type, body) = match route {
        Route::Completions => return generate::answer(conn, request, false).await,
        Route::Chat => return generate::answer(conn, request, true).await,
        Route::Tokenize => match tokenize(conn, &request) {
            Ok(body) => (JSON, body),
            Err(e) => return refuse(conn, &e, keep).await,
        },
        Route::Models => (JSON, models(conn)),
        Route::Version => (JSON, json!({"version": config.version}).to_string()),
        Route::Metrics => (METRICS, metrics(conn)),
        Route::ResetPrefixCache => {
            if let Some(cache) = &mut *conn.server.books.cache.borrow_mut() {
                cache.reset();
            }
            ("", String::new())
        }
        Route::Health | Route::Profile => ("", String::new()),
    };
    conn.respond(200, content_type, "", body.as_bytes(), keep)
        .await
}

fn record(conn: &Conn, request: &Request) {
    conn.server.stats.record(RecordedRequest {
        arrival: Nanos::from_nanos(request.arrival),
        connection: conn.number,
        path: request.path.clone(),
        headers: request.headers.clone(),
        body: request.body().to_vec(),
    });
}

fn metrics(conn: &Conn) -> String {
    let server = &conn.server;
    let (running, waiting) = server.load();
    server
        .books
        .metrics
        .borrow()
        .render(&server.config, running, waiting)
}

/// Answers with an error document.
pub(crate) async fn refuse(conn: &mut Conn, e: &ApiError, keep: bool) -> Result<bool, Gone> {
    conn.respond(e.status, JSON, "", e.body.as_bytes(), keep)
        .await
}

fn check_content_type(request: &Request) -> Result<(), ApiError> {
    let given = request.header("content-type").unwrap_or("");
    let media = given.split(';').next().unwrap_or("").trim();
    if media.eq_ignore_ascii_case(JSON) {
        return Ok(());
    }
    Err(invalid(
        "Unsupported Media Type: Only 'application/json' is allowed",
        None,
    ))
}

fn models(conn: &Conn) -> String {
    let server = &conn.server;
    let created = server.unix_seconds(server.started_ns);
    // Written by hand to keep vLLM's order of keys.
    format!(
        r#"{{"object":"list","data":[{{"id":{id},"object":"model","created":{created},"owned_by":"vllm","root":{id},"parent":null,"max_model_len":{len},"permission":[{{"id":"modelperm-{seed:016x}","object":"model_permission","created":{created},"allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,"allow_view":true,"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}}]}}]}}"#,
        id = Value::from(server.config.model.as_str()),
        len = server.config.max_model_len,
        seed = server.started_ns,
    )
}

/// Words are tokens. Takes `prompt` or `messages`, as vLLM does.
fn tokenize(conn: &Conn, request: &Request) -> Result<String, ApiError> {
    let config = &conn.server.config;
    let body: Value = serde_json::from_slice(request.body()).map_err(|e| {
        invalid(
            &format!("{{'type': 'json_invalid', 'loc': 'body', 'msg': '{e}'}}"),
            None,
        )
    })?;
    let mut tokens: Vec<u64> = Vec::new();
    if let Some(text) = body.get("prompt").and_then(Value::as_str) {
        tokens.extend(word_ids(text).map(u64::from));
    } else if let Some(messages) = body.get("messages").and_then(Value::as_array) {
        tokens.extend(0..config.chat_overhead_tokens);
        let texts = messages
            .iter()
            .filter_map(|m| m.get("content").and_then(Value::as_str));
        texts.for_each(|text| tokens.extend(word_ids(text).map(u64::from)));
    } else {
        let what = "{'type': 'missing', 'loc': 'body.prompt', 'msg': 'Field required'}";
        return Err(invalid(what, Some("body.prompt")));
    }
    let mut list = Vec::new();
    crate::chunk::numbers(&mut list, tokens.iter().copied());
    Ok(format!(
        r#"{{"count":{},"max_model_len":{},"tokens":{},"token_strs":null}}"#,
        tokens.len(),
        config.max_model_len,
        String::from_utf8_lossy(&list)
    ))
}
