//! Prompts, as the request body has them, and their tokens.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use crate::config::MockConfig;
use crate::prefix::{BlockHasher, mix};

/// Token ids that the mock model makes up are below this.
pub(crate) const VOCABULARY: u64 = 32_000;

/// What the rest of the server needs of one prompt.
#[derive(Clone, Debug, Default)]
pub(crate) struct PromptTokens {
    /// Tokens, by the configured way to count.
    pub(crate) count: u64,
    /// Hashes of its whole blocks; empty without a prefix cache.
    pub(crate) blocks: Vec<u64>,
    /// Tokens behind `blocks`, before the configured factor.
    pub(crate) hashed: usize,
    /// The ids, if they are wanted.
    pub(crate) ids: Vec<u32>,
}

/// A prompt: a string, or token ids.
#[derive(Debug)]
pub(crate) enum Prompt<'a> {
    Text(Cow<'a, str>),
    Ids(Vec<u32>),
}

/// The id of a word. Eight bytes at a time: a long prompt must not make the server late for its other streams.
fn word_id(word: &str) -> u32 {
    let hash = word
        .as_bytes()
        .chunks(8)
        .fold(word.len() as u64, |hash, part| {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            mix(hash ^ u64::from_le_bytes(bytes))
        });
    (hash % VOCABULARY) as u32
}

/// Whitespace-separated words. Byte by byte where that is the same, for the reason given at [`word_id`].
fn count_words(text: &str) -> u64 {
    if !text.is_ascii() {
        return text.split_whitespace().count() as u64;
    }
    let mut words = 0;
    let mut inside = false;
    for byte in text.bytes() {
        // What `char::is_whitespace` says of ASCII.
        let word = !matches!(byte, b'\t'..=b'\r' | b' ');
        words += u64::from(word && !inside);
        inside = word;
    }
    words
}

/// Ids of the whitespace-separated words.
pub(crate) fn word_ids(text: &str) -> impl Iterator<Item = u32> + '_ {
    text.split_whitespace().map(word_id)
}

impl PromptTokens {
    /// Counts `overhead` tokens of a chat template and the tokens of `parts`.
    pub(crate) fn new(
        config: &MockConfig,
        overhead: u64,
        parts: &[Prompt<'_>],
        want_ids: bool,
    ) -> Self {
        let mut hasher = config
            .prefix_cache
            .then(|| BlockHasher::new(config.block_size));
        let mut ids = Vec::new();
        let mut count = 0u64;
        let mut take = |id: u32| {
            count += 1;
            if let Some(hasher) = &mut hasher {
                hasher.push(id);
            }
            if want_ids {
                ids.push(id);
            }
        };
        (0..overhead).for_each(|i| take(i as u32));
        let looked_at = config.prefix_cache || want_ids;
        let mut words = 0u64;
        for part in parts {
            match part {
                Prompt::Text(text) if looked_at => word_ids(text).for_each(&mut take),
                Prompt::Text(text) => words += count_words(text),
                Prompt::Ids(ids) => ids.iter().for_each(|id| take(*id)),
            }
        }
        count += words;
        let factor = config.prompt_tokens_factor;
        PromptTokens {
            count: if factor == 1.0 {
                count
            } else {
                (count as f64 * factor).round() as u64
            },
            blocks: hasher.map(BlockHasher::finish).unwrap_or_default(),
            hashed: usize::try_from(count).unwrap_or(usize::MAX),
            ids,
        }
    }
}

/// The `prompt` of a completion: one prompt or a list of them.
#[derive(Debug)]
pub(crate) struct Prompts<'a>(pub(crate) Vec<Prompt<'a>>);

/// An element of the outer list.
enum Element<'a> {
    Id(u32),
    Prompt(Prompt<'a>),
}

impl<'de: 'a, 'a> Deserialize<'de> for Prompts<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match from.deserialize_any(ElementVisitor { outer: true })? {
            Nested::One(Element::Prompt(prompt)) => Ok(Prompts(vec![prompt])),
            Nested::Many(prompts) => Ok(Prompts(prompts)),
            Nested::One(Element::Id(_)) => Err(de::Error::custom("a prompt cannot be a number")),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Element<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match from.deserialize_any(ElementVisitor { outer: false })? {
            Nested::One(element) => Ok(element),
            Nested::Many(_) => Err(de::Error::custom("prompts nest too deeply")),
        }
    }
}

