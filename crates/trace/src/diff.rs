//! Two captures side by side: what a step of the same kind and batch costs in each, by group.
//!
//! A decode step of 16 tokens is compared with a decode step of 16 tokens and with nothing else; what has no
//! counterpart is listed and not averaged in. One sample is one step on one GPU. The interval of a difference covers the
//! variation from step to step inside the two captures, not from run to run, and says so.

mod facts;
mod stats;

use std::collections::BTreeMap;

use linktax_records::Note;
use serde::{Serialize, Serializer};

use crate::classify::{Classes, Group};
use crate::collectives::Collectives;
use crate::split::{LaneSplit, StepSplit};
use crate::steps::{Batch, LaneSteps, Step, StepKind};
use crate::tracks::step_words;
use crate::{Trace, TraceError};

pub use facts::{Difference, SideFacts};
pub use stats::{Change, Level};

use stats::Samples;

/// One capture of a comparison, analysed.
#[derive(Clone, Copy, Debug)]
pub struct DiffSide<'a> {
    /// What to call it.
    pub label: &'a str,
    /// The capture.
    pub trace: &'a Trace,
    /// Classes of its kernel names.
    pub classes: &'a Classes,
    /// [`Rules::hash`](crate::Rules::hash) of the rules that made them.
    pub rules: &'a str,
    /// Its steps.
    pub steps: &'a [LaneSteps],
    /// Their split.
    pub splits: &'a [LaneSplit],
    /// Its collectives; without them wait and service are not told apart.
    pub collectives: Option<&'a Collectives>,
}

/// Which steps are held against each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchBy {
    /// Steps of the same kind and the same batch: requests and tokens. Where one side has no batches, of the same kind.
    #[default]
    Batch,
    /// Steps of the same kind, whatever they worked on.
    Kind,
}

/// What a row of the comparison is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The whole step.
    Step,
    /// The disjoint bucket of a group; for communication the exposed time.
    Group(Group),
    /// Of the exposed communication: transfer.
    CommService,
    /// Of the exposed communication: waiting for other ranks.
    CommWait,
    /// Communication beside compute; not part of the step's sum.
    CommOverlapped,
    /// Nothing ran.
    Idle,
}

impl Part {
    /// All parts, in the order of reports.
    pub fn all() -> impl Iterator<Item = Part> {
        let groups = Group::ALL.into_iter().flat_map(|group| {
            let parts: &[Part] = match group {
                Group::Comm => &[Part::CommService, Part::CommWait, Part::CommOverlapped],
                _ => &[],
            };
            [Part::Group(group)]
                .into_iter()
                .chain(parts.iter().copied())
        });
        [Part::Step].into_iter().chain(groups).chain([Part::Idle])
    }

    /// The word used in files: that of the buckets in `trace steps --json`, without the unit.
    pub fn as_str(self) -> &'static str {
        match self {
            Part::Step => "step",
            Part::Group(Group::Comm) => "communication",
            Part::Group(Group::Copy) => "copies",
            Part::Group(group) => group.as_str(),
            Part::CommService => "comm_service",
            Part::CommWait => "comm_wait",
            Part::CommOverlapped => "comm_overlapped",
            Part::Idle => "idle",
        }
    }

    fn of(self, split: &StepSplit) -> Option<u64> {
        let buckets = &split.buckets;
        match self {
            Part::Step => Some(split.step.dur()),
            Part::Group(group) => Some(buckets.get(group)),
            Part::CommService => buckets.comm_service_ns,
            Part::CommWait => buckets.comm_wait_ns,
            Part::CommOverlapped => Some(split.comm.overlapped_ns),
            Part::Idle => Some(buckets.idle_ns),
        }
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One part of a step in both captures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiffRow {
    /// What it is.
    pub part: Part,
    /// In the first capture; `None` where it is not known.
    pub a: Option<Level>,
    /// In the second.
    pub b: Option<Level>,
    /// From the first to the second; `None` where either is not known.
    pub change: Option<Change>,
}

/// How many steps stand behind the figures of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Count {
    /// GPUs (lanes) that had such steps.
    pub gpus: usize,
    /// Steps of the GPU with the most of them.
    pub steps: usize,
    /// Steps over all GPUs.
    pub samples: usize,
}

