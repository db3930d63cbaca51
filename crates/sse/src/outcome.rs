//! How a response ended: the rules, in their order.

use linktax_records::{FailureDetail, Outcome, TokenSource, Usage};
use serde::Deserialize;
use serde_json::Value;

use crate::StreamEnd;

/// Most of a failed answer that is kept.
const MAX_BODY: usize = 4096;
/// Most of it that goes into the one-line message.
const MAX_MESSAGE: usize = 300;

/// What the rules look at.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) error: Option<FailureDetail>,
    pub(crate) malformed: Option<FailureDetail>,
    pub(crate) end: StreamEnd,
    pub(crate) done_marker: bool,
    pub(crate) finish_reason: Option<&'a str>,
    pub(crate) counted: u64,
    pub(crate) usage: Option<Usage>,
    pub(crate) source: TokenSource,
    pub(crate) expected_output: Option<u64>,
    /// Bytes of an event that no blank line ended.
    pub(crate) leftover: usize,
}

pub(crate) fn decide(evidence: Evidence<'_>) -> (Outcome, Option<FailureDetail>) {
    if let Some(failure) = evidence.error {
        return (Outcome::ErrorInStream, Some(failure));
    }
    if let Some(failure) = evidence.malformed {
        return (Outcome::Malformed, Some(failure));
    }
    if let StreamEnd::Broken(cause) = evidence.end {
        let message = format!(
            "connection broke after {} tokens: {cause}",
            evidence.counted
        );
        return (Outcome::Reset, Some(failure(message, None)));
    }
    if !evidence.done_marker && evidence.finish_reason.is_none() {
        let mut message = format!(
            "stream ended after {} tokens with neither a finish reason nor [DONE]",
            evidence.counted
        );
        if evidence.leftover > 0 {
            message += &format!(", {} bytes into an event", evidence.leftover);
        }
        return (Outcome::Truncated, Some(failure(message, None)));
    }
    if evidence.counted == 0 {
        let mut message = "stream ended properly without a generated token".to_owned();
        if let Some(usage) = evidence.usage.filter(|u| u.completion_tokens > 0) {
            message += &format!(
                "; usage counts {}, but no event carried one",
                usage.completion_tokens
            );
        }
        return (Outcome::NoOutput, Some(failure(message, None)));
    }
    // Counted events may hold several tokens each: fewer of them than asked for proves nothing.
    let output = match evidence.usage {
        Some(usage) => Some(usage.completion_tokens),
        None => (evidence.source != TokenSource::Events).then_some(evidence.counted),
    };
    if let (Some(output), Some(expected)) = (output, evidence.expected_output)
        && output < expected
    {
        let reason = evidence.finish_reason.unwrap_or("unknown");
        let message =
            format!("{output} output tokens of the {expected} asked for (finish reason {reason})");
        return (Outcome::ShortOutput, Some(failure(message, None)));
    }
    (Outcome::Completed, None)
}

/// A failure with the start of the data that shows it.
pub(crate) fn failure(message: String, body: Option<&str>) -> FailureDetail {
    FailureDetail {
        status: None,
        message: one_line(&message),
        body: body.map(|b| cut(b, MAX_BODY).to_owned()),
    }
}

/// The failure that an error frame reports: its own message where it has one.
pub(crate) fn error_frame(data: &str) -> FailureDetail {
    let message = serde_json::from_str::<ErrorFrame>(data)
        .ok()
        .and_then(|frame| frame.message())
        .unwrap_or_else(|| data.to_owned());
    failure(message, Some(data))
}

/// `{"error": {"message": …}}`, `{"error": "…"}` or `{"object": "error", "message": …}`.
#[derive(Debug, Deserialize)]
struct ErrorFrame {
    #[serde(default)]
    error: Value,
    #[serde(default)]
    message: Value,
}

impl ErrorFrame {
    fn message(&self) -> Option<String> {
        [&self.error["message"], &self.error, &self.message]
            .into_iter()
            .find_map(|v| v.as_str().filter(|s| !s.trim().is_empty()))
            .map(str::to_owned)
    }
}

fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match cut(&line, MAX_MESSAGE) {
        short if short.len() < line.len() => format!("{short}…"),
        _ => line,
    }
}

/// At most `max` bytes of `text`, ending between two characters.
fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_body_is_cut_between_characters() {
        let data = "é".repeat(MAX_BODY);
        let detail = failure(data.clone(), Some(&data));
        let body = detail.body.unwrap();
        assert_eq!(body.len(), MAX_BODY);
        assert!(data.starts_with(&body));
        assert!(detail.message.ends_with('…') && detail.message.len() <= MAX_MESSAGE + 3);
        let odd = format!("x{data}");
        assert_eq!(
            failure(String::new(), Some(&odd)).body.unwrap().len(),
            MAX_BODY - 1
        );
    }

    #[test]
    fn the_message_of_an_error_frame_is_found_in_every_shape() {
        for data in [
            r#"{"error":{"message":"boom","code":500}}"#,
            r#"{"error":"boom"}"#,
            r#"{"object":"error","message":"boom","code":500}"#,
            "boom",
        ] {
            let detail = error_frame(data);
            assert_eq!(detail.message, "boom", "{data}");
            assert_eq!(detail.body.as_deref(), Some(data));
        }
        assert_eq!(
            error_frame(r#"{"error":{"code":1}}"#).message,
            r#"{"error":{"code":1}}"#
        );
    }
}
