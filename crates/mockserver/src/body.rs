//! The JSON body of a generation request: read, and checked as vLLM checks it.

use serde::Deserialize;
use serde_json::Value;

use crate::config::MockConfig;
use crate::prompt::{Message, Prompt, PromptTokens, Prompts};

/// A request that is refused.
#[derive(Debug, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// The error document of vLLM, keys in its order.
pub(crate) fn error_json(message: &str, kind: &str, param: Option<&str>, code: u16) -> String {
    let quote = |text: &str| Value::from(text).to_string();
    let param = param.map_or("null".to_owned(), quote);
    format!(
        r#"{{"error":{{"message":{},"type":{},"param":{param},"code":{code}}}}}"#,
        quote(message),
        quote(kind)
    )
}

fn refuse(message: &str, param: Option<&str>) -> ApiError {
    ApiError {
        status: 400,
        body: error_json(message, "BadRequestError", param, 400),
    }
}

/// A refusal of the validation layer: `what` is the repr of pydantic's error.
pub(crate) fn invalid(what: &str, param: Option<&str>) -> ApiError {
    let message = format!("1 validation error:\n  {what}");
    ApiError {
        status: 400,
        body: error_json(&message, "Bad Request", param, 400),
    }
}

/// What was asked, checked.
#[derive(Debug)]
pub(crate) struct GenRequest {
    pub(crate) chat: bool,
    pub(crate) prompts: Vec<PromptTokens>,
    pub(crate) max_tokens: u64,
    pub(crate) min_tokens: u64,
    pub(crate) ignore_eos: bool,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    pub(crate) continuous_usage: bool,
    pub(crate) token_ids: bool,
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(default)]
    model: Option<String>,
    #[serde(borrow, default)]
    prompt: Option<Prompts<'a>>,
    #[serde(borrow, default)]
    messages: Option<Vec<Message<'a>>>,
    #[serde(default)]
    max_tokens: Value,
    #[serde(default)]
    max_completion_tokens: Value,
    #[serde(default)]
    min_tokens: Value,
    #[serde(default)]
    n: Value,
    #[serde(default)]
    temperature: Value,
    #[serde(default)]
    ignore_eos: Option<bool>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<serde_json::Map<String, Value>>,
    #[serde(default)]
    return_token_ids: Option<bool>,
}

fn json_error(body: &[u8], e: &serde_json::Error) -> ApiError {
    let before = body.split(|b| *b == b'\n').take(e.line().saturating_sub(1));
    let column = e.column().saturating_sub(1);
    // As Python counts: from 0, and one past the end where more was expected.
    let at = if e.is_eof() {
        body.len()
    } else {
        before.map(|line| line.len() + 1).sum::<usize>() + column
    };
    if e.is_data() {
        let why = e.to_string().replace('\'', "\"");
        return invalid(
            &format!("{{'type': 'value_error', 'loc': 'body', 'msg': '{why}'}}"),
            None,
        );
    }
    let what = format!(
        "{{'type': 'json_invalid', 'loc': 'body.{at}', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {{'error': 'Expecting value'}}}}"
    );
    invalid(&what, Some(&format!("body.{at}")))
}

fn integer(value: &Value, name: &str) -> Result<Option<i64>, ApiError> {
    if value.is_null() {
        return Ok(None);
    }
    if let Some(n) = value.as_i64() {
        return Ok(Some(n));
    }
    let (kind, msg, input) = match value {
        Value::String(s) => (
            "int_parsing",
            "Input should be a valid integer, unable to parse string as an integer",
            format!("'{s}'"),
        ),
        other => (
            "int_type",
            "Input should be a valid integer",
            other.to_string(),
        ),
    };
    let loc = format!("body.{name}");
    let what = format!("{{'type': '{kind}', 'loc': '{loc}', 'msg': '{msg}', 'input': {input}}}");
    Err(invalid(&what, Some(&loc)))
}

