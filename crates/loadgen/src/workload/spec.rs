use std::ops::Range;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::content::MIN_ALPHABET;
use super::{Lengths, WorkloadError};

/// Where the requests come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkloadKind {
    /// Made-up prompts of a given length.
    #[default]
    Synthetic,
    /// A file with one request a line.
    Jsonl,
    /// A ShareGPT conversation file.
    Sharegpt,
    /// A Mooncake-style trace: arrival times, lengths and block hashes, no text.
    Trace,
}

impl WorkloadKind {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            WorkloadKind::Synthetic => "synthetic",
            WorkloadKind::Jsonl => "jsonl",
            WorkloadKind::Sharegpt => "sharegpt",
            WorkloadKind::Trace => "trace",
        }
    }

    const fn settings(self) -> &'static [&'static str] {
        match self {
            WorkloadKind::Synthetic => &[
                "name",
                "kind",
                "prompt_kind",
                "lengths",
                "output_lengths",
                "token_id_min",
                "token_id_max",
            ],
            WorkloadKind::Jsonl | WorkloadKind::Sharegpt => &[
                "name",
                "kind",
                "path",
                "limit",
                "repeat",
                "token_id_min",
                "token_id_max",
            ],
            WorkloadKind::Trace => &[
                "name",
                "kind",
                "path",
                "limit",
                "repeat",
                "block_tokens",
                "prompt_kind",
                "token_id_min",
                "token_id_max",
            ],
        }
    }
}

/// How made-up prompts are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptKind {
    /// As token ids: the length is exact. Only `/v1/completions` takes them.
    #[default]
    TokenIds,
    /// As words: the length is about right (see [`super::TextCalibration`]).
    Text,
}

/// The `[workload]` table of a workload file, as written.
///
/// Every setting is optional; which ones a kind uses is in the guide (`docs/guide/workloads.md`).
/// A setting that the kind does not use is an error of [`super::Workload::build`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkloadSpec {
    /// Name in results; the file's stem or the kind without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where the requests come from.
    pub kind: WorkloadKind,
    /// Token ids or words; token ids without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_kind: Option<PromptKind>,
    /// How input and output lengths are drawn; fixed without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lengths: Option<Lengths>,
    /// How output lengths are drawn, when not as `lengths` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_lengths: Option<Lengths>,
    /// Smallest token id used (1000 without it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_id_min: Option<u32>,
    /// One above the largest token id used (4000 without it).
    ///
    /// The ids from 1000 to 3999 are ordinary words and word pieces in the vocabularies in common
    /// use: no special token, no byte token, and small enough for the smallest vocabulary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_id_max: Option<u32>,
    /// The file of a `jsonl`, `sharegpt` or `trace` workload; relative to the workload file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Take at most this many requests of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Start over when the file is exhausted; `false` without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<bool>,
    /// Tokens that one `hash_ids` entry of a trace stands for (512 without it).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_tokens: Option<u64>,
}

impl WorkloadSpec {
    /// Refuses settings that the kind does not use, and values out of range.
    pub(crate) fn check(&self) -> Result<(), WorkloadError> {
        let given = [
            ("prompt_kind", self.prompt_kind.is_some()),
            ("lengths", self.lengths.is_some()),
            ("output_lengths", self.output_lengths.is_some()),
            ("path", self.path.is_some()),
            ("limit", self.limit.is_some()),
            ("repeat", self.repeat.is_some()),
            ("block_tokens", self.block_tokens.is_some()),
        ];
        let valid = self.kind.settings();
        if let Some((field, _)) = given
            .into_iter()
            .find(|(field, given)| *given && !valid.contains(field))
        {
            return Err(WorkloadError::NotForKind {
                field,
                kind: self.kind.as_str(),
                valid,
            });
        }
        for (field, value) in [("limit", self.limit), ("block_tokens", self.block_tokens)] {
            if value == Some(0) {
                return Err(WorkloadError::Setting {
                    field,
                    value: "0".to_owned(),
                    expected: "at least 1".to_owned(),
                });
            }
        }
        self.ids().map(|_| ())
    }

    /// The token ids that made-up prompts use.
    pub(crate) fn ids(&self) -> Result<Range<u32>, WorkloadError> {
        let ids = self.token_id_min.unwrap_or(1000)..self.token_id_max.unwrap_or(4000);
        if ids.end.saturating_sub(ids.start) < MIN_ALPHABET {
            return Err(WorkloadError::Setting {
                field: "token_id_max",
                value: format!("{} with token_id_min = {}", ids.end, ids.start),
                expected: format!(
                    "at least {MIN_ALPHABET} token ids between them, so that prompts can differ in their first block"
                ),
            });
        }
        Ok(ids)
    }

    pub(crate) fn file(&self) -> Result<&PathBuf, WorkloadError> {
        self.path.as_ref().ok_or_else(|| WorkloadError::Setting {
            field: "path",
            value: "missing".to_owned(),
            expected: format!("the file of the {} workload", self.kind.as_str()),
        })
    }
}
