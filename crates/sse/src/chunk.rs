//! The JSON of one streamed chunk, borrowed from the event's data.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// A string that borrows unless it has escapes. Serde borrows a `Cow` only where it stands alone, not inside
/// an `Option`, hence the wrapper.
#[derive(Debug, Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// An array of which only the length matters; its elements take no space.
type Count = Vec<IgnoredAny>;

/// `chat.completion.chunk` and `text_completion`, every field optional.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Chunk<'a> {
    #[serde(borrow)]
    pub(crate) choices: Option<Vec<Choice<'a>>>,
    pub(crate) usage: Option<ChunkUsage>,
    pub(crate) error: Option<IgnoredAny>,
    #[serde(borrow)]
    pub(crate) object: Option<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Choice<'a> {
    pub(crate) index: Option<u32>,
    #[serde(borrow)]
    pub(crate) text: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) delta: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(crate) finish_reason: Option<Text<'a>>,
    pub(crate) token_ids: Option<Count>,
    pub(crate) logprobs: Option<Logprobs>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Delta<'a> {
    pub(crate) role: Option<IgnoredAny>,
    #[serde(borrow)]
    pub(crate) content: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) reasoning: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) reasoning_content: Option<Text<'a>>,
    #[serde(borrow)]
    pub(crate) refusal: Option<Text<'a>>,
    pub(crate) tool_calls: Option<Count>,
    pub(crate) function_call: Option<IgnoredAny>,
}

/// `tokens` on the completions endpoint, `content` on the chat endpoint.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Logprobs {
    pub(crate) tokens: Option<Count>,
    pub(crate) content: Option<Count>,
}

impl Logprobs {
    pub(crate) fn len(&self) -> Option<usize> {
        self.tokens.as_ref().or(self.content.as_ref()).map(Vec::len)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ChunkUsage {
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) completion_tokens: Option<u64>,
    pub(crate) prompt_tokens_details: Option<PromptDetails>,
    pub(crate) completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PromptDetails {
    pub(crate) cached_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CompletionDetails {
    pub(crate) reasoning_tokens: Option<u64>,
}

impl ChunkUsage {
    /// The usage as a record, if it says how many tokens were generated.
    pub(crate) fn to_record(&self) -> Option<linktax_records::Usage> {
        Some(linktax_records::Usage {
            prompt_tokens: self.prompt_tokens.unwrap_or(0),
            completion_tokens: self.completion_tokens?,
            cached_tokens: self
                .prompt_tokens_details
                .as_ref()
                .and_then(|d| d.cached_tokens),
            reasoning_tokens: self
                .completion_tokens_details
                .as_ref()
                .and_then(|d| d.reasoning_tokens),
        })
    }
}

impl<'a> Chunk<'a> {
    /// Parses the data of one event; only a JSON object is a chunk.
    pub(crate) fn parse(data: &'a str) -> Result<Self, String> {
        // Serde would also take an array for a struct.
        if !data.trim_start().starts_with('{') {
            return Err("expected a JSON object".to_owned());
        }
        serde_json::from_str(data).map_err(|error| error.to_string())
    }

    /// Whether this is an error object: `{"error": …}` or `{"object": "error", …}`.
    pub(crate) fn is_error(&self) -> bool {
        self.error.is_some() || self.object.as_ref().is_some_and(|o| o.0 == "error")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_borrowed_unless_it_has_escapes() {
        let data = r#"{"choices":[{"text":"plain","finish_reason":"es\u0063aped"}]}"#;
        let chunk = Chunk::parse(data).unwrap();
        let choice = &chunk.choices.unwrap()[0];
        assert!(matches!(
            choice.text.as_ref().unwrap().0,
            Cow::Borrowed("plain")
        ));
        assert_eq!(choice.finish_reason.as_ref().unwrap().0, "escaped");
    }

    #[test]
    fn counted_arrays_take_no_memory() {
        let chunk = Chunk::parse(r#"{"choices":[{"token_ids":[1,2,3]}]}"#).unwrap();
        let ids = chunk.choices.unwrap()[0].token_ids.take().unwrap();
        assert_eq!(ids.len(), 3);
        assert_eq!(size_of_val(ids.as_slice()), 0);
    }
}