impl GenRequest {
    /// Reads the body of a chat or text completion.
    pub(crate) fn parse(config: &MockConfig, chat: bool, body: &[u8]) -> Result<Self, ApiError> {
        let read: Body<'_> = serde_json::from_slice(body).map_err(|e| json_error(body, &e))?;
        known_model(config, read.model.as_deref())?;
        check_sampling(&read)?;
        let token_ids = read.return_token_ids.unwrap_or(false);
        let prompts = if chat {
            chat_prompt(config, read.messages.as_deref(), token_ids)?
        } else {
            text_prompts(config, read.prompt.as_ref(), token_ids)?
        };
        let (include_usage, continuous_usage) = usage_options(config, &read)?;
        let limit = match (
            chat,
            integer(&read.max_completion_tokens, "max_completion_tokens")?,
        ) {
            (true, Some(n)) => Some(n),
            _ => integer(&read.max_tokens, "max_tokens")?,
        };
        let longest = prompts.iter().map(|p| p.count).max().unwrap_or(0);
        let max_tokens = output_limit(config, chat, longest, limit)?;
        let min_tokens = integer(&read.min_tokens, "min_tokens")?.unwrap_or(0).max(0) as u64;
        if min_tokens > max_tokens {
            let why = format!(
                "min_tokens must be less than or equal to max_tokens={max_tokens}, got {min_tokens}."
            );
            return Err(refuse(&why, None));
        }
        Ok(GenRequest {
            chat,
            prompts,
            max_tokens,
            min_tokens,
            ignore_eos: read.ignore_eos.unwrap_or(false),
            stream: read.stream.unwrap_or(false),
            include_usage,
            continuous_usage,
            token_ids,
        })
    }
}

fn known_model(config: &MockConfig, model: Option<&str>) -> Result<(), ApiError> {
    match model {
        Some(name) if name != config.model => {
            let why = format!(
                "The model `{name}` does not exist. Valid aliases: {}.",
                config.model
            );
            let body = error_json(&why, "NotFoundError", Some("model"), 404);
            Err(ApiError { status: 404, body })
        }
        _ => Ok(()),
    }
}

fn check_sampling(read: &Body<'_>) -> Result<(), ApiError> {
    if let Some(t) = read.temperature.as_f64().filter(|t| *t < 0.0) {
        let why = format!(
            "temperature must be non-negative, got {t:?}. (parameter=temperature, value={t:?})"
        );
        return Err(refuse(&why, Some("temperature")));
    }
    match integer(&read.n, "n")?.unwrap_or(1) {
        1 => Ok(()),
        n if n < 1 => Err(refuse(&format!("n must be at least 1, got {n}."), None)),
        n => Err(refuse(
            &format!("n must be 1 when using greedy sampling, got {n}."),
            None,
        )),
    }
}

fn usage_options(config: &MockConfig, read: &Body<'_>) -> Result<(bool, bool), ApiError> {
    let Some(options) = &read.stream_options else {
        return Ok((false, false));
    };
    if !read.stream.unwrap_or(false) {
        let why =
            "Stream options can only be defined when `stream=True`. (parameter=stream_options)";
        return Err(refuse(why, Some("stream_options")));
    }
    let unknown = options.keys().find(|k| *k != "include_usage");
    if let Some(key) = unknown.filter(|_| config.reject_unknown_stream_options) {
        let loc = format!("body.stream_options.{key}");
        let what = format!(
            "{{'type': 'extra_forbidden', 'loc': '{loc}', 'msg': 'Extra inputs are not permitted'}}"
        );
        return Err(invalid(&what, Some(&loc)));
    }
    let on = |key| options.get(key).and_then(Value::as_bool).unwrap_or(false);
    let include = on("include_usage");
    Ok((include, include && on("continuous_usage_stats")))
}

fn chat_prompt(
    config: &MockConfig,
    messages: Option<&[Message<'_>]>,
    ids: bool,
) -> Result<Vec<PromptTokens>, ApiError> {
    let Some(messages) = messages else {
        let what = "{'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required', 'input': '<dict of 1 items>'}";
        return Err(invalid(what, Some("body.messages")));
    };
    if messages.is_empty() {
        let why =
            "Cannot apply chat template to an empty conversation. Provide at least one message.";
        return Err(refuse(why, None));
    }
    let texts = messages.iter().flat_map(|m| &m.content.0);
    let parts: Vec<Prompt<'_>> = texts
        .map(|t| Prompt::Text(std::borrow::Cow::Borrowed(t.as_ref())))
        .collect();
    Ok(vec![PromptTokens::new(
        config,
        config.chat_overhead_tokens,
        &parts,
        ids,
    )])
}

fn text_prompts(
    config: &MockConfig,
    prompts: Option<&Prompts<'_>>,
    ids: bool,
) -> Result<Vec<PromptTokens>, ApiError> {
    let empty = |p: &Prompt<'_>| match p {
        Prompt::Text(text) => text.is_empty(),
        Prompt::Ids(ids) => ids.is_empty(),
    };
    match prompts {
        Some(Prompts(list)) if !list.is_empty() && !list.iter().any(empty) => Ok(list
            .iter()
            .map(|p| PromptTokens::new(config, 0, std::slice::from_ref(p), ids))
            .collect()),
        _ => {
            let why =
                "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)";
            Err(refuse(why, Some("prompt")))
        }
    }
}

