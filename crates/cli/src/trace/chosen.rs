//! The chosen steps of every lane with their buckets: measured, estimated, or not to be told.

use std::path::{Path, PathBuf};

use linktax_records::Note;
use linktax_trace::{
    Buckets, Collectives, CommTime, GraphProfile, IdleSplit, LaneSplit, LaneSteps, ReadOptions,
    Step, StepSplit, TraceError, pair_collectives, split,
};

use super::args::{ClassArgs, StepArgs};
use super::session::{Capture, NotClean, Session};

/// What a step's buckets are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From its own kernels.
    Measured,
    /// Opaque time handed out by the shares of another capture.
    Estimated,
    /// Opaque graphs: only busy and idle are known.
    Opaque,
    /// Graphs without any row: not even idle is known.
    Invisible,
}

/// One chosen step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) step: Step,
    pub(crate) buckets: Buckets,
    /// Not known where the buckets are estimated or opaque.
    pub(crate) comm: Option<CommTime>,
    pub(crate) idle: Option<IdleSplit>,
    pub(crate) ops: u64,
    pub(crate) launches: Option<u64>,
    /// Sum of durations over busy time.
    pub(crate) overlap_factor: Option<f64>,
    pub(crate) origin: Origin,
}

impl Row {
    fn of(split: &StepSplit, origin: Origin) -> Row {
        let known = origin == Origin::Measured;
        Row {
            step: split.step.clone(),
            buckets: split.buckets,
            comm: known.then_some(split.comm),
            idle: (origin != Origin::Invisible).then_some(split.idle),
            ops: split.ops,
            launches: split.launches,
            overlap_factor: split.overlap_factor(),
            origin,
        }
    }

    /// Wait and service of the exposed communication; zero where there is none, `None` where it is not known.
    pub(crate) fn wait_service(&self) -> Option<(u64, u64)> {
        match (self.buckets.comm_wait_ns, self.buckets.comm_service_ns) {
            (Some(wait), Some(service)) => Some((wait, service)),
            _ => (self.comm?.total_ns == 0).then_some((0, 0)),
        }
    }
}

/// The chosen steps of one lane.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LaneRows {
    /// Position of the lane in the trace.
    pub(crate) lane: usize,
    pub(crate) rows: Vec<Row>,
    /// Why it cannot be split, if so.
    pub(crate) refusal: Option<String>,
}

/// All chosen steps.
pub(crate) struct Chosen {
    pub(crate) lanes: Vec<LaneRows>,
    pub(crate) collectives: Option<Collectives>,
    /// What the reader should know beside the notes of the capture.
    pub(crate) notes: Vec<Note>,
}

impl Chosen {
    /// The paired collectives, or why there can be none.
    pub(crate) fn pairs(&self) -> Result<&Collectives, NotClean> {
        if let Some(why) = self.refusal() {
            return Err(NotClean(why.to_owned()));
        }
        self.collectives.as_ref().ok_or_else(|| {
            let why = self.notes.iter().find(|n| n.code == "not_alignable");
            let why = why.map_or("the ranks cannot be paired", |note| &note.message);
            NotClean(why.to_owned())
        })
    }

