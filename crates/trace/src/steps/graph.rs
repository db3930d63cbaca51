//! Steps from the launches of the target model's CUDA graph.

use std::collections::{BTreeMap, HashMap};

use linktax_records::Note;

use super::{Found, Start, StepKind, StepMethod, View, anchor, median};
use crate::{Lane, NameId, OpKind, Ops};

/// Everything one graph launch put on this lane: in node mode all kernels of a replay carry the launch's correlation id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Launched {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) dur: u64,
    /// Operations of the replay; 1 for an opaque graph.
    pub(crate) count: u32,
    /// Order-free hash of the names: streams inside a graph race, so their kernels come in another order each time.
    pub(crate) signature: u64,
    /// Position of its last operation in the lane.
    pub(crate) last: usize,
}

/// The launches that are forward passes of the target model.
pub(crate) struct Target {
    signature: u64,
    count: u32,
}

impl Target {
    /// The signature with the most GPU time.
    pub(crate) fn of(launched: &[Launched]) -> Option<Target> {
        let mut time: BTreeMap<(u64, u32), u64> = BTreeMap::new();
        for l in launched {
            *time.entry((l.signature, l.count)).or_default() += l.dur;
        }
        let ((signature, count), _) = time
            .into_iter()
            .max_by_key(|&(key, dur)| (dur, std::cmp::Reverse(key)))?;
        Some(Target { signature, count })
    }

    /// Whether the graph was captured node by node.
    pub(crate) fn has_nodes(&self) -> bool {
        self.count > 1
    }

    /// The same graph, or that of another batch size: other tiles, hence other names, but nearly as many kernels.
    pub(crate) fn matches(&self, launched: &Launched) -> bool {
        launched.signature == self.signature
            || self.count > 1
                && u64::from(launched.count) * 10 >= u64::from(self.count) * 8
                && u64::from(launched.count) * 8 <= u64::from(self.count) * 10
    }
}

/// A name's share of a signature.
pub(crate) fn name_hash(name: NameId) -> u64 {
    // A fixed mixer (splitmix64): the sum over names must tell multisets apart in every run alike.
    let mut x = (u64::from(name.0) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn op_hash(ops: &Ops, i: usize) -> u64 {
    match ops.kind(i) {
        OpKind::Kernel => name_hash(ops.name(i)),
        OpKind::Graph => name_hash(NameId(ops.bytes(i) as u32)) ^ 0x5555,
        OpKind::Memcpy(_) => 1,
        OpKind::Memset => 2,
    }
}

fn in_graph(ops: &Ops, i: usize) -> bool {
    ops.node(i) != 0 || ops.kind(i) == OpKind::Graph
}

/// All graph launches of the lane, by the start of their first operation.
pub(crate) fn launches(lane: &Lane) -> Vec<Launched> {
    let ops = &lane.ops;
    let mut all: Vec<Launched> = Vec::new();
    let mut by_corr: HashMap<u32, usize> = HashMap::new();
    let mut last = (0, usize::MAX);
    for i in 0..ops.len() {
        if !in_graph(ops, i) {
            continue;
        }
        let corr = ops.corr(i);
        let at = if corr != 0 && corr == last.0 {
            last.1
        } else if corr == 0 {
            // An opaque graph without an id is a launch of its own.
            all.len()
        } else {
            *by_corr.entry(corr).or_insert(all.len())
        };
        last = (corr, at);
        if at == all.len() {
            all.push(Launched {
                start: ops.start(i),
                end: ops.end(i),
                dur: 0,
                count: 0,
                signature: 0,
                last: i,
            });
        }
        let launched = &mut all[at];
        launched.end = launched.end.max(ops.end(i));
        launched.dur += ops.dur(i);
        launched.count += 1;
        launched.signature = launched.signature.wrapping_add(op_hash(ops, i));
        launched.last = i;
    }
    all
}

/// `forced`: the user asked for this method, so anchors have no say.
pub(crate) fn find(view: &View<'_>, forced: bool) -> Option<Found> {
    let launched = launches(view.lane);
    let target = Target::of(&launched)?;
    let passes: Vec<&Launched> = launched.iter().filter(|l| target.matches(l)).collect();
    if passes.len() < 2 {
        return None;
    }
    if !forced
        && let Some(anchors) = anchor::count(view)
        // More anchors than passes: some steps ran without a graph. Far fewer: the graphs are pieces of a step.
        && (anchors > passes.len() as u64 + passes.len() as u64 / 100
            || anchors * 2 < passes.len() as u64)
    {
        return None;
    }
    let same = passes.iter().filter(|l| l.signature == target.signature);
    let confidence = 0.5 + 0.4 * same.count() as f64 / passes.len() as f64;
    let mut starts: Vec<Start> = passes
        .iter()
        .map(|l| Start::new(l.start, StepKind::Decode, confidence))
        .collect();
    let (end, repeats) = tail(view, &passes, &target);
    starts.extend(
        repeats
            .iter()
            .map(|&at| Start::new(at, StepKind::Unknown, confidence * 0.7)),
    );
    let mut notes = vec![Note::new(
        "graph_steps",
        "steps start with a graph's first kernel: what the engine prepares before it counts to the step before",
    )];
    if !repeats.is_empty() {
        notes.push(Note::new(
            "eager_repeats",
            format!(
                "after the last replay its kernels run {} more times without a graph; each is taken as a step",
                repeats.len()
            ),
        ));
    }
    Some(Found {
        method: StepMethod::GraphLaunch,
        confidence,
        starts,
        end,
        notes,
    })
}

/// Where the last replay's step ends, and the starts of eager runs of the same kernels behind it.
///
/// Between replays an engine runs its sampler and the next preparation; as many operations are left to the last replay.
fn tail(view: &View<'_>, passes: &[&Launched], target: &Target) -> (i64, Vec<i64>) {
    let ops = &view.lane.ops;
    let Some(last) = passes.last() else {
        return (i64::MIN, Vec::new());
    };
    let end_of = |from: usize, to: usize| (from..to).map(|i| ops.end(i)).max();
    let rest = last.last + 1;
    let repeats = repeats(ops, rest, target);
    if repeats.is_empty() {
        let mut between: Vec<usize> = passes
            .windows(2)
            .map(|w| (w[0].last + 1..ops.len()).take_while(|&i| ops.start(i) < w[1].start))
            .map(Iterator::count)
            .collect();
        let between = median(&mut between).unwrap_or(0);
        let to = (rest + between).min(ops.len());
        return (last.end.max(end_of(rest, to).unwrap_or(last.end)), repeats);
    }
    let end = end_of(rest, ops.len()).unwrap_or(last.end);
    (end, repeats)
}

/// Starts of stretches of `count` eager operations with the target's names, one after the other to the end.
fn repeats(ops: &Ops, from: usize, target: &Target) -> Vec<i64> {
    let count = target.count as usize;
    if count < 8 {
        return Vec::new();
    }
    let mut starts = Vec::new();
    let mut at = from;
    while at + count <= ops.len() {
        let signature = (at..at + count).fold(0u64, |sum, i| sum.wrapping_add(op_hash(ops, i)));
        if signature == target.signature {
            starts.push(ops.start(at));
            at += count;
        } else {
            at += 1;
        }
    }
    starts
}
