//! Keeps secrets out of what is written and printed, also when a server repeats them in an error.

use linktax_loadgen::Secrets;
use linktax_records::RequestRecord;

/// What stands in the place of a secret.
const REMOVED: &str = "REMOVED";

/// Shorter values are no secrets, and would be found in every text.
const SHORTEST: usize = 6;

/// The secrets of a run.
pub(crate) struct Redactor(Vec<String>);

impl Redactor {
    pub(crate) fn new(secrets: &Secrets) -> Redactor {
        let values = secrets.headers.iter().map(|(_, value)| value);
        // `Bearer KEY` may come back as the key alone.
        let words = values.flat_map(|v| std::iter::once(v.as_str()).chain(v.split_whitespace()));
        let mut words: Vec<String> = words
            .chain(secrets.api_key.as_deref())
            .filter(|word| word.len() >= SHORTEST)
            .map(str::to_owned)
            .collect();
        // The longest first, so that no part of it is left when a shorter one is in it.
        words.sort_by_key(|word| std::cmp::Reverse(word.len()));
        Redactor(words)
    }

    /// The text without the secrets.
    pub(crate) fn text(&self, text: &str) -> String {
        self.0
            .iter()
            .fold(text.to_owned(), |text, word| text.replace(word, REMOVED))
    }

    /// A failed request's record without the secrets, if it has any.
    pub(crate) fn record(&self, record: &RequestRecord) -> Option<RequestRecord> {
        let failure = record.failure.as_ref()?;
        let message = self.text(&failure.message);
        let body = failure.body.as_deref().map(|body| self.text(body));
        if message == failure.message && body == failure.body {
            return None;
        }
        let mut clean = record.clone();
        if let Some(failure) = &mut clean.failure {
            failure.message = message;
            failure.body = body;
        }
        Some(clean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_values_and_their_words_are_removed_and_short_ones_left() {
        let redactor = Redactor::new(&Secrets {
            api_key: Some("sk-0123456789".to_owned()),
            headers: vec![
                (
                    "Authorization".to_owned(),
                    "Bearer sk-0123456789-more".to_owned(),
                ),
                ("X-On".to_owned(), "1".to_owned()),
            ],
        });
        assert_eq!(
            redactor.text("key sk-0123456789-more, sk-0123456789, 1"),
            "key REMOVED, REMOVED, 1"
        );
    }
}
