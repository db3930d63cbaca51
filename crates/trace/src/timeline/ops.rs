//! Operations, column by column.

mod sort;

use std::collections::BTreeMap;

use super::{NameId, Op, OpKind};

/// The operations of one lane, struct of arrays, about 27 bytes a row; sorted by start once read.
///
/// Node ids carry the graph in their upper half, so (stream, graph) is kept as an index into the few such places.
/// Rare wide values (a duration over 4.29 s, bytes) live in side tables. Two are equal when they hold the same
/// operations in the same order.
#[derive(Clone, Debug, Default)]
pub struct Ops {
    start: Vec<i64>,
    dur: Vec<u32>,
    name: Vec<NameId>,
    place: Vec<u16>,
    places: Vec<Place>,
    place_index: BTreeMap<Place, u16>,
    corr: Vec<u32>,
    node: Vec<u32>,
    kind: Vec<OpKind>,
    long: BTreeMap<u32, u64>,
    far: BTreeMap<u32, Place>,
    bytes: BTreeMap<u32, u64>,
}

/// Stream and upper half of the node id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    stream: u32,
    graph: u32,
}

/// Index of a place beyond the 65,535 that have one: it is in the side table.
const FAR: u16 = u16::MAX;

impl PartialEq for Ops {
    fn eq(&self, other: &Ops) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for Ops {}

impl Ops {
    /// Number of operations.
    pub fn len(&self) -> usize {
        self.start.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.start.is_empty()
    }

    /// Appends one operation.
    pub fn push(&mut self, op: Op) {
        let at = self.start.len() as u32;
        self.start.push(op.start);
        self.dur.push(u32::try_from(op.dur).unwrap_or(u32::MAX));
        if op.dur >= u64::from(u32::MAX) {
            self.long.insert(at, op.dur);
        }
        self.name.push(op.name);
        let place = Place {
            stream: op.stream,
            graph: (op.node >> 32) as u32,
        };
        let index = self.index_of(place);
        if index == FAR {
            self.far.insert(at, place);
        }
        self.place.push(index);
        self.corr.push(op.corr);
        self.node.push(op.node as u32);
        self.kind.push(op.kind);
        if op.bytes > 0 && op.kind != OpKind::Kernel {
            self.bytes.insert(at, op.bytes);
        }
    }

    /// There are a handful of places, and the last one used is nearly always the right one.
    fn index_of(&mut self, place: Place) -> u16 {
        if let Some(&last) = self.place.last()
            && self.places.get(usize::from(last)) == Some(&place)
        {
            return last;
        }
        if let Some(&known) = self.place_index.get(&place) {
            return known;
        }
        match u16::try_from(self.places.len()) {
            Ok(new) if new != FAR => {
                self.places.push(place);
                self.place_index.insert(place, new);
                new
            }
            _ => FAR,
        }
    }

    fn place(&self, i: usize) -> Place {
        match self.place[i] {
            FAR => self.far.get(&(i as u32)).copied().unwrap_or_default(),
            near => self
                .places
                .get(usize::from(near))
                .copied()
                .unwrap_or_default(),
        }
    }

    /// Start of operation `i` in nanoseconds.
    pub fn start(&self, i: usize) -> i64 {
        self.start[i]
    }

    /// Duration of operation `i` in nanoseconds.
    pub fn dur(&self, i: usize) -> u64 {
        match self.dur[i] {
            u32::MAX => self
                .long
                .get(&(i as u32))
                .copied()
                .unwrap_or(u64::from(u32::MAX)),
            dur => u64::from(dur),
        }
    }

    /// End of operation `i` in nanoseconds.
    pub fn end(&self, i: usize) -> i64 {
        self.start(i).saturating_add_unsigned(self.dur(i))
    }

    /// Name of operation `i`.
    pub fn name(&self, i: usize) -> NameId {
        self.name[i]
    }

    /// What operation `i` is.
    pub fn kind(&self, i: usize) -> OpKind {
        self.kind[i]
    }

    /// Correlation id of operation `i`; 0 if unknown.
    pub fn corr(&self, i: usize) -> u32 {
        self.corr[i]
    }

    /// Graph node of operation `i`; 0 outside a graph.
    pub fn node(&self, i: usize) -> u64 {
        u64::from(self.place(i).graph) << 32 | u64::from(self.node[i])
    }

    /// Stream of operation `i`.
    pub fn stream(&self, i: usize) -> u32 {
        self.place(i).stream
    }

    /// Bytes that operation `i` moved, or the graph id of an opaque graph.
    pub fn bytes(&self, i: usize) -> u64 {
        match self.kind[i] {
            OpKind::Kernel => 0,
            _ => self.bytes.get(&(i as u32)).copied().unwrap_or(0),
        }
    }

    /// Operation `i` as a whole.
    pub fn get(&self, i: usize) -> Op {
        Op {
            start: self.start(i),
            dur: self.dur(i),
            name: self.name(i),
            stream: self.stream(i),
            corr: self.corr(i),
            node: self.node(i),
            bytes: self.bytes(i),
            kind: self.kind(i),
        }
    }

    /// All operations in stored order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Op> + '_ {
        (0..self.len()).map(|i| self.get(i))
    }

    /// Whether the operations are in the order of their start.
    pub fn is_sorted(&self) -> bool {
        self.start.is_sorted()
    }

    /// Gives every kernel a new name id: `new[old]`.
    pub(crate) fn rename(&mut self, new: &[NameId]) {
        for (name, kind) in self.name.iter_mut().zip(&self.kind) {
            if *kind == OpKind::Kernel
                && let Some(&to) = new.get(name.0 as usize)
            {
                *name = to;
            }
        }
    }
}

impl FromIterator<Op> for Ops {
    /// Collects and sorts.
    fn from_iter<I: IntoIterator<Item = Op>>(ops: I) -> Self {
        let mut all = Ops::default();
        ops.into_iter().for_each(|op| all.push(op));
        all.sort();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn op(start: i64, dur: u64, stream: u32, node: u64) -> Op {
        Op {
            start,
            dur,
            name: NameId(0),
            stream,
            corr: 7,
            node,
            bytes: node,
            kind: OpKind::Memset,
        }
    }

    #[test]
    fn wide_values_survive_storage_and_sorting() {
        let ops = [
            op(50, 5_000_000_000, 20, 0),
            op(-10, 3, 7, 5_278_514_806_784),
            op(20, u64::from(u32::MAX), 7, u64::from(u32::MAX)),
        ];
        let stored: Ops = ops.into_iter().collect();
        assert!(stored.is_sorted());
        assert_eq!(stored.iter().collect::<Vec<_>>(), [ops[1], ops[2], ops[0]]);
        assert_eq!(stored.end(2), 5_000_000_050);
    }

    #[test]
    fn more_places_than_the_index_holds() {
        let ops: Vec<Op> = (0..70_000).map(|i| op(i64::from(i), 1, i, 9)).collect();
        let stored: Ops = ops.iter().rev().copied().collect();
        assert!(stored.iter().eq(ops));
    }
}
