//! Exports read, classed and cut into steps: what every command begins with.

use std::fmt;
use std::path::PathBuf;

use linktax_records::Note;
use linktax_trace::{
    Classes, ExportInfo, GraphLevel, Group, LaneSteps, ReadOptions, Rules, Step, StepKind,
    StepMethod, StepOptions, Trace, coverage_notes, find_steps, graph_level, read_with_info,
};

use super::args::{ClassArgs, InputArgs, MethodArg, StepArgs};
use super::progress::Working;
use super::split::strict_over_all;
use super::unsplittable;

/// Something about the input or the result that is no fault of the call: exit code 1.
#[derive(Debug)]
pub(crate) struct NotClean(pub(crate) String);

impl fmt::Display for NotClean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotClean {}

/// Exports, read and classed.
pub(crate) struct Capture {
    pub(crate) trace: Trace,
    pub(crate) exports: Vec<ExportInfo>,
    pub(crate) rules: Rules,
    pub(crate) classes: Classes,
    /// Linear attention is counted as attention.
    pub(crate) folded: bool,
    /// What the reader should know.
    pub(crate) notes: Vec<Note>,
}

impl Capture {
    pub(crate) fn read(input: &InputArgs, working: &Working) -> anyhow::Result<Capture> {
        let options = ReadOptions {
            window: input.window.span(),
            expect_gpus: input.expect_gpus,
            progress: Some(working.callback()),
        };
        Capture::of(&input.files, &options, &input.classes)
    }

    pub(crate) fn of(
        files: &[PathBuf],
        options: &ReadOptions,
        classes: &ClassArgs,
    ) -> anyhow::Result<Capture> {
        // A rule file that is wrong is told before minutes of reading.
        let rules = match &classes.rules {
            Some(path) => Rules::with_user_file(path)?,
            None => Rules::embedded(),
        };
        let (mut trace, exports) = read_with_info(files, options)?;
        let found = Classes::of(&trace.names, &rules);
        let folded = classes.fold_ssm;
        let classes = match folded {
            true => found.fold_ssm(),
            false => found,
        };
        let mut notes: Vec<Note> = std::mem::take(&mut trace.notes)
            .into_iter()
            .filter(|note| !is_repair(&note.code))
            .collect();
        notes.extend(coverage_notes(&trace, &classes));
        notes.extend(shared_gpu(&trace));
        Ok(Capture {
            trace,
            exports,
            rules,
            classes,
            folded,
            notes,
        })
    }

    /// Lanes on which anything but copies ran: what the figures come from.
    pub(crate) fn working_lanes(&self) -> Vec<usize> {
        let works = |group| !matches!(group, Group::Copy);
        let lanes = self.trace.lanes.iter().enumerate();
        lanes
            .filter(|(_, lane)| {
                lane.ops
                    .iter()
                    .any(|op| works(self.classes.op(&op).group()))
            })
            .map(|(at, _)| at)
            .collect()
    }
}

/// Rows that only had to be put in order change no number.
fn is_repair(code: &str) -> bool {
    matches!(code, "unordered_rows" | "clipped_rows" | "zero_duration")
}

/// Physical GPUs of the lanes, by file and index; `None` where one of them is not known.
pub(crate) fn physical(trace: &Trace) -> Option<Vec<(u32, u32)>> {
    let each = trace.lanes.iter();
    let known: Option<Vec<_>> = each.map(|l| Some((l.id.file, l.gpu.index?))).collect();
    known.map(|mut gpus| {
        gpus.sort_unstable();
        gpus.dedup();
        gpus
    })
}

fn shared_gpu(trace: &Trace) -> Option<Note> {
    let gpus = physical(trace)?.len();
    (gpus < trace.lanes.len()).then(|| {
        Note::new(
            "shared_gpu",
            format!(
                "{} processes share {gpus} GPU(s) and take turns on it: their times hold each other's work",
                trace.lanes.len()
            ),
        )
    })
}

/// A capture and its steps.
pub(crate) struct Session {
    pub(crate) capture: Capture,
    /// All kinds of steps, one entry a lane with operations.
    pub(crate) steps: Vec<LaneSteps>,
    /// How much of each lane of `steps` is inside opaque graphs.
    pub(crate) levels: Vec<GraphLevel>,
    /// The kinds asked for; all if empty.
    pub(crate) kinds: Vec<StepKind>,
}

