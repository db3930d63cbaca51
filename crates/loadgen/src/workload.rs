//! What to send: prompts and lengths as a pure function of the seed, the run and the place.
//!
//! A [`WorkloadSpec`] is text (the `[workload]` table of a [`WorkloadFile`]); [`Workload::build`]
//! checks it and reads the file it names; [`Workload::request`] then makes any request of the run,
//! in any order, without state. Two runs with the same seed draw the same lengths; two runs with
//! different nonces never send the same made-up prompt.
//!
//! ```
//! use linktax_loadgen::workload::{CellCoord, Prompt, Workload, WorkloadSpec};
//! use linktax_records::{CacheMode, Phase};
//!
//! let workload = Workload::build(&WorkloadSpec::default(), 42, 0x5eed)?;
//! let cell = CellCoord {
//!     cell: 0,
//!     input_len: Some(1024),
//!     output_len: Some(128),
//!     cache: CacheMode::Cold,
//! };
//! let plan = workload.request(&cell, Phase::Measured, 0).unwrap();
//! assert_eq!(plan.output_len, Some(128));
//! assert!(matches!(plan.prompt, Prompt::TokenIds(ids) if ids.len() == 1024));
//! # Ok::<(), linktax_loadgen::workload::WorkloadError>(())
//! ```

use std::path::PathBuf;
use std::sync::Arc;

use linktax_records::{CacheMode, CellSpec, Nanos, Note, Phase};

pub mod arrivals;
mod content;
mod error;
mod file;
mod items;
mod jsonl;
mod lengths;
mod sharegpt;
mod spec;
mod synthetic;
mod trace;
mod words;

pub use content::TextCalibration;
pub use error::WorkloadError;
pub use file::{RunSection, WorkloadFile, parse_cache};
pub use lengths::Lengths;
pub use spec::{PromptKind, WorkloadKind, WorkloadSpec};

use content::{Source, Writer};
use items::Items;
use synthetic::Synthetic;
use trace::Trace;

/// The prompt of one request.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// Token ids, for `/v1/completions`.
    TokenIds(Vec<u32>),
    /// Text: the prompt of a completion, or the one user message of a chat.
    Text(String),
    /// The `messages` of a chat, as they stand in the file.
    Messages(serde_json::Value),
}

/// One request to send.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestPlan {
    /// What to send.
    pub prompt: Prompt,
    /// Prompt tokens asked for; exact for token ids, `None` for the text of a file.
    pub input_len: Option<u64>,
    /// Tokens to generate; 1 for requests that only fill the cache, `None` if nobody said.
    pub output_len: Option<u64>,
    /// When a trace releases it, from the start of the measured phase, at the speed of the file.
    pub at: Option<Nanos>,
}

/// The part of a cell that its requests depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellCoord {
    /// Position in the run. Made-up prompts of different cells share nothing.
    pub cell: u32,
    /// Prompt tokens (the mean, where lengths are drawn); needed by synthetic workloads.
    pub input_len: Option<u64>,
    /// Output tokens (the mean, where lengths are drawn).
    pub output_len: Option<u64>,
    /// Declared state of the prefix cache.
    pub cache: CacheMode,
}

impl From<&CellSpec> for CellCoord {
    fn from(spec: &CellSpec) -> Self {
        CellCoord {
            cell: spec.index,
            input_len: spec.input_len,
            output_len: spec.output_len,
            cache: spec.cache,
        }
    }
}

/// A checked workload, its file read: makes the requests of a run. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Workload {
    name: String,
    source: Source,
    writer: Writer,
    requests: Requests,
    repeat: bool,
    path: Option<PathBuf>,
    notes: Vec<Note>,
}

#[derive(Clone, Debug)]
enum Requests {
    Synthetic(Synthetic),
    Items(Items),
    Trace(Arc<Trace>),
}

impl Workload {
    /// Checks `spec` and reads the file it names.
    ///
    /// `seed` decides lengths and contents; `nonce` must be fresh for every run (and common to the
    /// arms of a comparison), so that no run finds its prompts in the cache left by another.
    ///
    /// # Errors
    ///
    /// A setting that the kind does not use or that is out of range; a file that cannot be read or
    /// understood, with the line and field.
    pub fn build(spec: &WorkloadSpec, seed: u64, nonce: u64) -> Result<Self, WorkloadError> {
        spec.check()?;
        let mut notes = Vec::new();
        let requests = match spec.kind {
            WorkloadKind::Synthetic => Requests::Synthetic(Synthetic::new(spec)),
            WorkloadKind::Jsonl => {
                let items = jsonl::load(spec.file()?, spec.limit)?;
                Requests::Items(Items::new(items, true))
            }
            WorkloadKind::Sharegpt => {
                let (items, note) = sharegpt::load(spec.file()?, spec.limit)?;
                notes.extend(note);
                Requests::Items(Items::new(items, false))
            }
            WorkloadKind::Trace => {
                let block_tokens = spec.block_tokens.unwrap_or(trace::BLOCK_TOKENS);
                let trace = Trace::load(spec.file()?, spec.limit, block_tokens)?;
                Requests::Trace(Arc::new(trace))
            }
        };
        let name = spec.name.as_deref().unwrap_or(spec.kind.as_str());
        Ok(Workload {
            name: name.to_owned(),
            source: Source { seed, nonce },
            writer: Writer {
                kind: spec.prompt_kind.unwrap_or_default(),
                ids: spec.ids()?,
                calibration: TextCalibration::default(),
            },
            requests,
            repeat: spec.repeat.unwrap_or(false),
            path: spec.path.clone(),
            notes,
        })
    }