/// Steps of one kind and batch in both captures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindDiff {
    /// The kind.
    pub kind: StepKind,
    /// The batch they share; `None` where they were matched by kind alone, or where no step of either side has one.
    pub batch: Option<Batch>,
    /// How they were matched.
    pub matched_by: MatchBy,
    /// Behind the first capture's figures.
    pub a: Count,
    /// Behind the second's.
    pub b: Count,
    /// One row a part, in the order of reports; parts that neither has are left out.
    pub rows: Vec<DiffRow>,
}

impl KindDiff {
    /// `decode, 16 requests, 16 tokens`.
    pub fn words(&self) -> String {
        step_words(self.kind, self.batch)
    }

    /// The row of a part.
    pub fn row(&self, part: Part) -> Option<&DiffRow> {
        self.rows.iter().find(|row| row.part == part)
    }
}

/// Steps without a counterpart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Unmatched {
    /// `a` or `b`.
    pub side: char,
    /// Their kind.
    pub kind: StepKind,
    /// Their batch.
    pub batch: Option<Batch>,
    /// How many.
    pub count: Count,
}

impl Unmatched {
    /// `decode, 16 requests, 16 tokens`.
    pub fn words(&self) -> String {
        step_words(self.kind, self.batch)
    }
}

/// Two captures compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diff {
    /// Hash of the kernel rules, the same for both.
    pub rules: String,
    /// The first capture.
    pub a: SideFacts,
    /// The second.
    pub b: SideFacts,
    /// What differs between them before any time is looked at.
    pub differences: Vec<Difference>,
    /// What could be compared, kind by kind.
    pub compared: Vec<KindDiff>,
    /// What could not.
    pub unmatched: Vec<Unmatched>,
    /// What the reader should know.
    pub notes: Vec<Note>,
}

/// Kind and batch in an order.
type Key = (StepKind, Option<(u32, Option<u64>, u32, Option<u64>)>);

/// Compares two captures.
///
/// # Errors
/// Classes that were made by different rules: their groups do not mean the same.
pub fn diff(a: &DiffSide<'_>, b: &DiffSide<'_>, by: MatchBy) -> Result<Diff, TraceError> {
    if a.rules != b.rules {
        return Err(TraceError::RulesDiffer {
            a: a.rules.to_owned(),
            b: b.rules.to_owned(),
        });
    }
    let (facts_a, facts_b) = (SideFacts::of(a), SideFacts::of(b));
    let mut out = Diff {
        rules: a.rules.to_owned(),
        differences: facts::differences(&facts_a, &facts_b),
        a: facts_a,
        b: facts_b,
        compared: Vec::new(),
        unmatched: Vec::new(),
        notes: Vec::new(),
    };
    let by_kind = kinds_without_batch(a, b, by);
    let key = |step: &Step| key(step, &by_kind);
    let (mut left, mut right) = (samples(a.splits, key), samples(b.splits, key));
    let keys: Vec<Key> = left.keys().chain(right.keys()).copied().collect();
    for key in keys {
        match (left.remove(&key), right.remove(&key)) {
            (Some(a), Some(b)) => out.compared.push(compare(key, &by_kind, &a, &b)),
            (Some(a), None) => out.unmatched.push(unmatched('a', key, &a)),
            (None, Some(b)) => out.unmatched.push(unmatched('b', key, &b)),
            // The key of both sides comes twice.
            (None, None) => {}
        }
    }
    out.compared.sort_by_key(|c| (c.kind, order(c.batch)));
    out.unmatched
        .sort_by_key(|u| (u.kind, order(u.batch), u.side));
    facts::notes(&mut out, by, &by_kind);
    Ok(out)
}

