use std::path::Path;

use linktax_records::{Nanos, Phase};

use super::content::{Key, MARKER_LEN, Source, Stream, Writer};
use super::jsonl::{Line, read_lines};
use super::{RequestPlan, WorkloadError};

/// Tokens a hash id stands for in Mooncake's traces.
pub(crate) const BLOCK_TOKENS: u64 = 512;

#[derive(Clone, Debug, PartialEq)]
struct Row {
    at: Nanos,
    input_len: u64,
    output_len: u64,
    hash_ids: Vec<u64>,
}

/// A trace: arrival times, lengths, and which blocks of the prompts are equal.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    rows: Vec<Row>,
    block_tokens: u64,
    /// One above the largest hash id.
    ids: u64,
    /// Time from the first request of one pass to the first of the next, when repeated.
    period: Nanos,
}

impl Trace {
    pub(crate) fn load(
        path: &Path,
        limit: Option<u64>,
        block_tokens: u64,
    ) -> Result<Self, WorkloadError> {
        let mut first_ms = None;
        let mut previous_ms = f64::NEG_INFINITY;
        let rows = read_lines(path, limit, |line| {
            let this_ms = timestamp(&line)?;
            if this_ms < previous_ms {
                return Err(WorkloadError::Backwards {
                    path: path.to_owned(),
                    line: line.number(),
                    previous_ms,
                    this_ms,
                });
            }
            previous_ms = this_ms;
            let elapsed_ms = this_ms - *first_ms.get_or_insert(this_ms);
            row(&line, Nanos::from_secs_f64(elapsed_ms / 1e3), block_tokens)
        })?;
        let ids = rows.iter().flat_map(|row| &row.hash_ids).max();
        let span = rows.last().map_or(Nanos::ZERO, |row| row.at);
        let gaps = (rows.len() as u64 - 1).max(1);
        Ok(Trace {
            ids: ids.map_or(0, |id| id + 1),
            // The next pass begins one mean gap after the last request of this one.
            period: span + Nanos::from_nanos(span.as_nanos() / gaps),
            rows,
            block_tokens,
        })
    }

    pub(crate) fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Request `index`; the caller has checked that it may repeat when `index` is past the end.
    pub(crate) fn plan(
        &self,
        writer: &Writer,
        source: Source,
        cell: u32,
        phase: Phase,
        index: u64,
    ) -> Option<RequestPlan> {
        let (pass, place) = (index / self.len(), index % self.len());
        let row = self.rows.get(usize::try_from(place).ok()?)?;
        let units = writer.units(row.input_len);
        let symbols = match phase {
            Phase::Warmup => {
                let key = Key {
                    cell,
                    stream: Stream::Warmup,
                    index,
                };
                source.symbols(key, units, writer.alphabet())
            }
            Phase::Prime | Phase::Measured => {
                self.blocks(row, pass, index, units, writer, source, cell)
            }
        };
        let offset = Nanos::from_nanos(self.period.as_nanos().saturating_mul(pass));
        Some(RequestPlan {
            prompt: writer.write(&symbols),
            input_len: Some(row.input_len),
            output_len: Some(row.output_len),
            at: (phase == Phase::Measured).then(|| row.at + offset),
        })
    }

    /// Equal ids give equal blocks within one cell and pass, and in no other.
    #[expect(clippy::too_many_arguments, reason = "the parts of one key")]
    fn blocks(
        &self,
        row: &Row,
        pass: u64,
        index: u64,
        units: usize,
        writer: &Writer,
        source: Source,
        cell: u32,
    ) -> Vec<u32> {
        let alphabet = writer.alphabet();
        let block_units = writer.block_units(self.block_tokens);
        let mut symbols = Vec::with_capacity(units.saturating_add(block_units));
        for id in &row.hash_ids {
            if symbols.len() >= units {
                break;
            }
            let key = Key {
                cell,
                stream: Stream::Block,
                index: id + pass * self.ids,
            };
            symbols.extend(source.symbols(key, block_units, alphabet));
        }
        symbols.truncate(units);
        if symbols.len() < units {
            let key = Key {
                cell,
                stream: Stream::Tail,
                index,
            };
            symbols.extend(source.symbols(key, units - symbols.len(), alphabet));
        }
        symbols
    }
}

fn timestamp(line: &Line<'_>) -> Result<f64, WorkloadError> {
    line.fields
        .get("timestamp")
        .and_then(serde_json::Value::as_f64)
        .filter(|ms| ms.is_finite())
        .ok_or_else(|| line.wrong("timestamp", "a number of milliseconds"))
}

fn row(line: &Line<'_>, at: Nanos, block_tokens: u64) -> Result<Row, WorkloadError> {
    let required = |field| {
        line.count(field)?
            .ok_or_else(|| line.wrong(field, "a number of tokens"))
    };
    let input_len = required("input_length")?;
    let output_len = required("output_length")?;
    let hash_ids = match line.fields.get("hash_ids") {
        None | Some(serde_json::Value::Null) => Vec::new(),
        Some(value) => value
            .as_array()
            .and_then(|ids| {
                ids.iter()
                    // Room for the pass number above the ids.
                    .map(|id| id.as_u64().filter(|id| *id < 1 << 40))
                    .collect::<Option<Vec<u64>>>()
            })
            .ok_or_else(|| line.wrong("hash_ids", "a list of whole numbers below 2^40"))?,
    };
    if hash_ids.len() as u64 > input_len.div_ceil(block_tokens) {
        return Err(line.wrong(
            "hash_ids",
            "at most one id a block of `block_tokens` tokens of `input_length` (is `block_tokens` right?)",
        ));
    }
    Ok(Row {
        at,
        input_len,
        output_len,
        hash_ids,
    })
}

