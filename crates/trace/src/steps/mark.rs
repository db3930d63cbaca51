//! The NVTX texts that engines put around their steps.

use serde::{Deserialize, Serialize};

use super::StepKind;

/// What a step worked on, as far as its mark tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Batch {
    /// Requests in their prefill.
    pub context_requests: u32,
    /// Prompt tokens of this step (a chunk, not the whole prompt).
    pub context_tokens: Option<u64>,
    /// Requests in their decoding.
    pub generation_requests: u32,
    /// Tokens of the decoding requests, draft tokens included.
    pub generation_tokens: Option<u64>,
    /// Context lengths of the decoding requests, summed (detailed form only).
    pub generation_kv_tokens: Option<u64>,
}

impl Batch {
    /// Tokens of one decoding request in this step: 1, or 1 + draft tokens with speculative decoding.
    pub fn tokens_per_sequence(&self) -> Option<f64> {
        let requests = (self.generation_requests > 0).then_some(self.generation_requests)?;
        Some(self.generation_tokens? as f64 / f64::from(requests))
    }

    /// All tokens that went through the model in this step.
    pub fn tokens(&self) -> Option<u64> {
        let side = |requests: u32, tokens: Option<u64>| match requests {
            0 => Some(tokens.unwrap_or(0)),
            _ => tokens,
        };
        side(self.context_requests, self.context_tokens)?
            .checked_add(side(self.generation_requests, self.generation_tokens)?)
    }

    fn kind(&self) -> StepKind {
        match (self.context_requests > 0, self.generation_requests > 0) {
            (true, true) => StepKind::Mixed,
            (true, false) => StepKind::Prefill,
            (false, true) => StepKind::Decode,
            (false, false) => StepKind::Idle,
        }
    }
}

/// The mark of one step, read from its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepMark {
    /// What kind of step the text says it is.
    pub kind: StepKind,
    /// The batch, where the text gives it.
    pub batch: Option<Batch>,
}

/// Whether an NVTX text is of use to the step finder: the mark of a step, or a scope inside one.
pub(crate) fn is_step_mark(text: &str) -> bool {
    is_scope(text) || parse_step_mark(text).is_some()
}

/// A scope of the model runner inside a step (`gpu_model_runner: draft`).
pub(crate) fn is_scope(text: &str) -> bool {
    scope(text).is_some()
}

/// The name of a scope of the model runner.
pub(crate) fn scope(text: &str) -> Option<&str> {
    text.strip_prefix("gpu_model_runner: ")
}

/// Reads the text of a step's NVTX range; `None` if it is none.
///
/// Known: vLLM `execute_context_P(T)_generation_G(N)`, its detailed form with `sq…sk…` inside the parentheses and the
/// older `execute_new_X_cached_Y`; SGLang `step[DECODE bs=31]`; TensorRT-LLM
/// `[Executor] _forward_step 7: 0 ctx reqs, 32 gen reqs`; loops that number their steps (`decode_step 3`,
/// `ProfilerStep#4`).
///
/// ```
/// use linktax_trace::{StepKind, parse_step_mark};
///
/// let mark = parse_step_mark("execute_context_1(8188)_generation_4(4)").unwrap();
/// assert_eq!(mark.kind, StepKind::Mixed);
/// assert_eq!(mark.batch.unwrap().tokens(), Some(8192));
/// ```
pub fn parse_step_mark(text: &str) -> Option<StepMark> {
    vllm(text)
        .or_else(|| vllm_old(text))
        .or_else(|| tensorrt(text))
        .map(|batch| StepMark {
            kind: batch.kind(),
            batch: Some(batch),
        })
        .or_else(|| sglang(text))
        .or_else(|| numbered(text))
}

/// A run of digits at the front, and what follows.
fn number(text: &str) -> Option<(u64, &str)> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, rest) = text.split_at_checked(digits)?;
    Some((number.parse().ok()?, rest))
}

fn requests(text: &str) -> Option<(u32, &str)> {
    let (n, rest) = number(text)?;
    Some((u32::try_from(n).ok()?, rest))
}

