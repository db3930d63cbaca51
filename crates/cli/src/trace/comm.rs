//! `linktax trace comm`: collectives, their service and wait, who caused it, sizes and bus bandwidth.

mod figures;

use std::collections::BTreeSet;

use clap::Args;
use linktax_linkmodel::Model;
use linktax_records::Note;
use linktax_trace::{CommGroup, WaitMethod};
use serde_json::{Value, json};

use super::args::{InputArgs, ModelArgs, StepArgs};
use super::chosen::Chosen;
use super::heading;
use super::parquet::ParquetArgs;
use super::progress::Working;
use super::session::Session;
use super::split::told;
use super::stats::{Stats, ms, percent, us};
use crate::exit::Exit;
use crate::output;
use crate::table::layout::Grid;

use figures::{Figures, Operation};

const EXAMPLES: &str = "\
Examples:
  linktax trace comm rank0.sqlite rank1.sqlite
  linktax trace comm decode.sqlite --steps decode --model config.json --tp 2";

/// Arguments of `linktax trace comm`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CommArgs {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    steps: StepArgs,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    parquet: ParquetArgs,
    /// Print one object a group of ranks instead of tables.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &CommArgs, working: Working) -> anyhow::Result<Exit> {
    args.parquet.prepare()?;
    let model = args.model.read()?;
    let session = Session::open(&args.input, &args.steps, &working)?;
    working.now("pairing collectives");
    let chosen = Chosen::of(&session, None)?;
    let collectives = chosen.pairs()?;
    let groups: Vec<Figures<'_>> = collectives
        .groups
        .iter()
        .map(|group| Figures::of(&session, group, model.as_ref(), &args.model))
        .collect();
    let mut notes = told(&session.capture.notes, &chosen);
    notes.extend(groups.iter().flat_map(Figures::notes));
    if groups.is_empty() {
        notes.push(Note::new(
            "no_collectives",
            "no communication kernel in this capture",
        ));
    }
    args.parquet.write(&session, &chosen)?;
    drop(working);
    if args.json {
        let warnings = heading::warnings(&notes);
        if !warnings.is_empty() {
            output::note(warnings.trim_end());
        }
        let each: Vec<Value> = groups.iter().map(|g| json_of(g, model.as_ref())).collect();
        output::print(&serde_json::to_string_pretty(&each)?)?;
    } else {
        output::print(&text(&session, &groups, &notes, output::width()))?;
    }
    Ok(Exit::Clean)
}

