//! `linktax trace kernels`: kernels with their classes, or why a name has its class.

use std::collections::BTreeMap;

use clap::Args;
use linktax_trace::{NameId, OpKind, UnknownReport, collective_of};
use serde_json::{Value, json};

use super::args::{ClassArgs, InputArgs, WindowArgs};
use super::heading;
use super::progress::Working;
use super::session::Capture;
use super::split::strict;
use super::stats::{ms, percent, us};
use super::totals::{Total, Totals};
use crate::exit::Exit;
use crate::number::whole32;
use crate::output;
use crate::table::layout::Grid;

const EXAMPLES: &str = "\
Examples:
  linktax trace kernels decode.sqlite
  linktax trace kernels decode.sqlite --unknown > my-rules.toml
  linktax trace kernels --explain ncclDevKernel_AllReduce_Sum_bf16_RING_LL";

/// Columns of a kernel's name in a table; `--json` has it whole.
const NAME: usize = 60;
/// The fewest columns that tell names apart.
const SHORT: usize = 24;

/// Arguments of `linktax trace kernels`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct KernelsArgs {
    /// Nsight Systems export: .sqlite, .sqlite.zst, .sqlite.gz or .nsys-rep; several are the ranks of one run.
    #[arg(value_name = "FILE", required_unless_present = "explain")]
    files: Vec<std::path::PathBuf>,
    #[command(flatten)]
    window: WindowArgs,
    #[command(flatten)]
    classes: ClassArgs,
    /// How many GPUs there must be; fewer is an error.
    #[arg(long, value_name = "N", value_parser = whole32::<1, 65_536>)]
    expect_gpus: Option<u32>,
    /// Print rules to complete for the names without a class.
    #[arg(long)]
    unknown: bool,
    /// Say why a name has its class; with a file, the kernels whose name contains it.
    #[arg(long, value_name = "NAME", conflicts_with = "unknown")]
    explain: Option<String>,
    /// Print one object a kernel name instead of a table.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &KernelsArgs, working: Working) -> anyhow::Result<Exit> {
    if let (Some(name), true) = (&args.explain, args.files.is_empty()) {
        return explain_alone(args, name);
    }
    let input = InputArgs {
        files: args.files.clone(),
        window: args.window.clone(),
        classes: args.classes.clone(),
        expect_gpus: args.expect_gpus,
    };
    let capture = Capture::read(&input, &working)?;
    let kernels = Kernels::of(&capture);
    drop(working);
    if let Some(name) = &args.explain {
        return explain_in(args, &capture, &kernels, name);
    }
    let unknown = heading::unknown(&capture, &kernels.totals);
    match (args.unknown, args.json) {
        (true, true) => output::print(&serde_json::to_string_pretty(&unknown)?)?,
        (true, false) => output::print(&stub(&capture, &unknown))?,
        (false, true) => output::print(&serde_json::to_string_pretty(&kernels.json(&capture))?)?,
        (false, false) => output::print(&text(&capture, &kernels, &unknown))?,
    }
    strict(args.classes.strict, &unknown)?;
    Ok(Exit::Clean)
}

fn explain_alone(args: &KernelsArgs, name: &str) -> anyhow::Result<Exit> {
    let rules = match &args.classes.rules {
        Some(path) => linktax_trace::Rules::with_user_file(path)?,
        None => linktax_trace::Rules::embedded(),
    };
    let why = rules.explain(name);
    match args.json {
        true => output::print(&serde_json::to_string_pretty(&why)?)?,
        false => output::print(&format!("{why}{}", operation_line(name)))?,
    }
    Ok(Exit::Clean)
}

fn operation_line(name: &str) -> String {
    match collective_of(name) {
        Some(collective) => format!("operation   {collective}\n"),
        None => String::new(),
    }
}

fn explain_in(
    args: &KernelsArgs,
    capture: &Capture,
    kernels: &Kernels,
    name: &str,
) -> anyhow::Result<Exit> {
    let names = &capture.trace.names;
    let mut found: Vec<(NameId, Total)> = kernels.totals.top();
    found.retain(|&(id, _)| names.full(id).contains(name));
    if found.is_empty() {
        output::note(&format!("no kernel name in the capture contains {name:?}"));
        explain_alone(args, name)?;
        return Ok(Exit::NotClean);
    }
    if args.json {
        let each = found
            .iter()
            .map(|&(id, _)| capture.rules.explain(names.full(id)));
        let each: Vec<_> = each.collect();
        output::print(&serde_json::to_string_pretty(&each)?)?;
        return Ok(Exit::Clean);
    }
    let each = found.iter().map(|&(id, total)| {
        let full = names.full(id);
        format!(
            "{}{}here        {} times, {} ms\n",
            capture.rules.explain(full),
            operation_line(full),
            total.count,
            ms(total.ns as f64, 3)
        )
    });
    output::print(&each.collect::<Vec<_>>().join("\n"))?;
    Ok(Exit::Clean)
}

/// Every kernel of a capture.
struct Kernels {
    totals: Totals,
    /// Shortest and longest duration.
    range: BTreeMap<NameId, (u64, u64)>,
}

impl Kernels {
    fn of(capture: &Capture) -> Kernels {
        let mut out = Kernels {
            totals: Totals::default(),
            range: BTreeMap::new(),
        };
        for lane in &capture.trace.lanes {
            for op in lane.ops.iter() {
                let class = capture.classes.op(&op);
                let add = |total: &mut Total| {
                    total.count += 1;
                    total.ns += op.dur;
                };
                add(out.totals.by_class.entry(class).or_default());
                if op.kind == OpKind::Kernel {
                    add(out.totals.by_name.entry(op.name).or_default());
                    let range = out.range.entry(op.name).or_insert((u64::MAX, 0));
                    *range = (range.0.min(op.dur), range.1.max(op.dur));
                }
            }
        }
        out
    }

