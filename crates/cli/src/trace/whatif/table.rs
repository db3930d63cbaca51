//! What-if for people: the replay beside plain Amdahl.

use linktax_trace::{Projection, Replay, TraceError};

use super::super::chosen::Chosen;
use super::super::heading::{counted, fit};
use super::super::stats::ms;
use super::{Answer, WhatifArgs, means};
use crate::table::layout::Grid;

/// One group of ranks.
pub(super) fn of(answer: &Answer<'_>, width: Option<usize>) -> String {
    let gpus: Vec<String> = answer.group.lanes.iter().map(usize::to_string).collect();
    let title = format!("\nRanks on GPU {}\n", gpus.join(", "));
    let replay = match &answer.replay {
        Ok(replay) => replay,
        Err(error) => return fit(&format!("{title}! {}\n", refused(error)), width),
    };
    let mut out = title;
    out.push_str(&fit(&check(replay), width));
    for note in &replay.notes {
        out.push_str(&fit(&format!("! {}: {}\n", note.code, note.message), width));
    }
    out.push_str(&format!("{}\n", projections(replay).render(width)));
    for line in untold(replay) {
        out.push_str(&fit(&line, width));
    }
    out.push_str(&fit(LEGEND, width));
    out
}

const LEGEND: &str = "
Replay: every rank works as long as it did between two collectives, and a collective begins when the last rank is there; \
so waiting for a late rank stays. Plain Amdahl divides all communication of a GPU, its waiting included, and promises too \
much on the GPU that waits.
";

/// The questions without an answer, by the reason.
fn untold(replay: &Replay) -> Vec<String> {
    let mut by_reason: Vec<(&str, Vec<String>)> = Vec::new();
    for projection in &replay.projections {
        let Some(reason) = projection.reason.as_deref() else {
            continue;
        };
        match by_reason.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, names)) => names.push(scenario(projection)),
            None => by_reason.push((reason, vec![scenario(projection)])),
        }
    }
    let line =
        |(reason, names): (&str, Vec<String>)| format!("- {}: n/a: {reason}\n", names.join(", "));
    by_reason.into_iter().map(line).collect()
}

fn scenario(projection: &Projection) -> String {
    times(&projection.name)
}

/// `infx` reads badly.
fn times(name: &str) -> String {
    name.replace("infx", "∞x")
}

fn refused(error: &TraceError) -> String {
    match error {
        TraceError::ReplayMismatch { .. } => format!("{error}; nothing is projected"),
        _ => error.to_string(),
    }
}

fn check(replay: &Replay) -> String {
    let critical: Vec<String> = replay
        .lanes
        .iter()
        .zip(&replay.critical_ns)
        .map(|(lane, &ns)| {
            let all: i64 = replay.critical_ns.iter().sum();
            format!("GPU {lane} {:.1} %", 100.0 * ns as f64 / all.max(1) as f64)
        })
        .collect();
    format!(
        "replay check: measured {} ms, replayed {} ms ({:+.2} %), over {} in {}\nlast to arrive, by time worked before it: {}\n",
        ms(replay.measured_ns as f64, 2),
        ms(replay.replayed_ns as f64, 2),
        100.0 * replay.error(),
        counted(replay.collectives, "collective", "collectives"),
        counted(replay.steps, "step", "steps"),
        critical.join(", ")
    )
}

fn projections(replay: &Replay) -> Grid {
    let or_na = |text: Option<String>| text.unwrap_or_else(|| "n/a".to_owned());
    let row = |projection: &Projection| {
        let amdahl = |rank: usize| {
            let each = projection.amdahl_ns.as_ref()?;
            Some(ms(*each.get(rank)?, 2))
        };
        let all: Option<Vec<String>> = (0..replay.lanes.len()).map(amdahl).collect();
        vec![
            scenario(projection),
            or_na(projection.time_ns.map(|ns| ms(ns, 2))),
            or_na(
                projection
                    .time_ns
                    .map(|ns| ms(ns / replay.steps.max(1) as f64, 3)),
            ),
            or_na(
                projection
                    .speedup
                    .map(|s| format!("{:+.1} %", 100.0 * (s - 1.0))),
            ),
            or_na(all.map(|all| all.join(" / "))),
        ]
    };
    Grid {
        headers: vec![
            "what if",
            "replay ms",
            "ms a step",
            "gain",
            "plain Amdahl ms, each GPU",
        ],
        rows: replay
            .projections
            .iter()
            .filter(|projection| projection.time_ns.is_some())
            .map(row)
            .collect(),
    }
}

/// Plain Amdahl where there is no replay: ranks that were not traced, or no communication at all.
pub(super) fn alone(
    args: &WhatifArgs,
    chosen: &Chosen,
    answers: &[Answer<'_>],
    width: Option<usize>,
) -> String {
    let single = |lane: usize| {
        let own = answers.iter().find(|a| a.group.lanes.contains(&lane));
        own.is_none_or(|answer| matches!(answer.replay, Err(TraceError::NoReplay { .. })))
    };
    let mut grid = Grid {
        headers: vec![
            "GPU",
            "n",
            "step ms",
            "what if",
            "ms a step",
            "gain at most",
        ],
        rows: Vec::new(),
    };
    let lanes = chosen
        .lanes
        .iter()
        .filter(|l| !l.rows.is_empty() && single(l.lane));
    for lane in lanes {
        let (step, comm) = means(lane);
        let mut add = |what: String, part: f64, factor: f64| {
            let gain = linktax_linkmodel::amdahl_speedup(step, part, factor);
            grid.rows.push(vec![
                lane.lane.to_string(),
                lane.rows.len().to_string(),
                ms(step, 3),
                what,
                ms(linktax_linkmodel::amdahl(step, part, factor), 3),
                gain.map_or_else(
                    || "n/a".to_owned(),
                    |g| format!("{:+.1} %", 100.0 * (g - 1.0)),
                ),
            ]);
        };
        if comm > 0.0 {
            for &factor in &args.comm {
                add(times(&format!("communication {factor}x")), comm, factor);
            }
        }
        for group in super::groups(lane.rows.iter()) {
            let sum: u64 = lane.rows.iter().map(|row| row.buckets.get(group)).sum();
            let mean = sum as f64 / lane.rows.len() as f64;
            add(format!("{group} {}x", args.compute), mean, args.compute);
        }
    }
    match grid.rows.is_empty() {
        true => String::new(),
        false => format!(
            "\nPlain Amdahl on the mean step: an upper bound, with nothing of the other ranks\n{}\n",
            grid.render(width)
        ),
    }
}