/// Kinds that are matched without a look at the batch.
fn kinds_without_batch(a: &DiffSide<'_>, b: &DiffSide<'_>, by: MatchBy) -> Vec<StepKind> {
    let blind = |side: &DiffSide<'_>, kind| {
        let steps = || side.splits.iter().flat_map(|lane| &lane.steps);
        let mut of_kind = steps().filter(|s| s.step.kind == kind).peekable();
        of_kind.peek().is_some() && of_kind.all(|s| s.step.batch.is_none())
    };
    let wanted = |kind: &StepKind| by == MatchBy::Kind || blind(a, *kind) || blind(b, *kind);
    StepKind::ALL.into_iter().filter(wanted).collect()
}

fn key(step: &Step, by_kind: &[StepKind]) -> Key {
    let batch = step.batch.filter(|_| !by_kind.contains(&step.kind));
    (step.kind, order(batch))
}

/// The sizes that make two batches the same: context lengths grow from step to step and do not count.
fn order(batch: Option<Batch>) -> Option<(u32, Option<u64>, u32, Option<u64>)> {
    let b = batch?;
    Some((
        b.context_requests,
        b.context_tokens,
        b.generation_requests,
        b.generation_tokens,
    ))
}

fn batch((_, sizes): Key) -> Option<Batch> {
    let (context_requests, context_tokens, generation_requests, generation_tokens) = sizes?;
    Some(Batch {
        context_requests,
        context_tokens,
        generation_requests,
        generation_tokens,
        generation_kv_tokens: None,
    })
}

/// The steps of each key, lane by lane.
fn samples(
    splits: &[LaneSplit],
    key: impl Fn(&Step) -> Key,
) -> BTreeMap<Key, Vec<Vec<&StepSplit>>> {
    let mut all: BTreeMap<Key, Vec<Vec<&StepSplit>>> = BTreeMap::new();
    for lane in splits {
        let mut own: BTreeMap<Key, Vec<&StepSplit>> = BTreeMap::new();
        for split in &lane.steps {
            own.entry(key(&split.step)).or_default().push(split);
        }
        for (key, steps) in own {
            all.entry(key).or_default().push(steps);
        }
    }
    all
}

fn count(lanes: &[Vec<&StepSplit>]) -> Count {
    Count {
        gpus: lanes.len(),
        steps: lanes.iter().map(Vec::len).max().unwrap_or(0),
        samples: lanes.iter().map(Vec::len).sum(),
    }
}

fn unmatched(side: char, key: Key, lanes: &[Vec<&StepSplit>]) -> Unmatched {
    Unmatched {
        side,
        kind: key.0,
        batch: batch(key),
        count: count(lanes),
    }
}

fn compare(
    key: Key,
    by_kind: &[StepKind],
    a: &[Vec<&StepSplit>],
    b: &[Vec<&StepSplit>],
) -> KindDiff {
    let (count_a, count_b) = (count(a), count(b));
    let row = |part: Part| {
        let of = |lanes: &[Vec<&StepSplit>], count: Count| {
            let values = lanes.iter().flatten().map(|split| part.of(split));
            Some(Samples::new(
                values.collect::<Option<Vec<u64>>>()?,
                count.steps,
            ))
        };
        let (a, b) = (of(a, count_a), of(b, count_b));
        let nothing = |side: &Option<Samples>| side.as_ref().is_none_or(Samples::is_zero);
        if part != Part::Step && nothing(&a) && nothing(&b) {
            return None;
        }
        Some(DiffRow {
            part,
            change: a.as_ref().zip(b.as_ref()).map(|(a, b)| Change::from(a, b)),
            a: a.map(|s| s.level()),
            b: b.map(|s| s.level()),
        })
    };
    KindDiff {
        kind: key.0,
        batch: batch(key),
        matched_by: match by_kind.contains(&key.0) {
            true => MatchBy::Kind,
            false => MatchBy::Batch,
        },
        a: count_a,
        b: count_b,
        rows: Part::all().filter_map(row).collect(),
    }
}

#[cfg(test)]
mod tests;