fn text(session: &Session, groups: &[Figures<'_>], notes: &[Note], width: Option<usize>) -> String {
    let mut head = heading::of_capture(&session.capture, "comm");
    head.push_str(&heading::of_steps(session));
    head.push_str(&heading::warnings(notes));
    let mut out = heading::fit(&head, width);
    for group in groups {
        let gpus: Vec<String> = group.group.lanes.iter().map(usize::to_string).collect();
        out.push_str(&format!("\nRanks on GPU {}\n", gpus.join(", ")));
        out.push_str(&heading::fit(&summary(group), width));
        out.push_str(&format!("{}\n", operations(group).render(width)));
        out.push_str(&format!(
            "\nWho waits for whom\n{}\n",
            ranks(group).render(width)
        ));
    }
    if !groups.is_empty() {
        out.push_str(&heading::fit(LEGEND, width));
    }
    out
}

const LEGEND: &str = "
Service: the shortest duration over the ranks, as the last one to arrive does not wait; wait: the rest. Neither needs a \
common clock. Service still holds the fixed latency of a message. The operation is read off the kernel's name, which NCCL \
does not guarantee; its suffix says nothing of the protocol. busbw = size / service x the bus factor of nccl-tests.
";

fn summary(group: &Figures<'_>) -> String {
    let how = match group.group.method {
        WaitMethod::Paired => "paired across the ranks by their order",
        WaitMethod::LowerBound => {
            "one rank only: the 10th percentile of a kernel's durations stands for its service, so wait is a lower bound and nobody is blamed"
        }
    };
    let mut out = format!(
        "{} in {}, {how}\n",
        heading::counted(group.chosen.len(), "collective", "collectives"),
        heading::counted(group.steps, "step", "steps"),
    );
    for (count, steps) in &group.counts {
        let each = if *steps == 1 { "" } else { " each" };
        out.push_str(&format!(
            "{}: {count}{each}\n",
            heading::counted(*steps, "step", "steps")
        ));
    }
    let clock: Vec<String> = group
        .group
        .clock
        .iter()
        .zip(&group.group.lanes)
        .filter_map(|(clock, lane)| Some((clock.as_ref()?, lane)))
        .filter(|(_, lane)| Some(*lane) != group.group.lanes.first())
        .map(|(clock, lane)| format!("GPU {lane} {:+.1} us", clock.offset_ns as f64 / 1e3))
        .collect();
    if !clock.is_empty() {
        out.push_str(&format!(
            "clock of the first GPU against: {} (nothing is corrected by it)",
            clock.join(", ")
        ));
        if let Some(quality) = group.group.clock_quality_ns() {
            out.push_str(&format!(
                "; service and the time all were inside differ by {} us (median)",
                us(quality as f64)
            ));
        }
        out.push('\n');
    }
    out
}

fn operations(group: &Figures<'_>) -> Grid {
    let or_na = |text: Option<String>| text.unwrap_or_else(|| "n/a".to_owned());
    let row = |op: &Operation| {
        let service = Stats::of(op.service.iter().copied());
        vec![
            op.what.clone(),
            op.class.as_str().to_owned(),
            op.service.len().to_string(),
            format!("{:.1}", op.service.len() as f64 / group.steps.max(1) as f64),
            us(service.mean),
            us(service.median),
            match service.p95 {
                Some(p95) => us(p95),
                None => format!("{}^", us(service.max as f64)),
            },
            us(op.wait_ns as f64 / (op.service.len() * group.group.lanes.len()).max(1) as f64),
            ms(service.sum as f64, 2),
            or_na(
                op.bytes
                    .map(|bytes| format!("{:.1}", bytes as f64 / 1024.0)),
            ),
            or_na(op.bus.map(|rate| format!("{:.1}", rate / 1e9))),
        ]
    };
    let grid = Grid {
        headers: vec![
            "operation",
            "class",
            "n",
            "a step",
            "service mean us",
            "median",
            "p95",
            "wait mean us",
            "service ms",
            "KiB",
            "busbw GB/s",
        ],
        rows: group.operations.iter().map(row).collect(),
    };
    grid.without_empty_columns()
}

fn ranks(group: &Figures<'_>) -> Grid {
    let paired = group.group.method == WaitMethod::Paired;
    let rows = group.ranks.iter().map(|rank| {
        let total = rank.service_ns + rank.wait_ns;
        let caused = |text: String| if paired { text } else { "n/a".to_owned() };
        vec![
            rank.lane.to_string(),
            ms(total as f64, 2),
            ms(rank.service_ns as f64, 2),
            ms(rank.wait_ns as f64, 2),
            percent(rank.wait_ns as f64, total as f64),
            caused(ms(rank.caused_ns as f64, 2)),
            caused(rank.last.to_string()),
        ]
    });
    Grid {
        headers: vec![
            "GPU",
            "total ms",
            "service ms",
            "wait ms",
            "wait share",
            "caused ms",
            "came last",
        ],
        rows: rows.collect(),
    }
    .without_empty_columns()
}

fn json_of(group: &Figures<'_>, model: Option<&Model>) -> Value {
    let operations = group.operations.iter().map(|op| {
        json!({
            "operation": op.operation,
            "operation_certain": op.certain,
            "name": op.name,
            "class": op.class,
            "count": op.service.len(),
            "service": Stats::of(op.service.iter().copied()),
            "wait_ns": op.wait_ns,
            "message_bytes": op.bytes,
            "bus_bytes_per_second": op.bus,
        })
    });
    let ranks = group.ranks.iter().map(|rank| {
        json!({
            "gpu": rank.lane,
            "service_ns": rank.service_ns,
            "wait_ns": rank.wait_ns,
            "caused_wait_ns": (group.group.method == WaitMethod::Paired).then_some(rank.caused_ns),
            "came_last": (group.group.method == WaitMethod::Paired).then_some(rank.last),
            "clock_offset": rank.clock,
        })
    });
    json!({
        "lanes": group.group.lanes,
        "method": group.group.method,
        "steps": group.steps,
        "collectives": group.chosen.len(),
        "service_ns": group.ranks.first().map(|r| r.service_ns),
        "clock_quality_ns": group.group.clock_quality_ns(),
        "counts_per_step": group.by_step,
        "model": model,
        "operations": operations.collect::<Vec<_>>(),
        "ranks": ranks.collect::<Vec<_>>(),
    })
}

/// Indices of the chosen steps of the group's first lane, by which its collectives are numbered.
pub(crate) fn chosen_steps(session: &Session, group: &CommGroup) -> BTreeSet<u32> {
    let first = group.lanes.first();
    let lanes = session.steps.iter().filter(|s| Some(&s.lane) == first);
    lanes
        .flat_map(|lane| &lane.steps)
        .filter(|step| session.wants(step))
        .map(|step| step.index)
        .collect()
}
