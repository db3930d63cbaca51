//! What one chunk carried: its class and what it says of its tokens.

use linktax_records::EventClass;

use crate::Endpoint;
use crate::chunk::{Choice, Chunk, Text};
use crate::tokens::Signals;

/// The generated parts of one choice, empty where absent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Parts<'c> {
    pub(crate) reasoning: &'c str,
    pub(crate) content: &'c str,
    pub(crate) tool: bool,
    pub(crate) role: bool,
}

impl<'c> Parts<'c> {
    pub(crate) fn of(choice: &'c Choice<'_>, endpoint: Endpoint) -> Self {
        match endpoint {
            Endpoint::Completions => Parts {
                content: or_empty(&choice.text),
                ..Parts::default()
            },
            Endpoint::Chat => {
                let Some(delta) = &choice.delta else {
                    return Parts::default();
                };
                // One thought under two names, or a refusal in place of an answer: never both counted.
                Parts {
                    reasoning: first_of(&delta.reasoning, &delta.reasoning_content),
                    content: first_of(&delta.content, &delta.refusal),
                    tool: delta.tool_calls.as_ref().is_some_and(|c| !c.is_empty())
                        || delta.function_call.is_some(),
                    role: delta.role.is_some(),
                }
            }
        }
    }

    /// Whether there is anything that must have been generated.
    fn is_generated(&self) -> bool {
        self.tool || !self.reasoning.is_empty() || !self.content.is_empty()
    }

    fn class(&self) -> EventClass {
        if !self.content.is_empty() {
            EventClass::Content
        } else if !self.reasoning.is_empty() {
            EventClass::Reasoning
        } else if self.tool {
            EventClass::Tool
        } else if self.role {
            EventClass::Role
        } else {
            EventClass::Empty
        }
    }
}

fn or_empty<'c>(text: &'c Option<Text<'_>>) -> &'c str {
    text.as_ref().map_or("", |t| &t.0)
}

fn first_of<'c>(a: &'c Option<Text<'_>>, b: &'c Option<Text<'_>>) -> &'c str {
    match or_empty(a) {
        "" => or_empty(b),
        text => text,
    }
}

/// The class of a chunk by its choices, and its token signals.
///
/// Several choices in one chunk (`n > 1`, several prompts) are summed.
pub(crate) fn digest(chunk: &Chunk<'_>, endpoint: Endpoint) -> (EventClass, Signals) {
    let choices = chunk.choices.as_deref().unwrap_or_default();
    let mut signals = Signals::default();
    let mut class = EventClass::Empty;
    let Some(first) = choices.first() else {
        if chunk.usage.is_some() {
            class = EventClass::Usage;
        }
        return (class, signals);
    };
    signals.choice = first.index.unwrap_or(0);
    signals.usage = chunk.usage.as_ref().and_then(|u| u.completion_tokens);
    for choice in choices {
        let parts = Parts::of(choice, endpoint);
        class = class.max(parts.class());
        signals.texts += u32::from(parts.is_generated());
        add(&mut signals.ids, choice.token_ids.as_ref().map(Vec::len));
        add(
            &mut signals.logprobs,
            choice.logprobs.as_ref().and_then(|l| l.len()),
        );
    }
    (class, signals)
}

fn add(sum: &mut Option<usize>, more: Option<usize>) {
    if let Some(more) = more {
        *sum = Some(sum.unwrap_or(0) + more);
    }
}
