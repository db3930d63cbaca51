//! How many generated tokens each event carries.

use std::collections::BTreeMap;

use linktax_records::TokenSource;

/// What one event says of the tokens in it; `None` where it says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signals {
    /// `completion_tokens` of a usage that stands beside choices.
    pub(crate) usage: Option<u64>,
    /// Index of the (first) choice: a running usage counts that choice alone.
    pub(crate) choice: u32,
    /// Length of `token_ids`.
    pub(crate) ids: Option<usize>,
    /// Entries of `logprobs`.
    pub(crate) logprobs: Option<usize>,
    /// Choices with text, reasoning or tool-call content.
    pub(crate) texts: u32,
}

impl Signals {
    /// The best source that counts a token in this event, if any does.
    fn best_source(&self) -> Option<TokenSource> {
        if self.usage.is_some_and(|n| n > 0) {
            Some(TokenSource::ContinuousUsage)
        } else if self.ids.is_some_and(|n| n > 0) {
            Some(TokenSource::TokenIds)
        } else if self.logprobs.is_some_and(|n| n > 0) {
            Some(TokenSource::Logprobs)
        } else if self.texts > 0 {
            Some(TokenSource::Events)
        } else {
            None
        }
    }
}

/// Counts tokens event by event from one source, chosen at the first event with a token.
#[derive(Debug, Default)]
pub(crate) struct TokenCounter {
    source: Option<TokenSource>,
    /// An event with text lacked the source's figure and was counted as one token.
    gaps: bool,
    /// Running usage already counted, by choice index.
    counted: BTreeMap<u32, u64>,
}

impl TokenCounter {
    /// Tokens of the next event.
    pub(crate) fn count(&mut self, signals: &Signals) -> u32 {
        let Some(source) = self.source.or_else(|| signals.best_source()) else {
            return 0;
        };
        self.source = Some(source);
        let said = match source {
            TokenSource::ContinuousUsage => signals.usage.map(|n| self.grow(signals.choice, n)),
            TokenSource::TokenIds => signals.ids.map(|n| n as u64),
            TokenSource::Logprobs => signals.logprobs.map(|n| n as u64),
            _ => Some(u64::from(signals.texts)),
        };
        let tokens = said.unwrap_or_else(|| self.fill_gap(signals));
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// The chosen source; an undecided response and one with gaps are no better than counted events.
    pub(crate) fn source(&self) -> TokenSource {
        match self.source {
            Some(source) if !self.gaps => source,
            _ => TokenSource::Events,
        }
    }

    /// The source chosen so far, gaps or not.
    pub(crate) fn chosen(&self) -> Option<TokenSource> {
        self.source
    }

    fn grow(&mut self, choice: u32, total: u64) -> u64 {
        let counted = self.counted.entry(choice).or_default();
        let new = total.saturating_sub(*counted);
        *counted = total.max(*counted);
        new
    }

    /// Text without the source's figure is at least one token, and dropping it would move the times of the
    /// first and the last token.
    fn fill_gap(&mut self, signals: &Signals) -> u64 {
        let tokens = u64::from(signals.texts);
        if tokens > 0 {
            self.gaps = true;
            // A later running usage includes this token.
            let counted = self.counted.entry(signals.choice).or_default();
            *counted = counted.saturating_add(tokens);
        }
        tokens
    }
}
