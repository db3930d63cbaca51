//! What the mock model says.

use std::fmt::Write as _;

use crate::clock::now_ns;

const WORDS: [&str; 16] = [
    " link", " step", " lane", " ring", " wait", " send", " tree", " copy", " rank", " node",
    " path", " flow", " gate", " hop", " peer", " bus",
];

/// The texts of one chunk at a time.
pub(crate) struct Words {
    stamp: bool,
    reasoning: String,
    content: String,
}

impl Words {
    /// Times instead of words if `stamp`.
    pub(crate) fn new(stamp: bool) -> Self {
        Words {
            stamp,
            reasoning: String::new(),
            content: String::new(),
        }
    }

    /// Makes the texts of the tokens from number `from` on: `thought` of reasoning, then `spoken`.
    pub(crate) fn next(&mut self, from: u64, thought: u64, spoken: u64) {
        self.reasoning.clear();
        self.content.clear();
        // One clock reading, as late as it can be: the write comes next.
        let now = if self.stamp { now_ns() } else { 0 };
        fill(
            &mut self.reasoning,
            self.stamp.then_some(now),
            from,
            thought,
        );
        fill(
            &mut self.content,
            self.stamp.then_some(now),
            from + thought,
            spoken,
        );
    }

    pub(crate) fn reasoning(&self) -> &str {
        &self.reasoning
    }

    pub(crate) fn content(&self) -> &str {
        &self.content
    }
}

/// Writing to a string cannot fail.
fn fill(text: &mut String, stamp: Option<u64>, from: u64, tokens: u64) {
    match stamp {
        Some(now) if tokens > 0 => {
            let _ = write!(text, " {now}");
        }
        Some(_) => {}
        None => {
            let words = WORDS.iter().cycle().skip((from % 16) as usize);
            words.take(tokens as usize).for_each(|w| text.push_str(w));
        }
    }
}
