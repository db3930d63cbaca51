use std::ops::Range;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::words::WORDS;
use super::{Prompt, PromptKind, WorkloadError};

/// Units (token ids or words) at the head of a prompt that make it unlike any other.
pub(crate) const MARKER_LEN: usize = 8;

/// Fewest distinct units with which [`MARKER_LEN`] of them can spell 64 bits.
pub(crate) const MIN_ALPHABET: u32 = 256;

/// How many words there are.
pub(crate) const WORD_COUNT: u64 = WORDS.len() as u64;

/// What a stream of content is for. Streams never share a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Warmup = 1,
    Measured = 2,
    /// The prefix that all measured requests of a cell share.
    Shared = 3,
    /// A block of a trace, by its hash id.
    Block = 4,
    /// What follows a shared prefix, or the hashed blocks of a trace.
    Tail = 5,
    Lengths = 7,
}

/// Names one stream of content within a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) cell: u32,
    pub(crate) stream: Stream,
    pub(crate) index: u64,
}

/// All content of a run, as a function of the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) seed: u64,
    pub(crate) nonce: u64,
}

impl Source {
    /// A generator of its own for each key: the 256-bit seed holds all parts, so none is hashed away.
    pub(crate) fn rng(self, key: Key) -> ChaCha8Rng {
        let place = (u64::from(key.cell) << 8) | key.stream as u64;
        let mut seed = [0; 32];
        for (bytes, part) in seed
            .chunks_exact_mut(8)
            .zip([self.seed, self.nonce, place, key.index])
        {
            bytes.copy_from_slice(&part.to_le_bytes());
        }
        ChaCha8Rng::from_seed(seed)
    }

    /// `len` numbers below `alphabet`: the marker (as much of it as fits), then random ones.
    pub(crate) fn symbols(self, key: Key, len: usize, alphabet: u32) -> Vec<u32> {
        let mut symbols = Vec::with_capacity(len);
        symbols.extend(self.marker(key, alphabet).into_iter().take(len));
        let mut rng = self.rng(key);
        symbols.extend((symbols.len()..len).map(|_| rng.random_range(0..alphabet)));
        symbols
    }

    /// The digits, in base `alphabet`, of a number that no other key of this run has (up to 2^20
    /// cells of 2^41 requests), nor, but for a chance of about 2^-64, any key of another run.
    fn marker(self, key: Key, alphabet: u32) -> [u32; MARKER_LEN] {
        let packed = (u64::from(key.cell) << 44)
            | ((key.stream as u64) << 41)
            | (key.index & ((1 << 41) - 1));
        // One-to-one in `packed` for a given nonce: keys cannot collide within a run.
        let unique = mix(packed ^ mix(self.nonce));
        // The rest of the room (28 bits with 3000 ids) tells runs apart.
        let run = mix(!self.nonce);
        let mut value = (u128::from(run) << 64) | u128::from(unique);
        let alphabet = u128::from(alphabet.max(MIN_ALPHABET));
        std::array::from_fn(|_| {
            let digit = (value % alphabet) as u32;
            value /= alphabet;
            digit
        })
    }
}

/// The finaliser of SplitMix64: a bijection of 64-bit numbers.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// How words become tokens on one server: what a chat template adds, and what a word costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextCalibration {
    /// Prompt tokens a word.
    pub tokens_per_word: f64,
    /// Prompt tokens of a prompt without words (chat template, special tokens).
    pub overhead_tokens: f64,
}

impl Default for TextCalibration {
    /// One token a word and no overhead: what plain completions of the embedded words cost.
    fn default() -> Self {
        TextCalibration {
            tokens_per_word: 1.0,
            overhead_tokens: 0.0,
        }
    }
}

impl TextCalibration {
    /// From two prompts of different length: `(words sent, prompt tokens the server counted)`.
    ///
    /// `None` when the longer one did not cost more tokens.
    pub fn from_probes(short: (u64, u64), long: (u64, u64)) -> Option<Self> {
        let words = long.0.checked_sub(short.0).filter(|w| *w > 0)?;
        let tokens = long.1.checked_sub(short.1).filter(|t| *t > 0)?;
        let tokens_per_word = tokens as f64 / words as f64;
        Some(TextCalibration {
            tokens_per_word,
            overhead_tokens: (short.1 as f64 - short.0 as f64 * tokens_per_word).max(0.0),
        })
    }

    /// Words that make about `tokens` prompt tokens; at least one.
    pub fn words_for(&self, tokens: u64) -> u64 {
        let words = (tokens as f64 - self.overhead_tokens) / self.tokens_per_word;
        words.round().max(1.0) as u64
    }

    pub(crate) fn check(self) -> Result<Self, WorkloadError> {
        let sound = self.tokens_per_word.is_finite()
            && self.tokens_per_word > 0.0
            && self.overhead_tokens.is_finite()
            && self.overhead_tokens >= 0.0;
        if sound {
            return Ok(self);
        }
        Err(WorkloadError::Setting {
            field: "calibration",
            value: format!(
                "{} tokens a word over {} tokens",
                self.tokens_per_word, self.overhead_tokens
            ),
            expected: "a positive number of tokens a word and no negative overhead".to_owned(),
        })
    }
}

