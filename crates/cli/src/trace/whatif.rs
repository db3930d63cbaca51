//! `linktax trace whatif`: what a faster link, equal ranks or faster kernels would change.

mod table;

use clap::Args;
use linktax_records::Note;
use linktax_trace::{
    CommGroup, Group, Replay, ReplayOptions, Scenario, SizedCollective, StepKind, TraceError,
    replay, sizes,
};
use serde_json::{Value, json};

use super::args::{InputArgs, ModelArgs, StepArgs};
use super::chosen::Chosen;
use super::heading;
use super::progress::Working;
use super::session::{NotClean, Session};
use super::split::told;
use super::stats::Stats;
use crate::exit::Exit;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  linktax trace whatif decode.sqlite --steps decode --steady 2
  linktax trace whatif decode.sqlite --comm 1.5,3,inf --alpha-us 18
  linktax trace whatif decode.sqlite --model config.json --capture-sizes 1,2,4,8";

/// Arguments of `linktax trace whatif`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WhatifArgs {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    steps: StepArgs,
    #[command(flatten)]
    model: ModelArgs,
    /// How many times faster communication is to be (inf: no time at all).
    #[arg(long, value_name = "K,…", value_delimiter = ',', value_parser = factor, default_value = "2,4,inf")]
    comm: Vec<f64>,
    /// How many times faster the kernels of one group are to be.
    #[arg(long, value_name = "K", value_parser = factor, default_value = "2")]
    compute: f64,
    /// Fixed cost of a message in microseconds, measured elsewhere [default: fitted over the sizes, which need --model].
    #[arg(long, value_name = "US", value_parser = microseconds)]
    alpha_us: Option<f64>,
    /// Print an object instead of tables.
    #[arg(long)]
    json: bool,
}

/// What one group of ranks answers.
struct Answer<'a> {
    group: &'a CommGroup,
    replay: Result<Replay, TraceError>,
}

/// Runs the command.
pub(crate) fn run(args: &WhatifArgs, working: Working) -> anyhow::Result<Exit> {
    let model = args.model.read()?;
    let mut session = Session::open(&args.input, &args.steps, &working)?;
    // A mean over decode and prefill steps answers nobody's question.
    if args.steps.steps.is_empty() && session.by_kind().iter().any(|k| k.0 == StepKind::Decode) {
        session.kinds = vec![StepKind::Decode];
    }
    working.now("replaying");
    let chosen = Chosen::of(&session, None)?;
    let collectives = chosen.pairs()?;
    let mut answers = Vec::new();
    for group in &collectives.groups {
        let sized = match &model {
            Some(model) => sized(args, &session, group, model),
            None => Vec::new(),
        };
        answers.push(Answer {
            group,
            replay: replayed(args, &session, &chosen, group, &sized),
        });
    }
    let notes = told(&session.capture.notes, &chosen);
    drop(working);
    report(args, &session, &chosen, &answers, &notes)?;
    refusal(&answers)
}

/// A replay that misses the measured time is an answer that is not clean; a single rank has none to be missed.
fn refusal(answers: &[Answer<'_>]) -> anyhow::Result<Exit> {
    let refused = answers.iter().find_map(|answer| match &answer.replay {
        Err(error @ TraceError::ReplayMismatch { .. }) => Some(error.to_string()),
        _ => None,
    });
    match refused {
        Some(why) => Err(NotClean(why).into()),
        None => Ok(Exit::Clean),
    }
}

fn sized(
    args: &WhatifArgs,
    session: &Session,
    group: &CommGroup,
    model: &linktax_linkmodel::Model,
) -> Vec<SizedCollective> {
    let first = group.lanes.first();
    let steps = session.steps.iter().find(|s| Some(&s.lane) == first);
    steps.map_or_else(Vec::new, |steps| {
        sizes(group, steps, model, &args.model.padded())
    })
}

fn replayed(
    args: &WhatifArgs,
    session: &Session,
    chosen: &Chosen,
    group: &CommGroup,
    sizes: &[SizedCollective],
) -> Result<Replay, TraceError> {
    let capture = &session.capture;
    let options = ReplayOptions {
        kinds: session.kinds.clone(),
        scenarios: scenarios(args, chosen, group),
        sizes,
        alpha_ns: args.alpha_us.map(|us| us * 1e3),
    };
    replay(
        &capture.trace,
        &capture.classes,
        &session.steps,
        group,
        &options,
    )
}

fn scenarios(args: &WhatifArgs, chosen: &Chosen, group: &CommGroup) -> Vec<Scenario> {
    let each = || args.comm.iter();
    let communication = each().map(|&factor| Scenario::Communication { factor });
    let bandwidth = each().map(|&factor| Scenario::Bandwidth { factor });
    let own = chosen
        .lanes
        .iter()
        .filter(|l| group.lanes.contains(&l.lane));
    let groups = groups(own.flat_map(|lane| &lane.rows));
    let compute = groups.into_iter().map(|group| Scenario::Compute {
        group,
        factor: args.compute,
    });
    communication
        .chain(bandwidth)
        .chain([Scenario::NoStraggler])
        .chain(compute)
        .collect()
}

/// Compute groups with any time.
fn groups<'a>(rows: impl Iterator<Item = &'a super::chosen::Row> + Clone) -> Vec<Group> {
    let all = [
        Group::Linear,
        Group::Attention,
        Group::Ssm,
        Group::Moe,
        Group::Other,
    ];
    let used = |group: &Group| rows.clone().any(|row| row.buckets.get(*group) > 0);
    all.into_iter().filter(used).collect()
}

