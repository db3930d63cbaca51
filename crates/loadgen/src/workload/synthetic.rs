use linktax_records::{CacheMode, Phase};

use super::content::{Key, Source, Stream, Writer};
use super::{CellCoord, Lengths, RequestPlan, WorkloadSpec};

/// Made-up prompts of given lengths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Synthetic {
    input: Lengths,
    output: Lengths,
}

impl Synthetic {
    pub(crate) fn new(spec: &WorkloadSpec) -> Self {
        let input = spec.lengths.unwrap_or_default();
        Synthetic {
            input,
            output: spec.output_lengths.unwrap_or(input),
        }
    }

    pub(crate) fn plan(
        &self,
        writer: &Writer,
        source: Source,
        cell: &CellCoord,
        phase: Phase,
        index: u64,
    ) -> Option<RequestPlan> {
        let (input_len, output_len) = self.draw(source.seed, cell, index)?;
        let units = writer.units(input_len);
        let alphabet = writer.alphabet();
        let key = |stream, index| Key {
            cell: cell.cell,
            stream,
            index,
        };
        let symbols = match (phase, cell.cache) {
            (Phase::Warmup, _) => source.symbols(key(Stream::Warmup, index), units, alphabet),
            (Phase::Prime, CacheMode::Prefix(_)) => {
                let shared = self.prime_prefix(writer, cell).filter(|_| index == 0)?;
                let symbols = source.symbols(key(Stream::Shared, 0), shared.units, alphabet);
                return Some(RequestPlan {
                    prompt: writer.write(&symbols),
                    input_len: Some(shared.tokens),
                    output_len,
                    at: None,
                });
            }
            (Phase::Measured, CacheMode::Prefix(share)) => {
                // One unit at least is each request's own: the server computes something.
                let shared = prefix(writer, input_len, share).units.min(units - 1);
                let mut symbols = source.symbols(key(Stream::Shared, 0), shared, alphabet);
                let own = key(Stream::Tail, index);
                symbols.extend(source.symbols(own, units - shared, alphabet));
                symbols
            }
            // Prime request i is measured request i.
            (Phase::Prime | Phase::Measured, _) => {
                source.symbols(key(Stream::Measured, index), units, alphabet)
            }
        };
        Some(RequestPlan {
            prompt: writer.write(&symbols),
            input_len: Some(input_len),
            output_len,
            at: None,
        })
    }

    /// Lengths depend on the seed and the index alone, so that all cells and all runs with one seed
    /// draw the same ones.
    fn draw(&self, seed: u64, cell: &CellCoord, index: u64) -> Option<(u64, Option<u64>)> {
        let source = Source { seed, nonce: 0 };
        let mut rng = source.rng(Key {
            cell: 0,
            stream: Stream::Lengths,
            index,
        });
        let input_len = self.input.draw(cell.input_len?, &mut rng);
        let output_len = cell.output_len.map(|len| self.output.draw(len, &mut rng));
        Some((input_len, output_len))
    }

    /// The prefix that the longest prompt of the cell shares with the others; `None` if that is nothing.
    pub(crate) fn prime_prefix(&self, writer: &Writer, cell: &CellCoord) -> Option<Prefix> {
        let CacheMode::Prefix(share) = cell.cache else {
            return None;
        };
        let longest = self.input.longest(cell.input_len?);
        Some(prefix(writer, longest, share)).filter(|prefix| prefix.tokens > 0)
    }
}

pub(crate) struct Prefix {
    pub(crate) tokens: u64,
    pub(crate) units: usize,
}

/// What a prompt of `input_len` tokens shares.
fn prefix(writer: &Writer, input_len: u64, share: f64) -> Prefix {
    let tokens = (input_len as f64 * share).round() as u64;
    let units = match tokens {
        0 => 0,
        tokens => writer.units(tokens),
    };
    Prefix { tokens, units }
}
