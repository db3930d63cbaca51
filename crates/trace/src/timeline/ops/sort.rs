//! The canonical order of operations.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::{NameId, OpKind, Ops};

/// One row of the columns.
#[derive(Clone, Copy)]
struct Stored {
    start: i64,
    dur: u32,
    name: NameId,
    place: u16,
    corr: u32,
    node: u32,
    kind: OpKind,
}

/// A rest this many times shorter than all rows is moved into the sorted rows before it.
const SHORT: usize = 4;

impl Ops {
    /// Puts the operations into a canonical order (start, then end, stream, name, node), whatever the order of rows
    /// was: nothing downstream may depend on it. Returns whether anything moved.
    pub fn sort(&mut self) -> bool {
        let rows = self.len();
        match (1..rows).find(|&i| self.compare(i - 1, i).is_gt()) {
            None => return false,
            // An export has its kernels in order, and after them the few copies and fills.
            Some(head) if (rows - head) * SHORT <= rows => self.merge(head),
            Some(_) => {
                let mut order: Vec<u32> = (0..rows as u32).collect();
                order.sort_by(|&a, &b| self.compare(a as usize, b as usize));
                self.permute(order);
            }
        }
        true
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        let rest = |i: usize| {
            let op = self.get(i);
            (
                op.dur, op.stream, op.name, op.node, op.corr, op.kind, op.bytes,
            )
        };
        let by_start = self.start[a].cmp(&self.start[b]);
        by_start.then_with(|| rest(a).cmp(&rest(b)))
    }

    /// Moves the short rest from `head` on to its places among the sorted rows before. Those move in blocks: a memory
    /// copy a column, where single rows in the order of the result would miss the cache at every step.
    fn merge(&mut self, head: usize) {
        let mut tail: Vec<usize> = (head..self.len()).collect();
        tail.sort_by(|&a, &b| self.compare(a, b));
        let before: Vec<usize> = tail.iter().map(|&row| self.before(row, head)).collect();
        let mut place_in_tail = vec![0; tail.len()];
        for (at, &row) in tail.iter().enumerate() {
            place_in_tail[row - head] = at;
        }
        let moved = |row: usize| match row.checked_sub(head) {
            None => row + before.partition_point(|&b| b <= row),
            Some(at) => before[place_in_tail[at]] + place_in_tail[at],
        };
        follow(&mut self.long, moved);
        follow(&mut self.far, moved);
        follow(&mut self.bytes, moved);
        insert(&mut self.start, head, &tail, &before);
        insert(&mut self.dur, head, &tail, &before);
        insert(&mut self.name, head, &tail, &before);
        insert(&mut self.place, head, &tail, &before);
        insert(&mut self.corr, head, &tail, &before);
        insert(&mut self.node, head, &tail, &before);
        insert(&mut self.kind, head, &tail, &before);
    }

