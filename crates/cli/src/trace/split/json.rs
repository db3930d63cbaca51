//! The split for machines: one object a step kind and GPU, each complete in itself.

use linktax_trace::{Buckets, StepKind};
use serde_json::{Map, Value, json};

use super::super::blame::caused_ns;
use super::super::chosen::{LaneRows, Origin, Row};
use super::super::heading::Sources;
use super::super::parts::PARTS;
use super::super::stats::Stats;
use super::super::totals::Totals;
use super::super::unsplittable::{eager_ns, mark};
use super::{Report, add, by_kind};

/// An array.
pub(super) fn of(report: &Report, top: usize) -> Value {
    let mut out = Vec::new();
    for lane in &report.chosen.lanes {
        for (kind, rows) in by_kind(lane) {
            out.push(Value::Object(aggregate(report, lane, kind, &rows, top)));
        }
    }
    Value::Array(out)
}

fn aggregate(
    report: &Report,
    lane: &LaneRows,
    kind: StepKind,
    rows: &[&Row],
    top: usize,
) -> Map<String, Value> {
    let mut out = Map::new();
    put(&mut out, "kind", json!(kind));
    identity(&mut out, report, lane.lane);
    put(&mut out, "steps", json!(rows.len()));
    steps(&mut out, report, lane.lane, rows);
    mark(&mut out, lane.refusal.as_deref());
    times(&mut out, rows);
    let caused = caused_ns(&report.session, &report.chosen, lane.lane, kind);
    put(&mut out, "comm_caused_wait_ns", json!(caused));
    let mut totals = Totals::default();
    add(&mut totals, &report.session, lane.lane, rows);
    let named = rows.iter().all(|row| row.origin == Origin::Measured);
    if named {
        kernels(&mut out, report, &totals, rows.len(), top);
    }
    put(&mut out, "unknown_share", json!(report.unknown.share));
    put(
        &mut out,
        "rules_hash",
        json!(report.session.capture.rules.hash()),
    );
    put(&mut out, "warnings", json!(report.notes));
    out
}

fn put(out: &mut Map<String, Value>, key: &str, value: Value) {
    out.insert(key.to_owned(), value);
}

fn identity(out: &mut Map<String, Value>, report: &Report, at: usize) {
    let capture = &report.session.capture;
    let lane = &capture.trace.lanes[at];
    let sources = Sources::of(capture);
    put(out, "gpu", json!(at));
    put(out, "pid", json!(lane.pid));
    put(out, "device", json!(lane.id.device));
    put(out, "gpu_name", json!(lane.gpu.name));
    put(
        out,
        "file",
        json!(capture.trace.files.get(lane.id.file as usize)),
    );
    let info = capture.exports.get(lane.id.file as usize);
    put(
        out,
        "nsys_version",
        json!(info.and_then(|i| i.tool_version.clone())),
    );
    put(
        out,
        "schema_version",
        json!(info.and_then(|i| i.schema_version.clone())),
    );
    put(out, "gpus", json!(sources.gpus));
    put(out, "lanes", json!(sources.lanes));
    put(out, "processes", json!(sources.processes));
}

fn steps(out: &mut Map<String, Value>, report: &Report, at: usize, rows: &[&Row]) {
    let found = report.session.steps.iter().find(|steps| steps.lane == at);
    put(out, "method", json!(found.map(|f| f.method)));
    put(out, "confidence", json!(found.map(|f| f.confidence)));
    let tokens = rows.iter().filter_map(|row| row.step.batch?.tokens());
    let tokens: Vec<u64> = tokens.collect();
    let known = (!tokens.is_empty()).then(|| Stats::of(tokens.iter().copied()));
    put(out, "median_tokens", json!(known.map(|k| k.median)));
    put(out, "batch", json!(common_batch(rows)));
    let launches: Option<Vec<u64>> = rows.iter().map(|row| row.launches).collect();
    put(
        out,
        "median_launches",
        json!(launches.map(|l| Stats::of(l).median)),
    );
}

/// The batch that all steps have; `None` where they differ or it is not known.
fn common_batch(rows: &[&Row]) -> Option<linktax_trace::Batch> {
    let first = rows.first()?.step.batch?;
    let same = rows.iter().all(|row| row.step.batch == Some(first));
    same.then_some(first)
}

