//! Request bodies, serialised before the clock of their request starts.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::plan::{Endpoint, LoadPlan};
use crate::workload::Prompt;

/// How the server is really asked for token counts, after the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsageMode {
    Continuous,
    TokenIds,
    Final,
}

/// The fields that every request of a run shares, as the inside of a JSON object.
#[derive(Clone, Debug)]
pub(crate) struct BodyTemplate {
    endpoint: Endpoint,
    ignore_eos: bool,
    /// `"model":…,"stream":true,…` without braces.
    shared: String,
}

impl BodyTemplate {
    pub(crate) fn new(plan: &LoadPlan, model: &str, usage: UsageMode) -> BodyTemplate {
        let mut shared = Map::new();
        shared.insert("model".to_owned(), json!(model));
        shared.insert("stream".to_owned(), json!(true));
        let mut stream_options = json!({"include_usage": true});
        match usage {
            UsageMode::Continuous => stream_options["continuous_usage_stats"] = json!(true),
            UsageMode::TokenIds => {
                shared.insert("return_token_ids".to_owned(), json!(true));
            }
            UsageMode::Final => {}
        }
        shared.insert("stream_options".to_owned(), stream_options);
        if let Some(t) = plan.sampling.temperature {
            shared.insert("temperature".to_owned(), json!(t));
        }
        if plan.sampling.ignore_eos {
            shared.insert("ignore_eos".to_owned(), json!(true));
        }
        // What the user gives wins.
        for (key, value) in &plan.sampling.extra_body {
            shared.insert(key.clone(), value.clone());
        }
        let text = Value::Object(shared).to_string();
        BodyTemplate {
            endpoint: plan.endpoint,
            ignore_eos: plan.sampling.ignore_eos,
            shared: text[1..text.len() - 1].to_owned(),
        }
    }

    /// The body of one request.
    pub(crate) fn render(&self, prompt: &Prompt, output_len: u64) -> Bytes {
        let (key, value) = match (self.endpoint, prompt) {
            (Endpoint::Completions, Prompt::TokenIds(ids)) => ("prompt", json_ids(ids)),
            (Endpoint::Completions, Prompt::Text(text)) => ("prompt", json!(text).to_string()),
            (Endpoint::Chat, Prompt::Messages(messages)) => ("messages", messages.to_string()),
            (Endpoint::Chat, Prompt::Text(text)) => (
                "messages",
                json!([{"role": "user", "content": text}]).to_string(),
            ),
            // The workload is built for its endpoint, so these two do not occur; they stay sendable.
            (Endpoint::Completions, Prompt::Messages(messages)) => ("prompt", messages.to_string()),
            (Endpoint::Chat, Prompt::TokenIds(ids)) => ("messages", json_ids(ids)),
        };
        let max = match self.endpoint {
            Endpoint::Completions => "max_tokens",
            Endpoint::Chat => "max_completion_tokens",
        };
        let mut body = String::with_capacity(value.len() + self.shared.len() + 96);
        body.push_str("{\"");
        body.push_str(key);
        body.push_str("\":");
        body.push_str(&value);
        body.push_str(&format!(",\"{max}\":{output_len}"));
        if self.ignore_eos {
            body.push_str(&format!(",\"min_tokens\":{output_len}"));
        }
        body.push(',');
        body.push_str(&self.shared);
        body.push('}');
        Bytes::from(body)
    }
}

fn json_ids(ids: &[u32]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(ids.len() * 6 + 2);
    text.push('[');
    for (i, id) in ids.iter().enumerate() {
        if i > 0 {
            text.push(',');
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "{id}");
    }
    text.push(']');
    text
}
