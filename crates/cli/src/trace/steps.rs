//! `linktax trace steps`: every step with its buckets.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use super::args::{InputArgs, StepArgs};
use super::chosen::{Chosen, LaneRows, Origin, Row};
use super::heading;
use super::parquet::ParquetArgs;
use super::parts::{PARTS, shown};
use super::progress::Working;
use super::session::Session;
use super::split::{strict, told};
use super::stats::ms;
use super::totals::Totals;
use super::unsplittable::{eager_ns, mark};
use crate::exit::Exit;
use crate::output;
use crate::table::layout::Grid;

const EXAMPLES: &str = "\
Examples:
  linktax trace steps decode.sqlite
  linktax trace steps decode.sqlite --steps mixed,prefill --from 1.2s --to 1.8s
  linktax trace steps decode.sqlite --json";

/// Arguments of `linktax trace steps`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StepsArgs {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    steps: StepArgs,
    /// Estimate what is inside opaque graphs by the shares of this node-level capture.
    #[arg(long, value_name = "NODE.sqlite")]
    profile_from: Option<PathBuf>,
    #[command(flatten)]
    parquet: ParquetArgs,
    /// Print one object a step instead of a table.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &StepsArgs, working: Working) -> anyhow::Result<Exit> {
    args.parquet.prepare()?;
    let session = Session::open(&args.input, &args.steps, &working)?;
    working.now("splitting");
    let profile = args.profile_from.as_deref();
    let chosen = Chosen::of(&session, profile.map(|path| (path, &args.input.classes)))?;
    let mut totals = Totals::default();
    for lane in &chosen.lanes {
        let steps: Vec<_> = lane.rows.iter().map(|row| &row.step).collect();
        let capture = &session.capture;
        totals.add(&capture.trace.lanes[lane.lane], &capture.classes, &steps);
    }
    let unknown = heading::unknown(&session.capture, &totals);
    let mut notes = told(&session.capture.notes, &chosen);
    notes.extend(heading::unknown_note(&unknown));
    let warnings = heading::warnings(&notes);
    args.parquet.write(&session, &chosen)?;
    drop(working);
    if args.json {
        // A script reads the steps; what is odd about them goes to people.
        if !warnings.is_empty() {
            output::note(warnings.trim_end());
        }
        output::print(&serde_json::to_string_pretty(&all(&session, &chosen))?)?;
    } else {
        let mut text = heading::of_capture(&session.capture, "steps");
        text.push_str(&heading::of_steps(&session));
        text.push_str(&heading::of_unknown(
            &session.capture,
            &unknown,
            chosen.hides(),
        ));
        if let Some(why) = chosen.refusal() {
            text.push_str(&format!("! {why}\n"));
        }
        text.push_str(&warnings);
        let mut out = heading::fit(&text, output::width());
        out.push_str(&format!("\n{}\n", table(&chosen).render(output::width())));
        output::print(&out)?;
    }
    if let Some(why) = chosen.refusal() {
        if args.json {
            output::note(&format!("error: {why}"));
        }
        return Ok(Exit::NotClean);
    }
    strict(args.input.classes.strict, &unknown)?;
    Ok(Exit::Clean)
}

fn table(chosen: &Chosen) -> Grid {
    let parts = shown(chosen.rows().map(|row| &row.buckets));
    let mut headers = vec!["GPU", "#", "step", "start ms", "ms", "prefill", "decode"];
    headers.extend(parts.iter().map(|part| part.title));
    headers.extend(["wait", "origin"]);
    let mut rows = Vec::new();
    for lane in &chosen.lanes {
        for row in &lane.rows {
            let batch = row.step.batch;
            let or_na = |n: Option<u64>| n.map_or_else(|| "n/a".to_owned(), |n| n.to_string());
            let mut cells = vec![
                lane.lane.to_string(),
                row.step.index.to_string(),
                row.step.kind.as_str().to_owned(),
                ms(row.step.start as f64, 3),
                ms(row.step.dur() as f64, 3),
                or_na(batch.and_then(|b| tokens(b.context_requests, b.context_tokens))),
                or_na(batch.and_then(|b| tokens(b.generation_requests, b.generation_tokens))),
            ];
            cells.extend(parts.iter().map(|part| match hidden(row, part.named) {
                true => "n/a".to_owned(),
                false => ms((part.get)(&row.buckets) as f64, 3),
            }));
            let wait = row.wait_service().map(|(wait, _)| ms(wait as f64, 3));
            cells.push(
                wait.filter(|_| row.buckets.comm_ns > 0)
                    .unwrap_or_else(|| "n/a".to_owned()),
            );
            cells.push(origin(row).to_owned());
            rows.push(cells);
        }
    }
    Grid { headers, rows }.without_empty_columns()
}