    fn json(&self, capture: &Capture) -> Value {
        let names = &capture.trace.names;
        let all = self.totals.kernel_ns();
        let each = self.totals.top().into_iter().map(|(id, total)| {
            let class = capture.classes.name(id);
            let (min, max) = self.range.get(&id).copied().unwrap_or_default();
            json!({
                "name": names.full(id),
                "short_name": names.short(id),
                "class": class,
                "group": class.group(),
                "operation": collective_of(names.full(id)).filter(|_| class.group() == linktax_trace::Group::Comm),
                "count": total.count,
                "total_ns": total.ns,
                "mean_ns": total.ns as f64 / total.count as f64,
                "min_ns": min,
                "max_ns": max,
                "share": (all > 0).then(|| total.ns as f64 / all as f64),
            })
        });
        Value::Array(each.collect())
    }
}

fn text(capture: &Capture, kernels: &Kernels, unknown: &UnknownReport) -> String {
    let width = output::width();
    let mut head = heading::of_capture(capture, "kernels");
    head.push_str(&heading::of_unknown(capture, unknown, false));
    let own = heading::unknown_note(unknown);
    head.push_str(&heading::warnings(capture.notes.iter().chain(&own)));
    let mut out = heading::fit(&head, width);
    let classes = class_table(&kernels.totals).render(width);
    out.push_str(&format!("\nClasses, all operations\n{classes}\n"));
    let names = kernel_table(capture, &kernels.totals, usize::MAX, width).render(width);
    out.push_str(&format!("\nKernels\n{names}\n"));
    out
}

fn class_table(totals: &Totals) -> Grid {
    let all: u64 = totals.by_class.values().map(|t| t.ns).sum();
    let mut classes: Vec<_> = totals.by_class.iter().collect();
    classes.sort_by_key(|(class, total)| (std::cmp::Reverse(total.ns), **class));
    let rows = classes.into_iter().map(|(class, total)| {
        vec![
            class.as_str().to_owned(),
            class.group().as_str().to_owned(),
            total.count.to_string(),
            ms(total.ns as f64, 3),
            percent(total.ns as f64, all as f64),
        ]
    });
    Grid {
        headers: vec!["class", "group", "count", "ms", "share"],
        rows: rows.collect(),
    }
}

/// The kernels with most time: their sums, whether they overlap or not. Names are cut so that the table fits `width`.
pub(crate) fn kernel_table(
    capture: &Capture,
    totals: &Totals,
    top: usize,
    width: Option<usize>,
) -> Grid {
    let headers = vec!["class", "count", "ms", "share", "mean us", "name"];
    let all = totals.kernel_ns() as f64;
    let top: Vec<(NameId, Total)> = totals.top().into_iter().take(top).collect();
    let numbers = top.iter().map(|&(id, total)| {
        vec![
            capture.classes.name(id).as_str().to_owned(),
            total.count.to_string(),
            ms(total.ns as f64, 3),
            percent(total.ns as f64, all),
            us(total.ns as f64 / total.count.max(1) as f64),
        ]
    });
    let mut rows: Vec<Vec<String>> = numbers.collect();
    let column = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0);
    let taken: usize = (0..headers.len() - 1)
        .map(|at| column(at).max(headers[at].len()) + 3)
        .sum();
    let room = width.map_or(NAME, |width| width.saturating_sub(taken + 4));
    let room = room.clamp(SHORT, NAME);
    let names: Vec<String> = top
        .iter()
        .map(|&(id, _)| shown_name(capture, id, room))
        .collect();
    // Numbers stand to the right, names to the left.
    let widest = names.iter().map(|name| name.chars().count()).max();
    let widest = widest.unwrap_or(0);
    for (row, name) in rows.iter_mut().zip(names) {
        row.push(format!("{name:widest$}"));
    }
    Grid { headers, rows }
}

/// The most telling part of a name that fits.
fn shown_name(capture: &Capture, id: NameId, room: usize) -> String {
    let names = &capture.trace.names;
    let full = names.full(id);
    match collective_of(full) {
        // The suffix of the symbol says nothing certain, so what it does comes first.
        Some(collective) => cut(&format!("{collective}: {}", names.short(id)), room),
        None if full.chars().count() > room => cut(without_prefix(full), room),
        None => full.to_owned(),
    }
}

/// A long name without what it shares with every other: `device_kernel` of CUTLASS is what its argument says it is.
fn without_prefix(name: &str) -> &str {
    let stem = name.strip_prefix("void ").unwrap_or(name);
    stem.strip_prefix("cutlass::device_kernel<").unwrap_or(stem)
}

fn cut(name: &str, width: usize) -> String {
    match name.char_indices().nth(width) {
        Some(_) => {
            let kept: String = name.chars().take(width - 1).collect();
            format!("{kept}…")
        }
        None => name.to_owned(),
    }
}

fn stub(capture: &Capture, unknown: &UnknownReport) -> String {
    match unknown.stub.is_empty() {
        true => format!("# {}", heading::of_unknown(capture, unknown, false)),
        false => format!(
            "# {}{}\n",
            heading::of_unknown(capture, unknown, false),
            unknown.stub
        ),
    }
}
