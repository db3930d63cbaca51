//! The JSON of stream chunks, with the fields of vLLM 0.32 in its order.

use std::io::Write as _;

use serde_json::Value;

use crate::config::{ReasoningField, UsagePlacement};
use crate::job::{Finish, Job};
use crate::server::FINGERPRINT;

/// Counts of a usage object.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) prompt: u64,
    pub(crate) completion: u64,
    /// For `prompt_tokens_details`.
    pub(crate) cached: Option<u64>,
    pub(crate) details: Details,
}

/// `completion_tokens_details`.
#[derive(Clone, Copy)]
pub(crate) enum Details {
    Absent,
    Null,
    Reasoning(u64),
}

/// A string as JSON.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// Appends a usage object. Writing to a `Vec` cannot fail.
pub(crate) fn usage(out: &mut Vec<u8>, usage: Usage) {
    let Usage {
        prompt, completion, ..
    } = usage;
    let total = prompt + completion;
    let _ = write!(
        out,
        r#"{{"prompt_tokens":{prompt},"total_tokens":{total},"completion_tokens":{completion}"#
    );
    if let Some(cached) = usage.cached {
        let _ = write!(
            out,
            r#","prompt_tokens_details":{{"cached_tokens":{cached}}}"#
        );
    }
    match usage.details {
        Details::Absent => {}
        Details::Null => out.extend_from_slice(br#","completion_tokens_details":null"#),
        Details::Reasoning(n) => {
            let _ = write!(
                out,
                r#","completion_tokens_details":{{"reasoning_tokens":{n}}}"#
            );
        }
    }
    out.push(b'}');
}

/// Appends a list of numbers.
pub(crate) fn numbers(out: &mut Vec<u8>, list: impl Iterator<Item = u64>) {
    out.push(b'[');
    for (i, n) in list.enumerate() {
        let _ = write!(out, "{}{n}", if i == 0 { "" } else { "," });
    }
    out.push(b']');
}

/// One chunk with choices.
pub(crate) struct Piece<'a> {
    /// Which prompt of the request.
    pub(crate) index: usize,
    /// Text of the reasoning part, if there is one.
    pub(crate) reasoning: Option<&'a str>,
    /// Text of the answer part, if there is one.
    pub(crate) content: Option<&'a str>,
    pub(crate) finish: Option<Finish>,
    /// First token and one past the last.
    pub(crate) tokens: (u64, u64),
    /// Whether it is the stream's first chunk with tokens.
    pub(crate) first: bool,
    pub(crate) usage: Option<Usage>,
    pub(crate) fingerprint: bool,
    /// Bytes of padding.
    pub(crate) padding: usize,
}

/// Writes the chunks of one stream.
pub(crate) struct Chunks {
    /// Up to and including `"choices":`.
    open: Vec<u8>,
    chat: bool,
    reasoning: &'static str,
    role_content: &'static str,
    token_ids: bool,
}

impl Chunks {
    pub(crate) fn new(
        job: &Job,
        model: &str,
        field: ReasoningField,
        role_content_null: bool,
    ) -> Self {
        let object = if job.chat {
            "chat.completion.chunk"
        } else {
            "text_completion"
        };
        let open = format!(
            r#"{{"id":"{}","object":"{object}","created":{},"model":{},"choices":"#,
            job.id,
            job.created,
            quoted(model)
        );
        Chunks {
            open: open.into_bytes(),
            chat: job.chat,
            reasoning: match field {
                ReasoningField::Reasoning => "reasoning",
                ReasoningField::ReasoningContent => "reasoning_content",
            },
            role_content: if role_content_null { "null" } else { "\"\"" },
            token_ids: job.token_ids,
        }
    }