fn report(
    args: &WhatifArgs,
    session: &Session,
    chosen: &Chosen,
    answers: &[Answer<'_>],
    notes: &[Note],
) -> anyhow::Result<()> {
    let width = output::width();
    if args.json {
        let value = json(args, session, chosen, answers, notes);
        output::print(&serde_json::to_string_pretty(&value)?)?;
        return Ok(());
    }
    let mut head = heading::of_capture(&session.capture, "whatif");
    head.push_str(&heading::of_steps(session));
    head.push_str(&format!("steps looked at: {}\n", kinds(session)));
    head.push_str(&heading::warnings(notes));
    let mut out = heading::fit(&head, width);
    for answer in answers {
        out.push_str(&table::of(answer, width));
    }
    out.push_str(&table::alone(args, chosen, answers, width));
    output::print(&out)?;
    Ok(())
}

fn kinds(session: &Session) -> String {
    match session.kinds.is_empty() {
        true => "all".to_owned(),
        false => {
            let words = session.kinds.iter().map(|kind| kind.as_str());
            words.collect::<Vec<_>>().join(", ")
        }
    }
}

fn json(
    args: &WhatifArgs,
    session: &Session,
    chosen: &Chosen,
    answers: &[Answer<'_>],
    notes: &[Note],
) -> Value {
    let groups = answers.iter().map(|answer| match &answer.replay {
        Ok(replay) => json!({
            "lanes": answer.group.lanes,
            "replay": replay,
            "replay_error": replay.error(),
            "reason": null,
        }),
        Err(error) => json!({
            "lanes": answer.group.lanes,
            "replay": null,
            "replay_error": null,
            "reason": error.to_string(),
        }),
    });
    json!({
        "kinds": session.kinds,
        "groups": groups.collect::<Vec<_>>(),
        "amdahl": amdahl(args, chosen),
        "warnings": notes,
    })
}

/// Plain Amdahl on the mean step of each GPU: an upper bound that takes waiting for transfer.
fn amdahl(args: &WhatifArgs, chosen: &Chosen) -> Vec<Value> {
    let lanes = chosen.lanes.iter().filter(|lane| !lane.rows.is_empty());
    lanes
        .map(|lane| {
            let (step, comm) = means(lane);
            let each = args.comm.iter().map(|&factor| {
                json!({
                    "factor": if factor.is_finite() { json!(factor) } else { json!("inf") },
                    "step_ns": linktax_linkmodel::amdahl(step, comm, factor),
                    "speedup": linktax_linkmodel::amdahl_speedup(step, comm, factor),
                })
            });
            json!({
                "gpu": lane.lane,
                "mean_step_ns": step,
                "mean_exposed_comm_ns": comm,
                "projections": each.collect::<Vec<_>>(),
            })
        })
        .collect()
}

/// Mean step and mean exposed communication of a lane, nanoseconds.
fn means(lane: &super::chosen::LaneRows) -> (f64, f64) {
    let mean = |part: fn(&super::chosen::Row) -> u64| Stats::of(lane.rows.iter().map(part)).mean;
    (mean(|row| row.step.dur()), mean(|row| row.buckets.comm_ns))
}

/// A factor above zero; `inf` for without end.
fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor > 0.0 => Ok(factor),
        _ => Err("expected a factor above 0, or inf".to_owned()),
    }
}

fn microseconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(us) if us >= 0.0 && us.is_finite() => Ok(us),
        _ => Err("expected microseconds, 0 or more".to_owned()),
    }
}
