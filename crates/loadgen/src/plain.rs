//! Answers that are no event stream: refusals, pages, documents.

use linktax_records::{FailureDetail, Outcome};
use linktax_sse::Decoded;

use crate::exchange::empty;

/// Longest error body kept, in bytes.
const MAX_BODY: usize = 4096;

/// A whole answer that is no event stream.
#[derive(Debug, Default)]
pub(crate) struct PlainAnswer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    /// Where a redirect points.
    pub(crate) location: Option<String>,
    pub(crate) body: Vec<u8>,
}

impl PlainAnswer {
    /// Takes in the next bytes of the body, as many as there is room for.
    pub(crate) fn keep(&mut self, data: &[u8]) {
        let room = MAX_BODY.saturating_sub(self.body.len());
        self.body.extend_from_slice(&data[..data.len().min(room)]);
    }

    /// The verdict.
    pub(crate) fn judge(self) -> Decoded {
        let kept = match std::str::from_utf8(&self.body) {
            // Cut inside a character.
            Err(e) if e.error_len().is_none() => &self.body[..e.valid_up_to()],
            _ => &self.body,
        };
        let body = String::from_utf8_lossy(kept).into_owned();
        let (outcome, message) = if !(200..300).contains(&self.status) {
            let message = match &self.location {
                Some(location) => format!("HTTP status {} redirects to {location:?}", self.status),
                None => format!("HTTP status {}", self.status),
            };
            (Outcome::HttpError, message)
        } else if has_error(&body) {
            (
                Outcome::ErrorInStream,
                "an error object came with status 200".to_owned(),
            )
        } else {
            let message = format!(
                "expected an event stream (text/event-stream), got {}",
                self.content_type
            );
            (Outcome::Malformed, message)
        };
        Decoded {
            outcome,
            failure: Some(FailureDetail {
                status: Some(self.status),
                message,
                body: Some(body),
            }),
            ..empty()
        }
    }
}

fn has_error(body: &str) -> bool {
    serde_json::from_str::<serde_json::Value>(body)
        .is_ok_and(|v| v.get("error").is_some_and(|e| !e.is_null()))
}