fn times(out: &mut Map<String, Value>, rows: &[&Row]) {
    let stats = |part: &dyn Fn(&Row) -> u64| Stats::of(rows.iter().map(|row| part(row)));
    let whole = stats(&|row| row.step.dur());
    put(out, "dur", json!(whole));
    let with_share = |s: Stats| {
        let mut value = json!(s);
        let share = (whole.sum > 0).then(|| s.sum as f64 / whole.sum as f64);
        value["share"] = json!(share);
        value
    };
    let has = |origin| rows.iter().any(|row| row.origin == origin);
    for part in &PARTS {
        let hidden = has(Origin::Invisible) || (has(Origin::Opaque) && part.named);
        let value = match hidden {
            true => Value::Null,
            false => with_share(stats(&|row| (part.get)(&row.buckets))),
        };
        put(out, part.key.trim_end_matches("_ns"), value);
    }
    if has(Origin::Opaque) && !has(Origin::Invisible) {
        put(out, "eager", with_share(stats(&eager_ns)));
    }
    put(out, "estimated", json!(has(Origin::Estimated)));
    let all = |part: &dyn Fn(&Row) -> Option<u64>| {
        let each: Option<Vec<u64>> = rows.iter().map(|row| part(row)).collect();
        json!(each.map(|each| with_share(Stats::of(each))))
    };
    put(out, "comm_service", all(&|row| Some(row.wait_service()?.1)));
    put(out, "comm_wait", all(&|row| Some(row.wait_service()?.0)));
    put(out, "comm_exposed", all(&|row| Some(row.comm?.exposed_ns)));
    put(
        out,
        "comm_overlapped",
        all(&|row| Some(row.comm?.overlapped_ns)),
    );
    put(
        out,
        "idle_launch_bound",
        all(&|row| Some(row.idle?.launch_bound_ns)),
    );
    put(
        out,
        "idle_between_steps",
        all(&|row| Some(row.idle?.between_steps_ns)),
    );
    put(
        out,
        "idle_in_graph",
        all(&|row| Some(row.idle?.in_graph_ns)),
    );
    put(out, "idle_other", all(&|row| Some(row.idle?.other_ns)));
    let busy: u64 = rows.iter().map(|row| busy_ns(&row.buckets)).sum();
    let known = whole.sum > 0 && !has(Origin::Invisible);
    put(
        out,
        "busy_share",
        json!(known.then(|| busy as f64 / whole.sum as f64)),
    );
    let factors: Option<Vec<f64>> = rows.iter().map(|row| row.overlap_factor).collect();
    let mean = factors.map(|f| f.iter().sum::<f64>() / f.len() as f64);
    put(out, "overlap_factor", json!(mean.filter(|_| known)));
}

fn busy_ns(buckets: &Buckets) -> u64 {
    buckets.total() - buckets.idle_ns
}

/// Fine classes and the kernels with most time; sums of durations, so those that overlap count twice.
fn kernels(
    out: &mut Map<String, Value>,
    report: &Report,
    totals: &Totals,
    steps: usize,
    top: usize,
) {
    let capture = &report.session.capture;
    let all: u64 = totals.by_class.values().map(|t| t.ns).sum();
    let share = |ns: u64| (all > 0).then(|| ns as f64 / all as f64);
    let a_step = |n: u64| n as f64 / steps as f64;
    let classes: Vec<Value> = totals
        .by_class
        .iter()
        .map(|(class, total)| {
            json!({
                "class": class,
                "group": class.group(),
                "count_per_step": a_step(total.count),
                "mean_ns": a_step(total.ns),
                "share": share(total.ns),
            })
        })
        .collect();
    put(out, "classes", json!(classes));
    let top: Vec<Value> = totals
        .top()
        .into_iter()
        .take(top)
        .map(|(name, total)| {
            json!({
                "name": capture.trace.names.full(name),
                "class": capture.classes.name(name),
                "count_per_step": a_step(total.count),
                "mean_ns": a_step(total.ns),
                "share": share(total.ns),
            })
        })
        .collect();
    put(out, "top_kernels", json!(top));
}