impl Session {
    /// Opens a capture for a command that draws or writes single steps: all of them are found, and refused where
    /// graphs left no rows or, with `--strict`, where too much time has no class.
    pub(crate) fn open_whole(
        input: &InputArgs,
        method: Option<MethodArg>,
        working: &Working,
    ) -> anyhow::Result<Session> {
        let steps = StepArgs {
            method,
            ..StepArgs::default()
        };
        let session = Session::open(input, &steps, working)?;
        unsplittable::refuse_invisible(&session)?;
        strict_over_all(input.classes.strict, &session)?;
        Ok(session)
    }

    pub(crate) fn open(
        input: &InputArgs,
        steps: &StepArgs,
        working: &Working,
    ) -> anyhow::Result<Session> {
        let capture = Capture::read(input, working)?;
        working.now("finding steps");
        Session::of(capture, steps, input.window.span())
    }

    pub(crate) fn of(
        mut capture: Capture,
        args: &StepArgs,
        asked: Option<(i64, i64)>,
    ) -> anyhow::Result<Session> {
        let kinds = args.kinds();
        let options = StepOptions {
            steady: args.steady,
            drafts: kinds.contains(&StepKind::Draft),
            method: args.method.map(StepMethod::from),
            ..StepOptions::default()
        };
        let (trace, classes) = (&capture.trace, &capture.classes);
        let mut steps = find_steps(trace, classes, &options)?;
        let mut levels = Vec::new();
        for lane in &mut steps {
            levels.push(graph_level(trace, classes, lane.lane)?);
            if let Some(asked) = asked {
                drop_cut(trace, lane, asked);
            }
        }
        capture.notes.extend(lane_notes(&steps));
        let session = Session {
            capture,
            steps,
            levels,
            kinds,
        };
        session.check_choice()?;
        Ok(session)
    }

    /// Whether a step was asked for.
    pub(crate) fn wants(&self, step: &Step) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&step.kind)
    }

    /// Steps by kind over all lanes, in the order of reports; kinds without steps left out.
    pub(crate) fn by_kind(&self) -> Vec<(StepKind, usize)> {
        let all = || self.steps.iter().flat_map(|lane| &lane.steps);
        let count = |kind| all().filter(|step| step.kind == kind).count();
        let kinds = StepKind::ALL.map(|kind| (kind, count(kind)));
        kinds.into_iter().filter(|k| k.1 > 0).collect()
    }

    fn check_choice(&self) -> anyhow::Result<()> {
        let all = || self.steps.iter().flat_map(|lane| &lane.steps);
        if all().any(|step| self.wants(step)) {
            return Ok(());
        }
        let there: Vec<String> = self
            .by_kind()
            .iter()
            .map(|(kind, n)| format!("{n} {}", kind.as_str()))
            .collect();
        let there = match there.is_empty() {
            true => "none".to_owned(),
            false => there.join(", "),
        };
        Err(NotClean(format!(
            "none of the steps is of the kind and place asked for; there are: {there} (--steps, --steady, --from, --to)"
        ))
        .into())
    }
}

/// The notes of all lanes; what several have in common is told once, with their numbers.
fn lane_notes(steps: &[LaneSteps]) -> Vec<Note> {
    let mut told: Vec<(&Note, Vec<String>)> = Vec::new();
    for lane in steps {
        for note in &lane.notes {
            match told.iter_mut().find(|(other, _)| *other == note) {
                Some((_, lanes)) => lanes.push(lane.lane.to_string()),
                None => told.push((note, vec![lane.lane.to_string()])),
            }
        }
    }
    let alone = steps.len() == 1;
    let named = told.into_iter().map(|(note, lanes)| match alone {
        true => note.clone(),
        false => Note::new(
            &note.code,
            format!("GPU {}: {}", lanes.join(", "), note.message),
        ),
    });
    named.collect()
}

/// Leaves out the first and last step where the window cuts them: they are shorter than they were. Where nothing but
/// one long step was found, its part inside the window is what was asked for.
fn drop_cut(trace: &Trace, lane: &mut LaneSteps, asked: (i64, i64)) {
    let Some(window) = trace.window else { return };
    if lane.method == StepMethod::Whole {
        return;
    }
    let ops = &trace.lanes[lane.lane].ops;
    let last = (0..ops.len()).map(|i| ops.end(i)).max();
    let (cut_start, cut_end) = (window.start == asked.0, window.end == asked.1);
    let before = lane.steps.len();
    lane.steps
        .retain(|step| !(cut_start && step.index == 0 || cut_end && Some(step.end) == last));
    let dropped = before - lane.steps.len();
    lane.notes.retain(|note| note.code != "partial_steps");
    if dropped > 0 {
        lane.notes.push(Note::new(
            "cut_steps",
            format!("{dropped} step(s) that the window cuts are left out"),
        ));
    }
}