    /// The same workload with made-up text fitted to a server; without it one word is taken for one token.
    ///
    /// # Errors
    ///
    /// A calibration that is not a positive number of tokens a word over a non-negative overhead.
    pub fn with_calibration(mut self, fit: TextCalibration) -> Result<Self, WorkloadError> {
        self.writer.calibration = fit.check()?;
        Ok(self)
    }

    /// A text of `words` words to calibrate with: all words in turn, so that the difference between two texts that
    /// are [`Self::probe_words`] apart holds each word once.
    pub fn probe_text(&self, words: u64) -> String {
        let symbols: Vec<u32> = (0..words.max(1))
            .map(|n| (n % content::WORD_COUNT) as u32)
            .collect();
        content::words(&symbols)
    }

    /// Words in the shorter and in the longer text to calibrate with.
    pub fn probe_words(&self) -> [u64; 2] {
        [1, 1 + content::WORD_COUNT]
    }

    /// The name, for [`CellSpec::workload`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Distinct requests in the file; `None` when there is no end (synthetic, or repeated).
    #[expect(
        clippy::len_without_is_empty,
        reason = "a file without a request is an error of build"
    )]
    pub fn len(&self) -> Option<u64> {
        match &self.requests {
            _ if self.repeat => None,
            Requests::Synthetic(_) => None,
            Requests::Items(items) => Some(items.len()),
            Requests::Trace(trace) => Some(trace.len()),
        }
    }

    /// Whether made-up prompts are words, so that a calibration would make their length right.
    pub fn needs_calibration(&self) -> bool {
        self.writer.kind == PromptKind::Text
    }

    /// Whether the workload has release times of its own (a trace).
    pub fn is_timed(&self) -> bool {
        matches!(self.requests, Requests::Trace(_))
    }

    /// Remarks from reading the file.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Whether this workload can make the requests of `cell`.
    ///
    /// # Errors
    ///
    /// A synthetic cell without lengths, or a shared prefix asked of a file.
    pub fn check_cell(&self, cell: &CellCoord) -> Result<(), WorkloadError> {
        let wrong = |field, value: String, expected: &str| {
            Err(WorkloadError::Setting {
                field,
                value,
                expected: expected.to_owned(),
            })
        };
        if !matches!(self.requests, Requests::Synthetic(_)) {
            return match cell.cache {
                CacheMode::Prefix(_) => wrong(
                    "cache",
                    format!("`{}`", cell.cache),
                    "`workload`, `cold` or `warm`: the prompts of a file are sent as they are",
                ),
                _ => Ok(()),
            };
        }
        match (cell.input_len, cell.output_len) {
            (Some(input), Some(output)) if input > 0 && output > 0 => match cell.cache {
                CacheMode::Prefix(share) if !(share > 0.0 && share < 1.0) => wrong(
                    "cache",
                    format!("`{}`", cell.cache),
                    "a share above 0 and below 1",
                ),
                _ => Ok(()),
            },
            (Some(input), output) if input > 0 => wrong(
                "output_len",
                output.map_or_else(|| "missing".to_owned(), |len| len.to_string()),
                "at least 1 token to generate",
            ),
            (input, _) => wrong(
                "input_len",
                input.map_or_else(|| "missing".to_owned(), |len| len.to_string()),
                "at least 1 prompt token: a synthetic workload has no length of its own",
            ),
        }
    }

    /// Why a cell of `wanted` requests ends early, if the file is too short for it.
    pub fn shortfall(&self, wanted: u64) -> Option<WorkloadError> {
        let held = self.len().filter(|held| *held < wanted)?;
        Some(WorkloadError::Exhausted {
            path: self.path.clone().unwrap_or_default(),
            held,
            wanted,
        })
    }

    /// Requests of the prime phase that put the cache in the state that `cell` declares.
    pub fn prime_count(&self, cell: &CellCoord, measured_requests: u64) -> u64 {
        match (cell.cache, &self.requests) {
            (CacheMode::Warm, Requests::Synthetic(_)) => measured_requests,
            (CacheMode::Warm, Requests::Items(items)) => measured_requests.min(items.len()),
            (CacheMode::Warm, Requests::Trace(_)) => {
                measured_requests.min(self.len().unwrap_or(u64::MAX))
            }
            (CacheMode::Prefix(_), Requests::Synthetic(made_up)) => {
                u64::from(made_up.prime_prefix(&self.writer, cell).is_some())
            }
            (CacheMode::Prefix(_) | CacheMode::Cold | CacheMode::Workload, _) => 0,
        }
    }

    /// Request `index` of a phase: a pure function of the seed, the nonce and the arguments.
    ///
    /// `None` when the file is exhausted, when the phase has no requests in this cache state, or
    /// when [`Self::check_cell`] refuses the cell.
    pub fn request(&self, cell: &CellCoord, phase: Phase, index: u64) -> Option<RequestPlan> {
        if phase == Phase::Prime && matches!(cell.cache, CacheMode::Cold | CacheMode::Workload) {
            return None;
        }
        // Warm-up prompts are made up, so that they may outnumber the file.
        let exhausted = self.len().is_some_and(|held| index >= held);
        if exhausted && phase != Phase::Warmup {
            return None;
        }
        let plan = match &self.requests {
            Requests::Synthetic(made_up) => {
                made_up.plan(&self.writer, self.source, cell, phase, index)?
            }
            Requests::Items(items) => items.plan(&self.writer, self.source, cell, phase, index)?,
            Requests::Trace(trace) => {
                trace.plan(&self.writer, self.source, cell.cell, phase, index)?
            }
        };
        Some(match phase {
            // One token is enough to leave the prompt in the cache.
            Phase::Prime => RequestPlan {
                output_len: Some(1),
                ..plan
            },
            Phase::Warmup | Phase::Measured => plan,
        })
    }
}

#[cfg(test)]
mod tests;