const _: () = assert!(BLOCK_TOKENS as usize >= MARKER_LEN);

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::workload::{Prompt, PromptKind, TextCalibration};

    const SOURCE: Source = Source { seed: 1, nonce: 2 };

    fn trace(text: &str) -> Result<Trace, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        Trace::load(file.path(), None, 512).map_err(|e| {
            e.to_string()
                .replace(&file.path().display().to_string(), "F")
        })
    }

    fn writer(kind: PromptKind) -> Writer {
        Writer {
            kind,
            ids: 1000..4000,
            calibration: TextCalibration::default(),
        }
    }

    fn ids(trace: &Trace, source: Source, cell: u32, index: u64) -> Vec<u32> {
        let writer = writer(PromptKind::TokenIds);
        let plan = trace.plan(&writer, source, cell, Phase::Measured, index);
        match plan.unwrap().prompt {
            Prompt::TokenIds(ids) => ids,
            other => panic!("{other:?}"),
        }
    }

    const THREE: &str = r#"{"timestamp": 1000, "input_length": 1500, "output_length": 20, "hash_ids": [7, 8, 9]}
{"timestamp": 1250.5, "input_length": 1100, "output_length": 30, "hash_ids": [7, 8, 10]}

{"timestamp": 2000, "input_length": 1300, "output_length": 40, "hash_ids": [7]}
"#;

    #[test]
    fn times_are_relative_to_the_first_request() {
        let trace = trace(THREE).unwrap();
        let at: Vec<Nanos> = trace.rows.iter().map(|row| row.at).collect();
        assert_eq!(
            at,
            [
                Nanos::ZERO,
                Nanos::from_micros(250_500),
                Nanos::from_millis(1000)
            ]
        );
    }

    #[test]
    fn equal_hash_ids_are_equal_blocks_and_nothing_else_is() {
        let trace = trace(THREE).unwrap();
        let [a, b, c] = [0, 1, 2].map(|i| ids(&trace, SOURCE, 0, i));
        assert_eq!((a.len(), b.len(), c.len()), (1500, 1100, 1300));
        assert_eq!(a[..1024], b[..1024]);
        assert_ne!(a[1024..1032], b[1024..1032]);
        assert_eq!(a[..512], c[..512]);
        assert_ne!(a[512..520], c[512..520]);
        assert_ne!(a[..8], ids(&trace, SOURCE, 1, 0)[..8], "another cell");
        let other_run = Source { nonce: 3, ..SOURCE };
        assert_ne!(a[..8], ids(&trace, other_run, 0, 0)[..8], "another run");
    }

    #[test]
    fn a_second_pass_comes_later_and_shares_nothing_with_the_first() {
        let trace = trace(THREE).unwrap();
        let plan = trace.plan(&writer(PromptKind::TokenIds), SOURCE, 0, Phase::Measured, 3);
        // 1,000 ms of trace and one mean gap of 500 ms.
        assert_eq!(plan.unwrap().at, Some(Nanos::from_millis(1500)));
        assert_ne!(
            ids(&trace, SOURCE, 0, 0)[..8],
            ids(&trace, SOURCE, 0, 3)[..8]
        );
        let (a, b) = (ids(&trace, SOURCE, 0, 3), ids(&trace, SOURCE, 0, 4));
        assert_eq!(a[..1024], b[..1024]);
    }

    #[test]
    fn warm_up_shares_no_block_with_the_trace_and_prime_is_the_trace_itself() {
        let trace = trace(THREE).unwrap();
        let writer = writer(PromptKind::TokenIds);
        let plan = |phase| trace.plan(&writer, SOURCE, 0, phase, 0).unwrap();
        let measured = plan(Phase::Measured);
        assert_eq!(plan(Phase::Prime).prompt, measured.prompt);
        assert_eq!(plan(Phase::Prime).at, None);
        assert_ne!(plan(Phase::Warmup).prompt, measured.prompt);
    }

    #[test]
    fn text_blocks_are_shared_as_token_blocks_are() {
        let trace = trace(THREE).unwrap();
        let mut writer = writer(PromptKind::Text);
        writer.calibration.tokens_per_word = 1.25;
        let words = |index| match trace.plan(&writer, SOURCE, 0, Phase::Measured, index) {
            Some(RequestPlan {
                prompt: Prompt::Text(text),
                ..
            }) => text.split(' ').map(str::to_owned).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        let (a, b) = (words(0), words(1));
        assert_eq!((a.len(), b.len()), (1200, 880));
        // 512 tokens are 410 words here.
        assert_eq!(a[..820], b[..820]);
        assert_ne!(a[820..828], b[820..828]);
    }

    #[test]
    fn time_that_goes_backwards_is_an_error_with_its_line() {
        let text =
            format!("{THREE}{{\"timestamp\": 1999, \"input_length\": 1, \"output_length\": 1}}");
        let message = trace(&text).unwrap_err();
        assert!(
            message.starts_with("F:5: `timestamp` is 1999 ms, after 2000 ms"),
            "{message}"
        );
    }

    #[test]
    fn bad_fields_are_named() {
        let failure = |text: &str| trace(text).unwrap_err();
        assert_eq!(
            failure(r#"{"input_length": 1, "output_length": 1}"#),
            "F:1: `timestamp` is missing: expected a number of milliseconds"
        );
        assert_eq!(
            failure(r#"{"timestamp": 0, "output_length": 1}"#),
            "F:1: `input_length` is missing: expected a number of tokens"
        );
        assert!(
            failure(
                r#"{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": ["x"]}"#
            )
            .starts_with("F:1: `hash_ids` is [\"x\"]: expected a list")
        );
        assert!(
            failure(
                r#"{"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [1, 2]}"#
            )
            .contains("is `block_tokens` right?")
        );
    }
}
