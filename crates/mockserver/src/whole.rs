//! An answer in one JSON document.

use std::io::Write as _;
use std::rc::Rc;

use crate::body::error_json;
use crate::chunk::{numbers, quoted};
use crate::config::{MockConfig, ReasoningField};
use crate::conn::{Conn, Gone, Wake};
use crate::fault::FaultKind;
use crate::generate::{ENGINE_DIED, End};
use crate::http::response_head;
use crate::job::Job;
use crate::server::FINGERPRINT;
use crate::text::Words;

const JSON: &str = "application/json";

/// Waits for all tokens, then answers.
pub(crate) async fn run(conn: &mut Conn, mut job: Job, keep: bool) -> Result<End, Gone> {
    let server = Rc::clone(&conn.server);
    let mut tokens = 0;
    let mut first = None;
    let end = loop {
        if let Wake::Step(step) = conn.next(&mut job.source, None).await? {
            tokens += step.tokens;
            server.stats.tokens(step.tokens * job.prompts.len() as u64);
            first = first.or((step.tokens > 0).then_some(step.due));
            if step.last {
                break step.due;
            }
        }
    };
    let cut = job.fault_kind().filter(|k| k.cuts());
    {
        let mut metrics = server.books.metrics.borrow_mut();
        metrics.generation_tokens += tokens * job.prompts.len() as u64;
        if let Some(first) = first {
            metrics.ttft.observe(first.saturating_sub(job.arrival));
        }
        metrics.e2e.observe(end.saturating_sub(job.arrival));
    }
    let mut body = Vec::with_capacity(1024);
    if job.chat {
        chat(&job, &server.config, tokens, &mut body);
    } else {
        completion(&job, &server.config, tokens, &mut body);
    }
    if cut == Some(FaultKind::Hang) {
        conn.until_gone().await;
    }
    job.flight.end(job.finish);
    match cut {
        Some(FaultKind::ErrorFrame | FaultKind::ErrorEvent) => {
            let body = error_json(ENGINE_DIED, "InternalServerError", None, 500);
            let kept = conn.respond(500, JSON, "", body.as_bytes(), keep).await?;
            Ok(End::Kept(kept))
        }
        Some(FaultKind::Hang) => Ok(End::Cut),
        Some(FaultKind::Reset) => {
            conn.reset();
            Ok(End::Cut)
        }
        Some(_) => {
            // Half of what the head promises.
            let mut out = Vec::new();
            response_head(&mut out, 200, JSON, Some(body.len()), "", keep);
            out.extend_from_slice(&body[..body.len() / 2]);
            conn.write(&out).await?;
            Ok(End::Cut)
        }
        None => {
            if job.fault_kind() == Some(FaultKind::BadJson) {
                body.truncate(body.len() / 2);
            }
            Ok(End::Kept(conn.respond(200, JSON, "", &body, keep).await?))
        }
    }
}

fn open(job: &Job, config: &MockConfig, object: &str, out: &mut Vec<u8>) {
    let _ = write!(
        out,
        r#"{{"id":"{}","object":"{object}","created":{},"model":{},"choices":["#,
        job.id,
        job.created,
        quoted(&config.model)
    );
}

fn usage(job: &Job, config: &MockConfig, tokens: u64, out: &mut Vec<u8>) {
    let (prompt, completion) = (job.prompt_tokens, tokens * job.prompts.len() as u64);
    let _ = write!(
        out,
        r#"],"service_tier":null,"system_fingerprint":"{FINGERPRINT}","usage":{{"prompt_tokens":{prompt},"total_tokens":{},"completion_tokens":{completion},"prompt_tokens_details":"#,
        prompt + completion
    );
    if config.prompt_tokens_details {
        let _ = write!(out, r#"{{"cached_tokens":{}}}"#, job.source.cached());
    } else {
        out.extend_from_slice(b"null");
    }
    let reasoning = tokens.min(config.reasoning_tokens);
    if job.chat && config.reasoning_tokens > 0 {
        let _ = write!(
            out,
            r#","completion_tokens_details":{{"reasoning_tokens":{reasoning}}}}}"#
        );
    } else {
        out.extend_from_slice(br#","completion_tokens_details":null}"#);
    }
}

/// A list of ids if they were asked for.
fn ids(out: &mut Vec<u8>, wanted: bool, list: impl Iterator<Item = u64>) {
    if wanted {
        numbers(out, list);
    } else {
        out.extend_from_slice(b"null");
    }
}

fn chat(job: &Job, config: &MockConfig, tokens: u64, out: &mut Vec<u8>) {
    let mut words = Words::new(config.stamp);
    let thought = tokens.min(config.reasoning_tokens);
    let spoken = tokens - thought;
    words.next(0, thought, spoken - u64::from(job.eos && spoken > 0));
    let text = |n, text| {
        if n > 0 {
            quoted(text)
        } else {
            "null".to_owned()
        }
    };
    let field = match config.reasoning_field {
        ReasoningField::Reasoning => "reasoning",
        ReasoningField::ReasoningContent => "reasoning_content",
    };
    open(job, config, "chat.completion", out);
    let _ = write!(
        out,
        r#"{{"index":0,"message":{{"role":"assistant","content":{},"refusal":null,"annotations":null,"audio":null,"function_call":null,"{field}":{}}},"logprobs":null,"finish_reason":"{}","stop_reason":null,"token_ids":"#,
        text(spoken, words.content()),
        text(thought, words.reasoning()),
        job.finish.name()
    );
    ids(out, job.token_ids, (0..tokens).map(|i| job.token_id(i)));
    out.extend_from_slice(br#","routed_experts":null}"#);
    usage(job, config, tokens, out);
    out.extend_from_slice(br#","prompt_logprobs":null,"prompt_token_ids":"#);
    let prompt = job.prompts.first().map_or(&[][..], |p| &p.ids);
    ids(out, job.token_ids, prompt.iter().map(|id| u64::from(*id)));
    out.extend_from_slice(
        br#","prompt_text":null,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}"#,
    );
}

fn completion(job: &Job, config: &MockConfig, tokens: u64, out: &mut Vec<u8>) {
    let mut words = Words::new(config.stamp);
    words.next(0, 0, tokens - u64::from(job.eos && tokens > 0));
    open(job, config, "text_completion", out);
    for (index, prompt) in job.prompts.iter().enumerate() {
        let _ = write!(
            out,
            r#"{}{{"index":{index},"text":{},"logprobs":null,"finish_reason":"{}","stop_reason":null,"token_ids":"#,
            if index > 0 { "," } else { "" },
            quoted(words.content()),
            job.finish.name()
        );
        ids(out, job.token_ids, (0..tokens).map(|i| job.token_id(i)));
        out.extend_from_slice(br#","prompt_logprobs":null,"prompt_token_ids":"#);
        ids(
            out,
            job.token_ids,
            prompt.ids.iter().map(|id| u64::from(*id)),
        );
        out.extend_from_slice(br#","routed_experts":null}"#);
    }
    usage(job, config, tokens, out);
    out.extend_from_slice(
        br#","kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}"#,
    );
}