fn output_limit(
    config: &MockConfig,
    chat: bool,
    prompt: u64,
    asked: Option<i64>,
) -> Result<u64, ApiError> {
    let most = config.max_model_len;
    if prompt > most {
        let why = format!(
            "This model's maximum context length is {most} tokens. However, your prompt contains {prompt} input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value={prompt})"
        );
        return Err(refuse(&why, Some("input_tokens")));
    }
    let left = most - prompt;
    let wanted = match (asked, chat) {
        (Some(n), _) => n,
        (None, true) => i64::try_from(left).unwrap_or(i64::MAX),
        (None, false) => 16,
    };
    let wanted = wanted.min(
        i64::try_from(left)
            .unwrap_or(i64::MAX)
            .max(asked.unwrap_or(0).min(0)),
    );
    if let Some(n) = asked.filter(|n| *n > 0 && *n as u64 > most) {
        let why = format!(
            "max_tokens={n} cannot be greater than max_model_len={most}. Please request fewer output tokens. (parameter=max_tokens, value={n})"
        );
        return Err(refuse(&why, Some("max_tokens")));
    }
    u64::try_from(wanted).ok().filter(|n| *n > 0).ok_or_else(|| {
        let why = format!(
            "max_tokens must be at least 1, got {wanted}. (parameter=max_tokens, value={wanted})"
        );
        refuse(&why, Some("max_tokens"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(chat: bool, body: &str) -> Result<GenRequest, ApiError> {
        GenRequest::parse(&MockConfig::default(), chat, body.as_bytes())
    }

    #[test]
    fn limits_follow_the_endpoint() {
        let limit = |chat, body| parse(chat, body).map(|r| r.max_tokens);
        assert_eq!(limit(false, r#"{"prompt":"a"}"#), Ok(16));
        assert_eq!(limit(false, r#"{"prompt":"a","max_tokens":5}"#), Ok(5));
        assert_eq!(
            limit(true, r#"{"messages":[{"role":"user","content":"a"}]}"#),
            Ok(262_144 - 9)
        );
        let both = r#"{"messages":[{"content":"a"}],"max_tokens":5,"max_completion_tokens":7}"#;
        assert_eq!(limit(true, both), Ok(7));
        let long = format!(
            r#"{{"prompt":[{}1],"max_tokens":5000}}"#,
            "1,".repeat(262_140)
        );
        assert_eq!(limit(false, &long), Ok(3));
    }

    #[test]
    fn chat_counts_words_of_all_messages_and_the_template() {
        let body = r#"{"messages":[{"role":"system","content":"be brief"},{"role":"user","content":[{"type":"text","text":"one two"},{"type":"image_url","image_url":{"url":"x y"}}]},{"role":"assistant","content":null}]}"#;
        assert_eq!(parse(true, body).unwrap().prompts[0].count, 12);
    }

    #[test]
    fn continuous_usage_needs_include_usage() {
        let body = |o: &str| format!(r#"{{"prompt":"a","stream":true,"stream_options":{o}}}"#);
        let options = |o| {
            let r = parse(false, &body(o)).unwrap();
            (r.include_usage, r.continuous_usage)
        };
        assert_eq!(options(r#"{"include_usage":true}"#), (true, false));
        assert_eq!(
            options(r#"{"include_usage":true,"continuous_usage_stats":true}"#),
            (true, true)
        );
        assert_eq!(
            options(r#"{"continuous_usage_stats":true}"#),
            (false, false)
        );
    }
}