    /// The role-only chunk of a chat.
    pub(crate) fn role(&self, job: &Job, continuous: Option<Usage>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.open);
        let _ = write!(
            out,
            r#"[{{"index":0,"delta":{{"role":"assistant","content":{}}},"logprobs":null,"finish_reason":null}}]"#,
            self.role_content
        );
        if let Some(counts) = continuous {
            out.extend_from_slice(br#","usage":"#);
            usage(out, counts);
        }
        out.extend_from_slice(br#","prompt_token_ids":"#);
        self.prompt_ids(job, 0, self.token_ids, out);
        out.extend_from_slice(br#","prompt_text":null}"#);
    }

    fn prompt_ids(&self, job: &Job, index: usize, wanted: bool, out: &mut Vec<u8>) {
        match job.prompts.get(index) {
            Some(prompt) if wanted => numbers(out, prompt.ids.iter().map(|id| u64::from(*id))),
            _ => out.extend_from_slice(b"null"),
        }
    }

    /// A chunk with tokens.
    pub(crate) fn piece(&self, job: &Job, piece: &Piece<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.open);
        let _ = write!(out, r#"[{{"index":{},"#, piece.index);
        if self.chat {
            self.delta(piece, out);
        } else {
            // The made-up texts need no escapes.
            let _ = write!(out, r#""text":"{}""#, piece.content.unwrap_or(""));
        }
        match piece.finish {
            Some(reason) => {
                let _ = write!(
                    out,
                    r#","logprobs":null,"finish_reason":"{}","stop_reason":null"#,
                    reason.name()
                );
            }
            None if self.chat => {
                out.extend_from_slice(br#","logprobs":null,"finish_reason":null"#);
            }
            None => {
                out.extend_from_slice(
                    br#","logprobs":null,"finish_reason":null,"stop_reason":null"#,
                );
            }
        }
        if !self.chat {
            out.extend_from_slice(br#","prompt_token_ids":"#);
            self.prompt_ids(job, piece.index, self.token_ids && piece.first, out);
        }
        out.extend_from_slice(br#","token_ids":"#);
        if self.token_ids {
            numbers(
                out,
                (piece.tokens.0..piece.tokens.1).map(|i| job.token_id(i)),
            );
        } else {
            out.extend_from_slice(b"null");
        }
        out.extend_from_slice(b"}]");
        if let Some(counts) = piece.usage {
            out.extend_from_slice(br#","usage":"#);
            usage(out, counts);
        }
        self.close(piece.fingerprint, piece.padding, out);
    }

    fn delta(&self, piece: &Piece<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(br#""delta":{"#);
        if let Some(text) = piece.reasoning {
            let _ = write!(out, r#""{}":"{text}""#, self.reasoning);
        }
        if let Some(text) = piece.content {
            let comma = if piece.reasoning.is_some() { "," } else { "" };
            let _ = write!(out, r#"{comma}"content":"{text}""#);
        }
        out.push(b'}');
    }

    /// The chunk that carries nothing but usage.
    pub(crate) fn usage_only(&self, placement: UsagePlacement, counts: Usage, out: &mut Vec<u8>) {
        const CHOICES: &[u8] = br#""choices":"#;
        match placement {
            UsagePlacement::AbsentChoices => {
                out.extend_from_slice(&self.open[..self.open.len() - CHOICES.len()]);
            }
            UsagePlacement::NullChoices => {
                out.extend_from_slice(&self.open);
                out.extend_from_slice(b"null,");
            }
            _ => {
                out.extend_from_slice(&self.open);
                out.extend_from_slice(b"[],");
            }
        }
        out.extend_from_slice(br#""usage":"#);
        usage(out, counts);
        self.close(true, 0, out);
    }

    fn close(&self, fingerprint: bool, padding: usize, out: &mut Vec<u8>) {
        if fingerprint {
            let _ = write!(out, r#","system_fingerprint":"{FINGERPRINT}""#);
        }
        if padding > 0 {
            out.extend_from_slice(br#","padding":""#);
            out.resize(out.len() + padding, b'x');
            out.push(b'"');
        }
        out.push(b'}');
    }
}
