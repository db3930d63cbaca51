//! The operations of a lane laid out for looking at: one row a stream, and more where operations of one stream overlap.

use std::collections::BTreeMap;

use crate::collectives::Collectives;
use crate::steps::{Batch, Step, StepKind};
use crate::{Lane, Ops};

/// One row: operations of one stream that do not overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Track {
    pub(crate) stream: u32,
    /// 0 for the stream itself; more for what overlaps on it (programmatic dependent launch starts a kernel early).
    pub(crate) layer: u32,
    /// Positions in the lane, by start.
    pub(crate) ops: Vec<usize>,
}

impl Track {
    /// What to write beside it.
    pub(crate) fn label(&self) -> String {
        match self.layer {
            0 => format!("stream {}", self.stream),
            layer => format!("stream {} +{layer}", self.stream),
        }
    }
}

/// Operations that touch `from..to`, those of no duration included.
pub(crate) fn within(ops: &Ops, from: i64, to: i64) -> impl Iterator<Item = usize> + '_ {
    (0..ops.len())
        .take_while(move |&i| ops.start(i) < to)
        .filter(move |&i| ops.end(i) > from || ops.start(i) >= from)
}

/// Lays these operations (ascending) out on as few rows as their streams need, by stream and layer.
pub(crate) fn tracks(ops: &Ops, which: impl IntoIterator<Item = usize>) -> Vec<Track> {
    // For each stream the end and the operations of each layer.
    let mut streams: BTreeMap<u32, Vec<(i64, Vec<usize>)>> = BTreeMap::new();
    for i in which {
        let layers = streams.entry(ops.stream(i)).or_default();
        match layers.iter_mut().find(|layer| layer.0 <= ops.start(i)) {
            Some(layer) => {
                layer.0 = ops.end(i);
                layer.1.push(i);
            }
            None => layers.push((ops.end(i), vec![i])),
        }
    }
    let track = |(stream, layers): (u32, Vec<(i64, Vec<usize>)>)| {
        let rows = (0..).zip(layers);
        rows.map(move |(layer, (_, ops))| Track { stream, layer, ops })
    };
    streams.into_iter().flat_map(track).collect()
}

/// Wait of each collective of a lane, for look-ups by operation.
pub(crate) struct Waits(Vec<(u32, u64)>);

impl Waits {
    pub(crate) fn of(collectives: Option<&Collectives>, lane: usize) -> Self {
        Waits(collectives.and_then(|c| c.waits(lane)).unwrap_or_default())
    }

    /// `None` for an operation that is not a paired collective.
    pub(crate) fn get(&self, op: usize) -> Option<u64> {
        let op = u32::try_from(op).ok()?;
        let at = self.0.binary_search_by_key(&op, |&(op, _)| op).ok()?;
        self.0.get(at).map(|&(_, wait)| wait)
    }
}

/// `GPU 1 (pid 77, device 0)`. Lanes are numbered by their place, as in tables: a process's own ordinal collides.
pub(crate) fn lane_title(at: usize, lane: &Lane) -> String {
    format!("GPU {at} (pid {}, device {})", lane.pid, lane.id.device)
}

/// `decode, 16 requests, 16 tokens`, as far as known.
pub(crate) fn step_words(kind: StepKind, batch: Option<Batch>) -> String {
    let mut words = kind.as_str().to_owned();
    if let Some(batch) = batch {
        let plural = |n: u64, what: &str| match n {
            1 => format!(", 1 {what}"),
            n => format!(", {n} {what}s"),
        };
        let requests = u64::from(batch.context_requests) + u64::from(batch.generation_requests);
        words += &plural(requests, "request");
        if let Some(tokens) = batch.tokens() {
            words += &plural(tokens, "token");
        }
    }
    words
}

/// The lowest and the highest index of these steps.
pub(crate) fn first_and_last<'a>(steps: impl IntoIterator<Item = &'a Step>) -> Option<(u32, u32)> {
    let ends = steps.into_iter().map(|step| (step.index, step.index));
    ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{NameId, Op, OpKind};

    fn op(start: i64, dur: u64, stream: u32) -> Op {
        Op {
            start,
            dur,
            name: NameId(0),
            stream,
            corr: 0,
            node: 0,
            bytes: 0,
            kind: OpKind::Kernel,
        }
    }

    #[test]
    fn a_kernel_that_starts_early_gets_a_row_of_its_own() {
        let ops: Ops = [op(0, 10, 7), op(8, 4, 7), op(12, 1, 7), op(3, 2, 20)]
            .into_iter()
            .collect();
        let rows: Vec<_> = tracks(&ops, within(&ops, 0, 20))
            .into_iter()
            .map(|t| (t.label(), t.ops))
            .collect();
        let row = |label: &str, ops: &[usize]| (label.to_owned(), ops.to_vec());
        assert_eq!(
            rows,
            [
                row("stream 7", &[0, 3]),
                row("stream 7 +1", &[2]),
                row("stream 20", &[1])
            ]
        );
    }

    #[test]
    fn what_straddles_a_window_is_in_it() {
        let ops: Ops = [
            op(0, 10, 7),
            op(5, 1, 7),
            op(10, 0, 7),
            op(19, 9, 7),
            op(20, 1, 7),
        ]
        .into_iter()
        .collect();
        let found: Vec<usize> = within(&ops, 9, 20).collect();
        assert_eq!(found, [0, 2, 3]);
    }

    proptest! {
        /// Every operation is on exactly one row, rows hold one stream, and nothing on a row overlaps.
        #[test]
        fn rows_do_not_overlap(raw in prop::collection::vec((0i64..50, 0u64..20, 0u32..3), 0..60)) {
            let ops: Ops = raw.iter().map(|&(start, dur, stream)| op(start, dur, stream)).collect();
            let rows = tracks(&ops, 0..ops.len());
            let mut seen: Vec<usize> = rows.iter().flat_map(|t| t.ops.iter().copied()).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..ops.len()).collect::<Vec<_>>());
            for row in &rows {
                prop_assert!(row.ops.iter().all(|&i| ops.stream(i) == row.stream));
                prop_assert!(row.ops.windows(2).all(|w| ops.end(w[0]) <= ops.start(w[1])));
            }
        }
    }
}
