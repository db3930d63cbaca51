use serde::{Deserialize, Serialize};

/// A failure to stage, and which requests it hits.
///
/// Requests are counted over the generation requests that the server accepted (a request refused with
/// 4xx does not count), from 1, after the first `skip_first` ones. [`FaultKind::Refuse`] counts
/// connections instead, as no request is read.
///
/// ```
/// use linktax_mockserver::MockConfig;
///
/// let config = MockConfig::from_toml(
///     "[[fault]]\nkind = \"reset\"\nafter_tokens = 3\nevery = 4\n",
///     "mock.toml".as_ref(),
/// )?;
/// assert_eq!(config.fault[0].every, Some(4));
/// # Ok::<(), linktax_mockserver::MockError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What happens.
    pub kind: FaultKind,
    /// Hits requests N, 2N, 3N, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// Hits these requests.
    #[serde(default)]
    pub nth: Vec<u64>,
    /// Requests that are not counted at first, such as a client's probe and warm-up.
    #[serde(default)]
    pub skip_first: u64,
    /// Tokens delivered before it happens, for the kinds that happen in mid-stream.
    #[serde(default)]
    pub after_tokens: u64,
    /// Status of [`FaultKind::HttpError`].
    #[serde(default = "internal_server_error")]
    pub status: u16,
    /// Body of [`FaultKind::HttpError`], [`FaultKind::Html`], [`FaultKind::JsonError200`] and
    /// [`FaultKind::BadJson`]; a plausible one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

fn internal_server_error() -> u16 {
    500
}

impl Fault {
    /// A fault of `kind` that hits every request.
    pub fn always(kind: FaultKind) -> Self {
        Fault {
            kind,
            every: Some(1),
            nth: Vec::new(),
            skip_first: 0,
            after_tokens: 0,
            status: internal_server_error(),
            body: None,
        }
    }

    /// Whether the request with this number, counted from 1, is hit.
    pub(crate) fn hits(&self, number: u64) -> bool {
        selected(number, self.skip_first, self.every, &self.nth)
    }
}

/// Whether the `number`th request (from 1) is selected by `every` or `nth`.
pub(crate) fn selected(number: u64, skip_first: u64, every: Option<u64>, nth: &[u64]) -> bool {
    let Some(counted) = number.checked_sub(skip_first).filter(|n| *n > 0) else {
        return false;
    };
    every.is_some_and(|n| n > 0 && counted % n == 0) || nth.contains(&counted)
}

/// Ways to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// An error status and a JSON body instead of an answer.
    HttpError,
    /// After `after_tokens`: a `data:` frame with an error object, then `[DONE]`, as vLLM does when its engine dies.
    ErrorFrame,
    /// As `error_frame`, with `event: error` before the data.
    ErrorEvent,
    /// After `after_tokens`: the chunked body ends properly, without a finish reason, usage or `[DONE]`.
    Truncate,
    /// After `after_tokens`: TCP reset.
    Reset,
    /// After `after_tokens`: the connection is closed (FIN) without the last chunk.
    Close,
    /// After `after_tokens`: silence, not even keep-alives, until the client leaves.
    Hang,
    /// Ends after `after_tokens` with finish reason `stop`, although more was asked.
    Short,
    /// A proper stream without a single token.
    NoOutput,
    /// 200 with a `text/html` page, as a proxy in front of a dead server gives.
    Html,
    /// 200 with the whole answer as one JSON document although a stream was asked.
    NotStream,
    /// 200 with a JSON error object.
    #[serde(rename = "json_error_200")]
    JsonError200,
    /// After `after_tokens`: one event whose data is not JSON; the stream goes on.
    BadJson,
    /// The connection is accepted and closed at once. Selected by connection, not by request.
    Refuse,
    /// Ends after `after_tokens` with finish reason `abort`.
    Abort,
}

impl FaultKind {
    /// Whether the stream stops after `after_tokens` and something other than a finish chunk follows one step later.
    pub(crate) fn cuts(self) -> bool {
        matches!(
            self,
            FaultKind::ErrorFrame
                | FaultKind::ErrorEvent
                | FaultKind::Truncate
                | FaultKind::Reset
                | FaultKind::Close
                | FaultKind::Hang
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selection_counts_from_one_after_the_skipped() {
        let hits =
            |skip, every, nth: &[u64]| (1..=8).filter(|n| selected(*n, skip, every, nth)).collect();
        let (a, b, c): (Vec<u64>, Vec<u64>, Vec<u64>) = (
            hits(0, Some(3), &[]),
            hits(2, Some(3), &[]),
            hits(2, None, &[1, 4]),
        );
        assert_eq!((a, b, c), (vec![3, 6], vec![5, 8], vec![3, 6]));
    }

    #[test]
    fn every_kind_has_the_documented_name() {
        let names: Vec<String> = [
            FaultKind::HttpError,
            FaultKind::ErrorFrame,
            FaultKind::ErrorEvent,
            FaultKind::Truncate,
            FaultKind::Reset,
            FaultKind::Close,
            FaultKind::Hang,
            FaultKind::Short,
            FaultKind::NoOutput,
            FaultKind::Html,
            FaultKind::NotStream,
            FaultKind::JsonError200,
            FaultKind::BadJson,
            FaultKind::Refuse,
            FaultKind::Abort,
        ]
        .iter()
        .map(|k| {
            serde_json::to_value(k)
                .unwrap()
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
        assert_eq!(
            names.join(" "),
            "http_error error_frame error_event truncate reset close hang short no_output html not_stream json_error_200 bad_json refuse abort"
        );
    }
}
