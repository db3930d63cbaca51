use serde::{Deserialize, Serialize};

use crate::Nanos;

/// What an SSE event, or the most telling event of a socket read, carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventClass {
    /// A data event with neither text, role, usage nor error in it.
    Empty,
    /// The `[DONE]` marker.
    Done,
    /// Token counts only.
    Usage,
    /// The role-only first chunk of a chat stream.
    Role,
    /// A chunk of a tool call.
    Tool,
    /// Thinking text (`reasoning` or `reasoning_content`).
    Reasoning,
    /// Answer text.
    Content,
    /// An error object inside a stream.
    Error,
}

impl EventClass {
    /// The name used in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            EventClass::Empty => "empty",
            EventClass::Done => "done",
            EventClass::Usage => "usage",
            EventClass::Role => "role",
            EventClass::Tool => "tool",
            EventClass::Reasoning => "reasoning",
            EventClass::Content => "content",
            EventClass::Error => "error",
        }
    }
}

/// The socket reads of one response that completed at least one SSE data event, as parallel arrays.
///
/// `class[i]` is the most telling class among the events of read `i` (the order of [`EventClass`]),
/// so the first `content` entry is the read that brought the first answer text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reads {
    /// Time of each read since `t_sent_ns`, taken once when the read returned, before parsing.
    pub t_ns: Vec<Nanos>,
    /// Generated tokens that each read delivered (see [`crate::TokenSource`] for how they were counted).
    pub tokens: Vec<u32>,
    /// What each read carried.
    pub class: Vec<EventClass>,
    /// Bytes of the response body that each read (and the reads before it that completed no event) delivered.
    pub bytes: Vec<u32>,
    /// SSE data events that each read completed; more than one means coalesced delivery.
    pub events: Vec<u32>,
}

impl Reads {
    /// Appends one read.
    pub fn push(&mut self, t: Nanos, tokens: u32, class: EventClass, bytes: u32, events: u32) {
        self.t_ns.push(t);
        self.tokens.push(tokens);
        self.class.push(class);
        self.bytes.push(bytes);
        self.events.push(events);
    }

    /// Number of reads.
    pub fn len(&self) -> usize {
        self.t_ns.len()
    }

    /// Whether no read completed an event.
    pub fn is_empty(&self) -> bool {
        self.t_ns.is_empty()
    }

    /// Whether the five arrays have one length; a hand-edited file may not.
    pub fn is_consistent(&self) -> bool {
        let n = self.t_ns.len();
        self.tokens.len() == n
            && self.class.len() == n
            && self.bytes.len() == n
            && self.events.len() == n
    }

    /// Tokens as counted read by read; the server's usage, where present, is the authority.
    pub fn counted_tokens(&self) -> u64 {
        self.tokens.iter().map(|&t| u64::from(t)).sum()
    }

    /// `(time, tokens)` of each read that delivered at least one generated token.
    pub fn token_reads(&self) -> impl DoubleEndedIterator<Item = (Nanos, u32)> + '_ {
        self.t_ns
            .iter()
            .copied()
            .zip(self.tokens.iter().copied())
            .filter(|&(_, tokens)| tokens > 0)
    }

    /// Time of the first generated token of any kind, since `t_sent_ns`.
    pub fn first_token(&self) -> Option<Nanos> {
        self.token_reads().next().map(|(t, _)| t)
    }

    /// Time of the last generated token of any kind, since `t_sent_ns`.
    pub fn last_token(&self) -> Option<Nanos> {
        self.token_reads().next_back().map(|(t, _)| t)
    }

    /// Time of the first answer (non-reasoning) text, since `t_sent_ns`.
    pub fn first_content(&self) -> Option<Nanos> {
        let at = self.class.iter().position(|&c| c == EventClass::Content)?;
        self.t_ns.get(at).copied()
    }
}
