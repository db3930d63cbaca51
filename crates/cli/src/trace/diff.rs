//! `linktax trace diff`: two captures, step kind by step kind.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use linktax_records::Note;
use linktax_trace::{
    Collectives, Diff, DiffPart, DiffRow, DiffSide, Group, KindDiff, LaneSplit, MatchBy, Unmatched,
    diff, split,
};

use super::args::{ClassArgs, InputArgs, StepArgs, WindowArgs};
use super::chosen::paired;
use super::heading;
use super::progress::Working;
use super::session::{NotClean, Session};
use super::split::strict;
use super::stats::ms;
use super::totals::Totals;
use crate::exit::Exit;
use crate::output;
use crate::table::layout::Grid;

const EXAMPLES: &str = "\
Examples:
  linktax trace diff nvlink.sqlite pcie.sqlite --steps decode --steady 2
  linktax trace diff nvlink-0.sqlite,nvlink-1.sqlite pcie.sqlite
  linktax trace diff before.sqlite after.sqlite --match kind --json";

/// Arguments of `linktax trace diff`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DiffArgs {
    /// The first capture: an export, or the exports of its ranks joined by commas.
    #[arg(value_name = "A")]
    a: PathBuf,
    /// The second.
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Which steps are held against each other.
    #[arg(long = "match", value_enum, default_value = "batch")]
    by: MatchArg,
    #[command(flatten)]
    classes: ClassArgs,
    #[command(flatten)]
    steps: StepArgs,
    /// Print one object instead of tables.
    #[arg(long)]
    json: bool,
}

/// What makes two steps the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MatchArg {
    /// Kind, requests and tokens.
    Batch,
    /// Kind alone.
    Kind,
}

/// One capture, split.
struct Side {
    name: &'static str,
    label: String,
    session: Session,
    collectives: Option<Collectives>,
    splits: Vec<LaneSplit>,
    unknown: linktax_trace::UnknownReport,
    notes: Vec<Note>,
}

/// Runs the command.
pub(crate) fn run(args: &DiffArgs, working: Working) -> anyhow::Result<Exit> {
    let a = Side::open("A", &args.a, args, &working)?;
    let b = Side::open("B", &args.b, args, &working)?;
    working.now("comparing");
    let by = match args.by {
        MatchArg::Batch => MatchBy::Batch,
        MatchArg::Kind => MatchBy::Kind,
    };
    let found = diff(&a.view(), &b.view(), by)?;
    let mut notes: Vec<Note> = Vec::new();
    for side in [&a, &b] {
        let own = side.session.capture.notes.iter().chain(&side.notes);
        let unknown = heading::unknown_note(&side.unknown);
        let own = own.chain(&unknown);
        notes.extend(own.map(|n| Note::new(&n.code, format!("{}: {}", side.name, n.message))));
    }
    drop(working);
    if args.json {
        heading::tell(&notes);
        output::print(&serde_json::to_string_pretty(&found)?)?;
    } else {
        // First what the comparison itself is worth.
        notes.splice(0..0, found.notes.iter().cloned());
        output::print(&text(&[&a, &b], &found, &notes, output::width()))?;
    }
    for side in [&a, &b] {
        strict(args.classes.strict, &side.unknown)?;
    }
    Ok(match found.compared.is_empty() {
        true => Exit::NotClean,
        false => Exit::Clean,
    })
}

impl Side {
    fn open(
        name: &'static str,
        path: &Path,
        args: &DiffArgs,
        working: &Working,
    ) -> anyhow::Result<Side> {
        let input = InputArgs {
            files: files(path),
            window: WindowArgs::default(),
            classes: args.classes.clone(),
            expect_gpus: None,
        };
        let session = Session::open(&input, &args.steps, working)
            .with_context(|| format!("capture {name}"))?;
        if let Some(why) = session.levels.iter().find_map(|level| level.refusal()) {
            return Err(NotClean(format!("capture {name}: {}: {why}", path.display())).into());
        }
        let mut notes = Vec::new();
        let collectives = paired(&session, &mut notes)?;
        let capture = &session.capture;
        let (mut splits, mut totals) = (Vec::new(), Totals::default());
        for steps in &session.steps {
            let (trace, classes) = (&capture.trace, &capture.classes);
            let mut lane = split(trace, classes, steps, collectives.as_ref())?;
            lane.steps.retain(|split| session.wants(&split.step));
            notes.append(&mut lane.notes);
            let chosen: Vec<_> = lane.steps.iter().map(|split| &split.step).collect();
            totals.add(&trace.lanes[steps.lane], classes, &chosen);
            splits.push(lane);
        }
        Ok(Side {
            name,
            label: format!("{name} ({})", path.display()),
            unknown: heading::unknown(capture, &totals),
            session,
            collectives,
            splits,
            notes,
        })
    }

    fn view(&self) -> DiffSide<'_> {
        let capture = &self.session.capture;
        DiffSide {
            label: &self.label,
            trace: &capture.trace,
            classes: &capture.classes,
            rules: capture.rules.hash(),
            steps: &self.session.steps,
            splits: &self.splits,
            collectives: self.collectives.as_ref(),
        }
    }
}

/// The exports of one capture. A comma in the name of a file that is there is part of the name.
fn files(path: &Path) -> Vec<PathBuf> {
    match (path.exists(), path.to_str()) {
        (false, Some(text)) => text.split(',').map(PathBuf::from).collect(),
        _ => vec![path.to_owned()],
    }
}