    /// How many of the sorted rows before `head` come before this one.
    fn before(&self, row: usize, head: usize) -> usize {
        let (mut low, mut high) = (0, head);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.compare(middle, row).is_le() {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// Row by row along the cycles of the permutation, in place: a second copy of the rows is never held.
    fn permute(&mut self, mut order: Vec<u32>) {
        fn side<T: Copy>(side: &mut BTreeMap<u32, T>, order: &[u32]) {
            if side.is_empty() {
                return;
            }
            *side = (0..)
                .zip(order)
                .filter_map(|(new, old)| Some((new, *side.get(old)?)))
                .collect();
        }
        side(&mut self.long, &order);
        side(&mut self.far, &order);
        side(&mut self.bytes, &order);
        for first in 0..order.len() {
            if order[first] as usize == first {
                continue;
            }
            let held = self.stored(first);
            let mut at = first;
            loop {
                let from = order[at] as usize;
                order[at] = at as u32;
                if from == first {
                    self.store(at, held);
                    break;
                }
                self.store(at, self.stored(from));
                at = from;
            }
        }
    }

    fn stored(&self, i: usize) -> Stored {
        Stored {
            start: self.start[i],
            dur: self.dur[i],
            name: self.name[i],
            place: self.place[i],
            corr: self.corr[i],
            node: self.node[i],
            kind: self.kind[i],
        }
    }

    fn store(&mut self, i: usize, row: Stored) {
        self.start[i] = row.start;
        self.dur[i] = row.dur;
        self.name[i] = row.name;
        self.place[i] = row.place;
        self.corr[i] = row.corr;
        self.node[i] = row.node;
        self.kind[i] = row.kind;
    }
}

/// Rows that move keep what the side table has of them.
fn follow<T: Copy>(side: &mut BTreeMap<u32, T>, moved: impl Fn(usize) -> usize) {
    *side = side
        .iter()
        .map(|(&row, &value)| (moved(row as usize) as u32, value))
        .collect();
}

/// Inserts the rows `tail` of a column before as many of the first `head` as `before` says.
fn insert<T: Copy>(column: &mut [T], head: usize, tail: &[usize], before: &[usize]) {
    let held: Vec<T> = tail.iter().map(|&row| column[row]).collect();
    let mut end = head;
    for (at, (&before, value)) in before.iter().zip(held).enumerate().rev() {
        column.copy_within(before..end, before + at + 1);
        column[before + at] = value;
        end = before;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::op;
    use super::*;
    use crate::Op;

    proptest::proptest! {
        #[test]
        fn sorting_is_that_of_whole_operations(
            rows in proptest::collection::vec((-9i64..9, 0u64..4, 0u32..3, 0u32..3, proptest::bool::ANY), 0..60)
        ) {
            let mut ops: Vec<Op> = rows
                .iter()
                .map(|&(start, dur, stream, name, wide)| Op {
                    name: NameId(name),
                    dur: if wide { dur + (1 << 33) } else { dur },
                    ..op(start, 0, stream, u64::from(wide) << 40 | dur)
                })
                .collect();
            let stored: Ops = ops.iter().copied().collect();
            ops.sort_by_key(|op| (op.start, op.dur, op.stream, op.name, op.node, op.corr, op.kind, op.bytes));
            proptest::prop_assert!(stored.iter().eq(ops));
        }
    }

    proptest::proptest! {
        /// As in an export: rows in order, then others. The wide ones are in side tables and must move along.
        #[test]
        fn a_short_rest_finds_its_places(
            sorted in proptest::collection::vec((-9i64..9, 0u64..4, 0u32..3, proptest::bool::ANY), 20..60),
            rest in proptest::collection::vec((-12i64..12, 0u64..4, 0u32..3, proptest::bool::ANY), 1..6),
        ) {
            let row = |&(start, dur, stream, wide): &(i64, u64, u32, bool)| Op {
                dur: if wide { dur + (1 << 33) } else { dur },
                ..op(start, 0, stream, u64::from(wide) << 40 | dur)
            };
            let whole = |op: &Op| (op.start, op.dur, op.stream, op.name, op.node, op.corr, op.kind, op.bytes);
            let mut all: Vec<Op> = sorted.iter().map(row).collect();
            all.sort_by_key(whole);
            all.extend(rest.iter().map(row));
            let mut stored = Ops::default();
            all.iter().for_each(|&op| stored.push(op));
            let moved = stored.sort();
            let order = all.is_sorted_by_key(whole);
            all.sort_by_key(whole);
            proptest::prop_assert!(stored.iter().eq(all));
            proptest::prop_assert_eq!(moved, !order);
        }
    }

    #[test]
    fn sorting_is_independent_of_the_order_of_rows() {
        let ops: Vec<Op> = (0..50u32)
            .map(|i| {
                op(
                    i64::from(i / 5),
                    u64::from(i % 3),
                    i % 4,
                    u64::from(i % 2) << 32,
                )
            })
            .collect();
        let forth: Ops = ops.iter().copied().collect();
        let back: Ops = ops.iter().rev().copied().collect();
        assert_eq!(forth, back);
    }
}