enum Nested<'a> {
    One(Element<'a>),
    Many(Vec<Prompt<'a>>),
}

struct ElementVisitor {
    outer: bool,
}

impl<'de> Visitor<'de> for ElementVisitor {
    type Value = Nested<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a list of token ids, or a list of those")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Nested::One(Element::Prompt(Prompt::Text(Cow::Borrowed(
            text,
        )))))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Nested::One(Element::Prompt(Prompt::Text(Cow::Owned(
            text.to_owned(),
        )))))
    }

    fn visit_u64<E: de::Error>(self, id: u64) -> Result<Self::Value, E> {
        let id = u32::try_from(id).map_err(|_| E::custom("a token id is too large"))?;
        Ok(Nested::One(Element::Id(id)))
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Self::Value, E> {
        Err(E::custom("a token id is negative"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut ids = Vec::new();
        let mut prompts = Vec::new();
        while let Some(element) = list.next_element::<Element<'de>>()? {
            match element {
                Element::Id(id) => ids.push(id),
                Element::Prompt(prompt) => prompts.push(prompt),
            }
        }
        match (ids.is_empty(), prompts.is_empty(), self.outer) {
            (false, false, _) => Err(de::Error::custom("prompts and token ids in one list")),
            (_, false, true) => Ok(Nested::Many(prompts)),
            (_, false, false) => Err(de::Error::custom("prompts nest too deeply")),
            _ => Ok(Nested::One(Element::Prompt(Prompt::Ids(ids)))),
        }
    }
}

/// A chat message; only its text matters here.
#[derive(serde::Deserialize)]
pub(crate) struct Message<'a> {
    #[serde(borrow, default)]
    pub(crate) content: Content<'a>,
}

/// Text, parts with text, or nothing.
#[derive(Default)]
pub(crate) struct Content<'a>(pub(crate) Vec<Cow<'a, str>>);

#[derive(serde::Deserialize)]
struct Part<'a> {
    #[serde(borrow, default)]
    text: Content<'a>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a list of parts")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Content(vec![Cow::Borrowed(text)]))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Content(vec![Cow::Owned(text.to_owned())]))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(Content::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut texts = Vec::new();
        while let Some(part) = list.next_element::<Part<'de>>()? {
            texts.extend(part.text.0);
        }
        Ok(Content(texts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(json: &str) -> Result<Vec<u64>, String> {
        let config = MockConfig::default();
        let prompts: Prompts<'_> = serde_json::from_str(json).map_err(|e| e.to_string())?;
        let count = |p| PromptTokens::new(&config, 0, std::slice::from_ref(p), false).count;
        Ok(prompts.0.iter().map(count).collect())
    }

    proptest::proptest! {
        #[test]
        fn words_are_counted_as_they_are_split(text in "[\\x00-\\x40é\u{a0}\u{3000}]{0,60}") {
            proptest::prop_assert_eq!(count_words(&text), word_ids(&text).count() as u64);
        }
    }

    #[test]
    fn every_form_of_a_prompt_is_counted() {
        assert_eq!(counts(r#""one two  three\n four""#).unwrap(), [4]);
        assert_eq!(counts("[1,2,3]").unwrap(), [3]);
        assert_eq!(counts(r#"["a b c","d"]"#).unwrap(), [3, 1]);
        assert_eq!(counts("[[1,2],[3]]").unwrap(), [2, 1]);
        assert_eq!(counts("[]").unwrap(), [0]);
    }

    #[test]
    fn other_forms_are_refused() {
        for bad in ["1", "[-1]", "[1,\"a\"]", "[[[1]]]", "{}", "[4294967296]"] {
            assert!(counts(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_count_does_not_depend_on_what_else_is_wanted() {
        let text = Prompt::Text("a b  c d".into());
        let plain = MockConfig {
            prefix_cache: false,
            ..MockConfig::default()
        };
        for (config, ids) in [
            (&plain, false),
            (&plain, true),
            (&MockConfig::default(), false),
        ] {
            let tokens = PromptTokens::new(config, 8, std::slice::from_ref(&text), ids);
            assert_eq!(
                (tokens.count, tokens.ids.len()),
                (12, if ids { 12 } else { 0 })
            );
        }
    }

    #[test]
    fn fr_11_a_factor_stands_for_another_tokenizer() {
        let config = MockConfig {
            prompt_tokens_factor: 5.128,
            ..MockConfig::default()
        };
        let prompt = Prompt::Ids((0..1000).collect());
        assert_eq!(PromptTokens::new(&config, 0, &[prompt], false).count, 5128);
    }
}
