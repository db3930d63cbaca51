//! `linktax trace split`: where the time of a step goes, a step kind and GPU.

mod json;
mod table;

use std::path::PathBuf;

use clap::Args;
use linktax_records::Note;
use linktax_trace::{StepKind, UnknownReport};

use super::args::{InputArgs, StepArgs};
use super::chosen::{Chosen, LaneRows, Row};
use super::heading;
use super::parquet::ParquetArgs;
use super::progress::Working;
use super::session::{NotClean, Session};
use super::totals::Totals;
use crate::exit::Exit;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  linktax trace split decode.sqlite
  linktax trace split decode.sqlite --steps decode --steady 2 --json
  linktax trace split node0.sqlite.zst node1.sqlite.zst --expect-gpus 2
  linktax trace split graph-level.sqlite --profile-from node-level.sqlite";

/// Arguments of `linktax trace split`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SplitArgs {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    steps: StepArgs,
    /// Estimate what is inside opaque graphs by the shares of this node-level capture.
    #[arg(long, value_name = "NODE.sqlite")]
    profile_from: Option<PathBuf>,
    /// Kernels in the table of those with most time.
    #[arg(long, value_name = "N", default_value_t = 12)]
    top: usize,
    #[command(flatten)]
    parquet: ParquetArgs,
    /// Print one object a step kind and GPU instead of tables.
    #[arg(long)]
    json: bool,
}

/// A split and what its report needs.
struct Report {
    session: Session,
    chosen: Chosen,
    /// Over all chosen steps of all GPUs.
    totals: Totals,
    unknown: UnknownReport,
    notes: Vec<Note>,
}

/// Runs the command.
pub(crate) fn run(args: &SplitArgs, working: Working) -> anyhow::Result<Exit> {
    args.parquet.prepare()?;
    let report = Report::of(args, &working)?;
    args.parquet.write(&report.session, &report.chosen)?;
    drop(working);
    if args.json {
        output::print(&serde_json::to_string_pretty(&json::of(&report, args.top))?)?;
    } else {
        output::print(&table::of(&report, args.top, output::width()))?;
    }
    if let Some(why) = report.chosen.refusal() {
        // People have read it on top of the tables.
        if args.json {
            output::note(&format!("error: {why}"));
        }
        return Ok(Exit::NotClean);
    }
    strict(args.input.classes.strict, &report.unknown)?;
    Ok(Exit::Clean)
}

/// [`strict`] over all steps, for commands that print no shares.
pub(crate) fn strict_over_all(wanted: bool, session: &Session) -> anyhow::Result<()> {
    if !wanted {
        return Ok(());
    }
    let capture = &session.capture;
    let mut totals = Totals::default();
    for lane in &session.steps {
        let steps: Vec<_> = lane.steps.iter().collect();
        totals.add(&capture.trace.lanes[lane.lane], &capture.classes, &steps);
    }
    strict(true, &heading::unknown(capture, &totals))
}

/// With `--strict` too much unknown time is an error.
pub(crate) fn strict(strict: bool, unknown: &UnknownReport) -> anyhow::Result<()> {
    match heading::unknown_note(unknown).filter(|_| strict) {
        Some(note) => Err(NotClean(format!("--strict: {}", note.message)).into()),
        None => Ok(()),
    }
}

impl Report {
    fn of(args: &SplitArgs, working: &Working) -> anyhow::Result<Report> {
        let session = Session::open(&args.input, &args.steps, working)?;
        working.now("splitting");
        let profile = args.profile_from.as_deref();
        let chosen = Chosen::of(&session, profile.map(|path| (path, &args.input.classes)))?;
        let mut totals = Totals::default();
        for lane in &chosen.lanes {
            add(
                &mut totals,
                &session,
                lane.lane,
                &lane.rows.iter().collect::<Vec<_>>(),
            );
        }
        let unknown = heading::unknown(&session.capture, &totals);
        let mut notes = told(&session.capture.notes, &chosen);
        notes.extend(heading::unknown_note(&unknown));
        Ok(Report {
            session,
            chosen,
            totals,
            unknown,
            notes,
        })
    }
}

/// The notes of a capture and of its split; of two that say the same the fuller one.
pub(crate) fn told(capture: &[Note], chosen: &Chosen) -> Vec<Note> {
    let fuller = |code: &str| chosen.notes.iter().any(|note| note.code == code);
    let skip = |code: &str| match code {
        "partial_ranks" => fuller("other_ranks_not_traced"),
        // The refusal says more.
        "invisible_graphs" => chosen.refusal().is_some(),
        _ => false,
    };
    let own = capture.iter().filter(|note| !skip(&note.code));
    own.chain(&chosen.notes).cloned().collect()
}

/// The rows of a lane by the kind of their step, in the order of reports.
pub(crate) fn by_kind(lane: &LaneRows) -> Vec<(StepKind, Vec<&Row>)> {
    let of = |kind| lane.rows.iter().filter(move |row| row.step.kind == kind);
    let kinds = StepKind::ALL.map(|kind| (kind, of(kind).collect::<Vec<_>>()));
    kinds.into_iter().filter(|k| !k.1.is_empty()).collect()
}

fn add(totals: &mut Totals, session: &Session, lane: usize, rows: &[&Row]) {
    let capture = &session.capture;
    let steps: Vec<_> = rows.iter().map(|row| &row.step).collect();
    totals.add(&capture.trace.lanes[lane], &capture.classes, &steps);
}