fn text(sides: &[&Side; 2], found: &Diff, notes: &[Note], width: Option<usize>) -> String {
    let tool = format!("linktax {} trace diff", env!("CARGO_PKG_VERSION"));
    let mut head = format!("{tool}\n");
    for side in sides {
        let capture = &side.session.capture;
        let whole = heading::of_capture(capture, "diff");
        head.push_str(&format!(
            "{}{}{}{}",
            side.name,
            whole.strip_prefix(&tool).unwrap_or(&whole),
            heading::of_steps(&side.session),
            heading::of_unknown(capture, &side.unknown, false)
        ));
    }
    for difference in &found.differences {
        head.push_str(&format!(
            "differs: {}: {} in A, {} in B\n",
            difference.what, difference.a, difference.b
        ));
    }
    head.push_str(&heading::warnings(notes));
    let mut out = heading::fit(&head, width);
    for kind in &found.compared {
        let title = format!(
            "\n{}: {} in A, {} in B; ms a step and GPU\n",
            kind.words(),
            behind(&kind.a),
            behind(&kind.b)
        );
        out.push_str(&heading::fit(&title, width));
        out.push_str(&format!("{}\n", table(kind).render(width)));
    }
    if !found.compared.is_empty() {
        out.push_str(&heading::fit(LEGEND, width));
    }
    out.push_str(&heading::fit(&unmatched(&found.unmatched), width));
    out
}

const LEGEND: &str = "
Parts are disjoint and sum to the step; comm is the exposed communication, service and wait are its parts, and what ran \
beside compute (overlapped) is in no sum. The interval is that of the change of the mean, 95 %, by the variation from \
step to step inside these two captures: from run to run it may be larger.
";

fn behind(count: &linktax_trace::Count) -> String {
    let steps = heading::counted(count.steps, "step", "steps");
    match count.gpus {
        1 => steps,
        gpus => format!("{steps} on each of {gpus} GPUs"),
    }
}

fn table(kind: &KindDiff) -> Grid {
    let rows = kind.rows.iter().map(|row| {
        let mut cells = vec![title(row.part)];
        cells.extend(figures(row));
        cells
    });
    Grid {
        headers: vec![
            "part",
            "A mean",
            "B mean",
            "change",
            "%",
            "interval",
            "reads",
            "A median",
            "B median",
            "median change",
            "median %",
        ],
        rows: rows.collect(),
    }
}

fn title(part: DiffPart) -> String {
    match part {
        DiffPart::CommService => "- service",
        DiffPart::CommWait => "- wait",
        DiffPart::CommOverlapped => "overlapped",
        DiffPart::Group(Group::Comm) => "comm",
        part => part.as_str(),
    }
    .to_owned()
}

fn figures(row: &DiffRow) -> [String; 10] {
    let na = || "n/a".to_owned();
    let mean = |level: Option<linktax_trace::Level>| level.map_or_else(na, |l| ms(l.mean_ns, 3));
    let median =
        |level: Option<linktax_trace::Level>| level.map_or_else(na, |l| ms(l.median_ns, 3));
    let signed = |ns: f64| unsigned_zero(format!("{:+.3}", ns / 1e6));
    let percent = |p: Option<f64>| p.map_or_else(na, |p| unsigned_zero(format!("{p:+.1}")));
    let change = row.change;
    let reads = change.and_then(|c| c.is_shown().map(|shown| (shown, c.mean_ns)));
    [
        mean(row.a),
        mean(row.b),
        change.map_or_else(na, |c| signed(c.mean_ns)),
        percent(change.and_then(|c| c.mean_percent)),
        change
            .and_then(|c| c.interval_ns)
            .map_or_else(na, |(low, high)| {
                format!("{} to {}", signed(low), signed(high))
            }),
        match reads {
            None => na(),
            Some((false, _)) => "no difference shown".to_owned(),
            Some((true, ns)) => if ns > 0.0 { "more" } else { "less" }.to_owned(),
        },
        median(row.a),
        median(row.b),
        change.map_or_else(na, |c| signed(c.median_ns)),
        percent(change.and_then(|c| c.median_percent)),
    ]
}

/// What rounds to zero has no direction.
fn unsigned_zero(text: String) -> String {
    match text.contains(|c: char| ('1'..='9').contains(&c)) {
        true => text,
        false => text.trim_start_matches(['+', '-']).to_owned(),
    }
}

/// More than these of a side are counted and not named: prefill chunks come in many sizes.
const NAMED: usize = 8;

fn unmatched(all: &[Unmatched]) -> String {
    let mut out = String::new();
    for (side, name) in [('a', "A"), ('b', "B")] {
        let own: Vec<&Unmatched> = all.iter().filter(|u| u.side == side).collect();
        if own.is_empty() {
            continue;
        }
        let each = own.iter().take(NAMED).map(|u| {
            format!(
                "{} ({})",
                u.words(),
                heading::counted(u.count.steps, "step", "steps")
            )
        });
        let mut words = each.collect::<Vec<_>>().join("; ");
        if let Some(more) = own.len().checked_sub(NAMED).filter(|&n| n > 0) {
            words.push_str(&format!("; and {more} more"));
        }
        out.push_str(&format!("only in {name}, not compared: {words}\n"));
    }
    match out.is_empty() {
        true => out,
        false => format!("\n{out}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rounds_to_zero_has_no_sign() {
        let each = ["-0.000", "+0.0", "-0.001", "+10.0"].map(|t| unsigned_zero(t.to_owned()));
        assert_eq!(each, ["0.000", "0.0", "-0.001", "+10.0"]);
    }

    #[test]
    fn exports_of_the_ranks_are_joined_by_commas() {
        let dir = tempfile::tempdir().unwrap();
        let odd = dir.path().join("a,b.sqlite");
        assert_eq!(files(&odd).len(), 2);
        std::fs::write(&odd, "").unwrap();
        assert_eq!(files(&odd), [odd]);
        assert_eq!(files(Path::new("x")), [Path::new("x")]);
    }
}