/// `4(4096)` or `4(sq4096sk8192…)`: requests, tokens, context tokens, rest.
fn counted(text: &str) -> Option<(u32, Option<u64>, Option<u64>, &str)> {
    let (n, rest) = requests(text)?;
    let (inside, rest) = rest.strip_prefix('(')?.split_once(')')?;
    let labelled = |label: &str| {
        inside
            .match_indices(label)
            .find_map(|(at, _)| number(&inside[at + label.len()..]).map(|(n, _)| n))
    };
    match number(inside) {
        Some((tokens, "")) => Some((n, Some(tokens), None, rest)),
        _ => Some((n, labelled("sq"), labelled("sk"), rest)),
    }
}

fn vllm(text: &str) -> Option<Batch> {
    let (context_requests, context_tokens, _, rest) =
        counted(text.strip_prefix("execute_context_")?)?;
    let (generation_requests, generation_tokens, generation_kv_tokens, _) =
        counted(rest.strip_prefix("_generation_")?)?;
    Some(Batch {
        context_requests,
        context_tokens,
        generation_requests,
        generation_tokens,
        generation_kv_tokens,
    })
}

/// The first form: only how many requests are new. A chunked prefill that goes on counts as cached there.
fn vllm_old(text: &str) -> Option<Batch> {
    let (context_requests, rest) = requests(text.strip_prefix("execute_new_")?)?;
    let (generation_requests, _) = requests(rest.strip_prefix("_cached_")?)?;
    Some(Batch {
        context_requests,
        generation_requests,
        ..Batch::default()
    })
}

fn tensorrt(text: &str) -> Option<Batch> {
    let text = text.strip_prefix("[Executor] _forward_step")?;
    let (_, counts) = text.split_once(": ")?;
    let mut batch = Batch::default();
    let mut named = false;
    for part in counts.split(", ") {
        let (n, what) = number(part)?;
        match what.trim() {
            "ctx reqs" => batch.context_requests = u32::try_from(n).ok()?,
            "gen reqs" => {
                batch.generation_requests = u32::try_from(n).ok()?;
                named = true;
            }
            "ctx tokens" => batch.context_tokens = Some(n),
            "gen tokens" => batch.generation_tokens = Some(n),
            _ => {}
        }
    }
    named.then_some(batch)
}

fn sglang(text: &str) -> Option<StepMark> {
    let (inside, _) = text.strip_prefix("step[")?.split_once(']')?;
    let mut words = inside.split_whitespace();
    let mode = words.next()?;
    let field = |key: &str| {
        inside
            .split_whitespace()
            .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
            .and_then(|value| number(value).map(|(n, _)| n))
    };
    let requests = field("bs").and_then(|n| u32::try_from(n).ok());
    let tokens = field("toks").or_else(|| field("tokens"));
    let (kind, batch) = match mode {
        "DECODE" => (
            StepKind::Decode,
            requests.map(|n| Batch {
                generation_requests: n,
                generation_tokens: tokens.or(Some(u64::from(n))),
                ..Batch::default()
            }),
        ),
        "TARGET_VERIFY" => (
            StepKind::Decode,
            requests.map(|n| Batch {
                generation_requests: n,
                generation_tokens: tokens,
                ..Batch::default()
            }),
        ),
        "EXTEND" | "PREFILL" => (
            StepKind::Prefill,
            requests.map(|n| Batch {
                context_requests: n,
                context_tokens: tokens,
                ..Batch::default()
            }),
        ),
        "MIXED" => (StepKind::Mixed, None),
        "DRAFT_EXTEND" | "DRAFT" => (StepKind::Draft, None),
        "IDLE" => (StepKind::Idle, None),
        _ => (StepKind::Unknown, None),
    };
    Some(StepMark { kind, batch })
}

