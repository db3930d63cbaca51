use std::sync::Arc;

use linktax_records::Phase;
use serde_json::{Value, json};

use super::content::{Key, Source, Stream, Writer, words};
use super::{CellCoord, Prompt, PromptKind, RequestPlan};

/// One request of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    pub(crate) prompt: Prompt,
    pub(crate) output_len: Option<u64>,
}

/// The requests of a file, in its order.
#[derive(Clone, Debug)]
pub(crate) struct Items {
    items: Arc<[Item]>,
    /// Whether an item's own output length beats the cell's.
    own_length: bool,
}

impl Items {
    pub(crate) fn new(items: Vec<Item>, own_length: bool) -> Self {
        Items {
            items: items.into(),
            own_length,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.items.len() as u64
    }

    /// Request `index`, from the start of the file again past its end.
    pub(crate) fn plan(
        &self,
        writer: &Writer,
        source: Source,
        cell: &CellCoord,
        phase: Phase,
        index: u64,
    ) -> Option<RequestPlan> {
        let place = usize::try_from(index.checked_rem(self.len())?).ok()?;
        let item = self.items.get(place)?;
        let prompt = match phase {
            Phase::Prime | Phase::Measured => item.prompt.clone(),
            Phase::Warmup => {
                let key = Key {
                    cell: cell.cell,
                    stream: Stream::Warmup,
                    index,
                };
                stand_in(&item.prompt, writer, source, key)
            }
        };
        let input_len = match &prompt {
            Prompt::TokenIds(ids) => Some(ids.len() as u64),
            Prompt::Text(_) | Prompt::Messages(_) => None,
        };
        let output_len = match self.own_length {
            true => item.output_len.or(cell.output_len),
            false => cell.output_len.or(item.output_len),
        };
        Some(RequestPlan {
            prompt,
            input_len,
            output_len,
            at: None,
        })
    }
}

/// A made-up prompt of the same kind and about the same length, for warm-up.
fn stand_in(prompt: &Prompt, writer: &Writer, source: Source, key: Key) -> Prompt {
    let kind = match prompt {
        Prompt::TokenIds(_) => PromptKind::TokenIds,
        Prompt::Text(_) | Prompt::Messages(_) => PromptKind::Text,
    };
    let writer = writer.as_kind(kind);
    let made_up = |len: usize| source.symbols(key, len.max(1), writer.alphabet());
    match prompt {
        Prompt::TokenIds(ids) => writer.write(&made_up(ids.len())),
        Prompt::Text(text) => writer.write(&made_up(text.split_whitespace().count())),
        Prompt::Messages(messages) => {
            let content = words(&made_up(spoken_words(messages)));
            Prompt::Messages(json!([{"role": "user", "content": content}]))
        }
    }
}

/// Words in all strings named `content` or `text` of a list of messages.
pub(crate) fn spoken_words(messages: &Value) -> usize {
    match messages {
        Value::Array(values) => values.iter().map(spoken_words).sum(),
        Value::Object(fields) => ["content", "text"]
            .iter()
            .filter_map(|name| fields.get(*name))
            .map(|value| match value {
                Value::String(text) => text.split_whitespace().count(),
                nested => spoken_words(nested),
            })
            .sum(),
        _ => 0,
    }
}