    /// Splits the chosen steps. `profile` is a node-level capture that gives the shares inside opaque graphs.
    pub(crate) fn of(
        session: &Session,
        profile: Option<(&Path, &ClassArgs)>,
    ) -> anyhow::Result<Chosen> {
        let capture = &session.capture;
        let mut notes = Vec::new();
        let collectives = paired(session, &mut notes)?;
        let profiles = match profile {
            Some((path, classes)) if session.levels.iter().any(|l| l.is_unsplittable()) => {
                profiles(path, classes)?
            }
            _ => Vec::new(),
        };
        let mut lanes = Vec::new();
        for (steps, level) in session.steps.iter().zip(&session.levels) {
            let split = split(
                &capture.trace,
                &capture.classes,
                steps,
                collectives.as_ref(),
            )?;
            notes.extend(split.notes.iter().cloned());
            let refusal = level.refusal();
            let shares = profiles.get(steps.lane).or(profiles.first());
            let rows = match (&refusal, shares) {
                (None, _) => rows(&split, Origin::Measured),
                _ if level.opaque_ns == 0 => rows(&split, Origin::Invisible),
                (_, Some(shares)) => estimated(&split, shares, &mut notes),
                _ => rows(&split, Origin::Opaque),
            };
            let estimated = rows.iter().any(|row| row.origin == Origin::Estimated);
            lanes.push(LaneRows {
                lane: steps.lane,
                rows: rows
                    .into_iter()
                    .filter(|row| session.wants(&row.step))
                    .collect(),
                refusal: refusal.filter(|_| !estimated),
            });
        }
        Ok(Chosen {
            lanes,
            collectives,
            notes,
        })
    }

    /// All rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> + Clone {
        self.lanes.iter().flat_map(|lane| &lane.rows)
    }

    /// Whether some of the kernels are hidden in graphs.
    pub(crate) fn hides(&self) -> bool {
        self.rows().any(|row| row.origin != Origin::Measured)
    }

    /// The first reason not to split.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.lanes.iter().find_map(|lane| lane.refusal.as_deref())
    }
}

/// Ranks that cannot be paired leave wait and service unknown; the rest of a split stands.
pub(crate) fn paired(
    session: &Session,
    notes: &mut Vec<Note>,
) -> anyhow::Result<Option<Collectives>> {
    let capture = &session.capture;
    match pair_collectives(&capture.trace, &capture.classes, &session.steps) {
        Ok(collectives) => {
            let told = |code: &str| {
                // The capture's note says the same without what it means for the wait.
                code == "other_ranks_not_traced"
                    || capture.notes.iter().all(|note| note.code != code)
            };
            let fresh = collectives.notes.iter().filter(|note| told(&note.code));
            notes.extend(fresh.cloned());
            Ok(Some(collectives))
        }
        Err(error @ TraceError::NotAlignable { .. }) => {
            let what = format!("{error}; wait and service are not known");
            notes.push(Note::new("not_alignable", what));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn rows(split: &LaneSplit, origin: Origin) -> Vec<Row> {
    let each = split.steps.iter();
    each.map(|step| match step.buckets.graph_ns {
        // A step of eager kernels beside opaque ones is as good as any.
        0 if origin == Origin::Opaque => Row::of(step, Origin::Measured),
        _ => Row::of(step, origin),
    })
    .collect()
}

fn estimated(split: &LaneSplit, profile: &GraphProfile, notes: &mut Vec<Note>) -> Vec<Row> {
    let estimate = profile.apply(split);
    notes.extend(estimate.notes);
    if let Some(effect) = estimate.probe_effect {
        notes.push(Note::new(
            "probe_effect",
            format!(
                "a graph replay takes {effect:.3} times as long in the node-level capture as here"
            ),
        ));
    }
    let mut rows = rows(split, Origin::Opaque);
    for step in estimate.steps {
        let same = rows.iter_mut().find(|row| row.step.index == step.index);
        if let Some(row) = same {
            row.buckets = step.buckets;
            row.origin = Origin::Estimated;
            row.idle = None;
        }
    }
    rows
}

/// What runs inside the graphs of each lane of a node-level capture.
fn profiles(path: &Path, classes: &ClassArgs) -> anyhow::Result<Vec<GraphProfile>> {
    let files: Vec<PathBuf> = vec![path.to_owned()];
    let capture = Capture::of(&files, &ReadOptions::default(), classes)?;
    let session = Session::of(capture, &StepArgs::default(), None)?;
    let of = |steps: &LaneSteps| {
        let capture = &session.capture;
        Ok(GraphProfile::of(&capture.trace, &capture.classes, steps)?)
    };
    session.steps.iter().map(of).collect()
}