/// Loops of one's own: a word for a step, then its number.
fn numbered(text: &str) -> Option<StepMark> {
    let word = text
        .trim_end_matches(|c: char| c.is_ascii_digit())
        .trim_end_matches([' ', '#', ':', '_']);
    let kind = match word {
        "decode_step" | "generation_step" | "generate_step" => StepKind::Decode,
        "prefill_step" | "context_step" => StepKind::Prefill,
        "draft_step" => StepKind::Draft,
        "eager_step" => StepKind::Unknown,
        // Common words: only with a number behind them.
        "step" | "iteration" | "iter" | "ProfilerStep" | "train_step" if word != text => {
            StepKind::Unknown
        }
        _ => return None,
    };
    Some(StepMark { kind, batch: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(text: &str) -> (StepKind, [Option<u64>; 4]) {
        let mark = parse_step_mark(text).unwrap();
        let b = mark.batch.unwrap();
        (
            mark.kind,
            [
                Some(b.context_requests.into()),
                b.context_tokens,
                Some(b.generation_requests.into()),
                b.generation_tokens,
            ],
        )
    }

    #[test]
    fn vllm_marks_give_the_batch() {
        for (text, kind, numbers) in [
            (
                "execute_context_0(0)_generation_16(16)",
                StepKind::Decode,
                [Some(0), Some(0), Some(16), Some(16)],
            ),
            (
                "execute_context_4(4096)_generation_0(0)",
                StepKind::Prefill,
                [Some(4), Some(4096), Some(0), Some(0)],
            ),
            (
                "execute_context_1(sq8188sk8188sqsq67043344)_generation_4(sq4sk32768)",
                StepKind::Mixed,
                [Some(1), Some(8188), Some(4), Some(4)],
            ),
            (
                "execute_new_2_cached_5",
                StepKind::Mixed,
                [Some(2), None, Some(5), None],
            ),
            (
                "execute_context_0(0)_generation_0(0)",
                StepKind::Idle,
                [Some(0), Some(0), Some(0), Some(0)],
            ),
        ] {
            assert_eq!(batch(text), (kind, numbers), "{text}");
        }
        let detailed = parse_step_mark("execute_context_0(sq0sk0)_generation_4(sq4sk32768)");
        assert_eq!(
            detailed.unwrap().batch.unwrap().generation_kv_tokens,
            Some(32768)
        );
    }

    #[test]
    fn speculation_shows_in_the_tokens_of_a_sequence() {
        let mark = parse_step_mark("execute_context_0(0)_generation_2(8)").unwrap();
        assert_eq!(mark.batch.unwrap().tokens_per_sequence(), Some(4.0));
        let prefill = parse_step_mark("execute_context_1(10)_generation_0(0)").unwrap();
        assert_eq!(prefill.batch.unwrap().tokens_per_sequence(), None);
    }

    #[test]
    fn other_engines_give_what_they_know() {
        for (text, kind, numbers) in [
            (
                "[Executor] _forward_step 60000: 0 ctx reqs, 0 ctx tokens, 32 gen reqs",
                StepKind::Decode,
                [Some(0), Some(0), Some(32), None],
            ),
            (
                "[Executor] _forward_step: 2 ctx reqs, 5 gen reqs",
                StepKind::Mixed,
                [Some(2), None, Some(5), None],
            ),
            (
                "step[DECODE bs=31]",
                StepKind::Decode,
                [Some(0), None, Some(31), Some(31)],
            ),
            (
                "step[EXTEND bs=2 toks=1024]",
                StepKind::Prefill,
                [Some(2), Some(1024), Some(0), None],
            ),
        ] {
            assert_eq!(batch(text), (kind, numbers), "{text}");
        }
        assert_eq!(
            parse_step_mark("decode_step 17").map(|m| m.kind),
            Some(StepKind::Decode)
        );
        assert_eq!(
            parse_step_mark("ProfilerStep#4").map(|m| m.kind),
            Some(StepKind::Unknown)
        );
    }

    #[test]
    fn other_ranges_are_no_marks() {
        for text in [
            "",
            "ncclAllReduce",
            "aten::copy_, op_id = 990605",
            "schedule: allocate_slots",
            "execute_context_",
            "execute_context_1(2",
            "execute_context_x(1)_generation_1(1)",
            "execute_context_1(99999999999999999999)_generation",
            "step",
            "misstep 3",
            "[Executor] _forward_step",
        ] {
            assert_eq!(parse_step_mark(text), None, "{text}");
        }
        assert!(is_step_mark("gpu_model_runner: draft") && is_scope("gpu_model_runner: draft"));
        assert!(!is_step_mark("llm_engine step: get_output"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_a_fault(text in "(execute_context_|step\\[|\\[Executor\\] _forward_step )?.{0,40}") {
            is_step_mark(&text);
        }
    }
}