/// Turns numbers below [`Self::alphabet`] into a prompt.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) kind: PromptKind,
    pub(crate) ids: Range<u32>,
    pub(crate) calibration: TextCalibration,
}

impl Writer {
    pub(crate) fn as_kind(&self, kind: PromptKind) -> Writer {
        Writer {
            kind,
            ..self.clone()
        }
    }

    pub(crate) fn alphabet(&self) -> u32 {
        match self.kind {
            PromptKind::TokenIds => self.ids.end - self.ids.start,
            PromptKind::Text => WORDS.len() as u32,
        }
    }

    /// Units of a whole prompt of `tokens` tokens.
    pub(crate) fn units(&self, tokens: u64) -> usize {
        let units = match self.kind {
            PromptKind::TokenIds => tokens,
            PromptKind::Text => self.calibration.words_for(tokens),
        };
        usize::try_from(units).unwrap_or(usize::MAX)
    }

    /// Units of a block of `tokens` tokens inside a prompt (no overhead).
    pub(crate) fn block_units(&self, tokens: u64) -> usize {
        let units = match self.kind {
            PromptKind::TokenIds => tokens as f64,
            PromptKind::Text => tokens as f64 / self.calibration.tokens_per_word,
        };
        (units.round() as usize).max(1)
    }

    pub(crate) fn write(&self, symbols: &[u32]) -> Prompt {
        match self.kind {
            PromptKind::TokenIds => {
                Prompt::TokenIds(symbols.iter().map(|s| self.ids.start + s).collect())
            }
            PromptKind::Text => Prompt::Text(words(symbols)),
        }
    }
}

/// The words that `symbols` stand for, with single spaces.
pub(crate) fn words(symbols: &[u32]) -> String {
    let mut text = String::with_capacity(symbols.len() * 6);
    for symbol in symbols {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(WORDS[*symbol as usize % WORDS.len()]);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_words_are_distinct_short_and_enough() {
        let distinct: HashSet<_> = WORDS.iter().collect();
        assert_eq!(distinct.len(), WORDS.len());
        assert!(WORDS.len() >= MIN_ALPHABET as usize);
        for word in WORDS {
            assert!(
                word.len() >= 2 && word.bytes().all(|b| b.is_ascii_lowercase()),
                "{word}"
            );
        }
    }

    #[test]
    fn a_calibration_is_the_line_through_two_probes() {
        // 32 words cost 45 tokens and 160 cost 173: one token a word over a template of 13.
        let calibration = TextCalibration::from_probes((32, 45), (160, 173)).unwrap();
        assert_eq!(calibration.tokens_per_word, 1.0);
        assert_eq!(calibration.overhead_tokens, 13.0);
        assert_eq!(calibration.words_for(1024), 1011);
        assert_eq!(calibration.words_for(5), 1);
        assert_eq!(TextCalibration::from_probes((32, 45), (160, 45)), None);
        assert_eq!(TextCalibration::from_probes((32, 45), (32, 99)), None);
    }

    fn any_stream() -> impl Strategy<Value = Stream> {
        prop_oneof![
            Just(Stream::Warmup),
            Just(Stream::Measured),
            Just(Stream::Shared),
            Just(Stream::Block),
            Just(Stream::Tail),
        ]
    }

    proptest! {
        #[test]
        fn no_two_keys_of_a_run_share_a_marker(
            nonce: u64,
            seed: u64,
            keys in proptest::collection::hash_set((0u32..1 << 20, 0u64..1 << 41), 2..40),
            streams in proptest::collection::vec(any_stream(), 40),
            alphabet in 256u32..200_000,
        ) {
            let source = Source { seed, nonce };
            let mut markers = HashSet::new();
            for ((cell, index), stream) in keys.iter().zip(streams) {
                let key = Key { cell: *cell, stream, index: *index };
                prop_assert!(markers.insert(source.symbols(key, 8, alphabet)));
            }
        }

        #[test]
        fn two_streams_of_one_place_differ(nonce: u64, cell in 0u32..1000, index in 0u64..1_000_000) {
            let source = Source { seed: 0, nonce };
            let marker = |stream| source.symbols(Key { cell, stream, index }, 8, 3000);
            prop_assert_ne!(marker(Stream::Warmup), marker(Stream::Measured));
        }

        #[test]
        fn symbols_stay_below_the_alphabet(nonce: u64, index: u64, len in 0usize..200, alphabet in 256u32..5000) {
            let key = Key { cell: 1, stream: Stream::Measured, index };
            let symbols = Source { seed: 3, nonce }.symbols(key, len, alphabet);
            prop_assert_eq!(symbols.len(), len);
            prop_assert!(symbols.iter().all(|s| *s < alphabet));
        }
    }
}