/// No requests have no tokens, whatever the mark leaves out.
pub(crate) fn tokens(requests: u32, tokens: Option<u64>) -> Option<u64> {
    match requests {
        0 => Some(0),
        _ => tokens,
    }
}

pub(crate) fn hidden(row: &Row, named: bool) -> bool {
    match row.origin {
        Origin::Invisible => true,
        Origin::Opaque => named,
        Origin::Measured | Origin::Estimated => false,
    }
}

/// Shown only where it is not the usual.
fn origin(row: &Row) -> &'static str {
    match row.origin {
        Origin::Measured => "n/a",
        Origin::Estimated => "estimated",
        Origin::Opaque => "opaque",
        Origin::Invisible => "invisible",
    }
}

pub(crate) fn all(session: &Session, chosen: &Chosen) -> Value {
    let lanes = chosen.lanes.iter();
    let rows = lanes.flat_map(|lane| {
        let each = lane.rows.iter();
        each.map(|row| Value::Object(one(session, lane, row)))
    });
    Value::Array(rows.collect())
}

fn one(session: &Session, lane: &LaneRows, row: &Row) -> Map<String, Value> {
    let id = &session.capture.trace.lanes[lane.lane];
    let step = &row.step;
    let mut out = Map::new();
    let mut put = |key: &str, value: Value| {
        out.insert(key.to_owned(), value);
    };
    put("kind", json!(step.kind));
    put("gpu", json!(lane.lane));
    put("pid", json!(id.pid));
    put("device", json!(id.id.device));
    put("step", json!(step.index));
    put("start_ns", json!(step.start));
    put("dur_ns", json!(step.dur()));
    for part in &PARTS {
        let known = (!hidden(row, part.named)).then(|| (part.get)(&row.buckets));
        put(part.key, json!(known));
    }
    if row.origin == Origin::Opaque {
        put("eager_ns", json!(eager_ns(row)));
    }
    let wait_service = row.wait_service().filter(|_| !hidden(row, true));
    put(
        "comm_service_ns",
        json!(wait_service.map(|(_, service)| service)),
    );
    put("comm_wait_ns", json!(wait_service.map(|(wait, _)| wait)));
    put("comm_exposed_ns", json!(row.comm.map(|c| c.exposed_ns)));
    put(
        "comm_overlapped_ns",
        json!(row.comm.map(|c| c.overlapped_ns)),
    );
    put(
        "idle_launch_bound_ns",
        json!(row.idle.map(|i| i.launch_bound_ns)),
    );
    put(
        "idle_between_steps_ns",
        json!(row.idle.map(|i| i.between_steps_ns)),
    );
    put("idle_in_graph_ns", json!(row.idle.map(|i| i.in_graph_ns)));
    put("idle_other_ns", json!(row.idle.map(|i| i.other_ns)));
    put("batch", json!(step.batch));
    put("tokens", json!(step.batch.and_then(|b| b.tokens())));
    let each = step.batch.and_then(|b| b.tokens_per_sequence());
    put("tokens_per_sequence", json!(each));
    put("ops", json!(row.ops));
    put("launches", json!(row.launches));
    put("method", json!(step.method));
    put("confidence", json!(step.confidence));
    put("label", json!(step.label));
    put("overhead_ns", json!(step.overhead_ns));
    put("estimated", json!(row.origin == Origin::Estimated));
    let opaque = matches!(row.origin, Origin::Opaque | Origin::Invisible);
    mark(&mut out, lane.refusal.as_deref().filter(|_| opaque));
    out
}
