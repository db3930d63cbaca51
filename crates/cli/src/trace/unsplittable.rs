//! What can be told of steps inside opaque graphs: their length, busy and idle, nothing of the kinds of kernels.

use linktax_trace::GraphLevel;
use serde_json::{Map, Value, json};

use super::chosen::{LaneRows, Origin, Row};
use super::session::{NotClean, Session};
use super::stats::{Stats, ms};
use crate::table::layout::Grid;

/// Time outside the opaque graphs in which eager kernels ran, nanoseconds.
pub(crate) fn eager_ns(row: &Row) -> u64 {
    let b = &row.buckets;
    b.total() - b.graph_ns - b.copy_ns - b.idle_ns
}

/// Step times of the lanes that cannot be split; nothing where not even idle time is known.
pub(crate) fn table(lanes: &[LaneRows]) -> Option<Grid> {
    let mut grid = Grid {
        headers: vec![
            "GPU", "step", "n", "mean", "median", "p95", "opaque", "eager", "copies", "idle",
        ],
        rows: Vec::new(),
    };
    for lane in lanes.iter().filter(|lane| lane.refusal.is_some()) {
        for (kind, rows) in super::split::by_kind(lane) {
            if rows.iter().any(|row| row.origin == Origin::Invisible) {
                continue;
            }
            let step = Stats::of(rows.iter().map(|row| row.step.dur()));
            let mean = |part: fn(&Row) -> u64| ms(Stats::of(rows.iter().map(|r| part(r))).mean, 3);
            grid.rows.push(vec![
                lane.lane.to_string(),
                kind.as_str().to_owned(),
                rows.len().to_string(),
                ms(step.mean, 3),
                ms(step.median, 3),
                step.p95_ms(3),
                mean(|row| row.buckets.graph_ns),
                mean(eager_ns),
                mean(|row| row.buckets.copy_ns),
                mean(|row| row.buckets.idle_ns),
            ]);
        }
    }
    (!grid.rows.is_empty()).then_some(grid)
}

/// A picture of graphs that left no rows would show idle time where there was work.
pub(crate) fn refuse_invisible(session: &Session) -> anyhow::Result<()> {
    let hidden = |level: &&GraphLevel| level.is_unsplittable() && level.opaque_ns == 0;
    match session
        .levels
        .iter()
        .find(hidden)
        .and_then(GraphLevel::refusal)
    {
        Some(why) => Err(NotClean(why).into()),
        None => Ok(()),
    }
}

/// What stands for the parts of a step that cannot be told.
pub(crate) fn mark(object: &mut Map<String, Value>, refusal: Option<&str>) {
    object.insert("splittable".to_owned(), json!(refusal.is_none()));
    if let Some(why) = refusal {
        object.insert("reason".to_owned(), json!(why));
    }
}
