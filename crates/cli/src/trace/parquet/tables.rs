//! The tables themselves. Columns of `steps` have the names of `trace steps --json`.

use std::collections::{BTreeMap, BTreeSet};

use linktax_store::tables::{TypedTable, Values};
use linktax_trace::{Class, CommGroup, NameId, Step, StepKind, Trace};

use super::super::chosen::{Chosen, LaneRows, Origin, Row};
use super::super::comm::chosen_steps;
use super::super::parts::PARTS;
use super::super::session::Session;
use super::super::steps::{hidden, tokens};
use super::super::totals::Totals;

/// One row a chosen step and GPU.
pub(super) fn steps(session: &Session, chosen: &Chosen) -> TypedTable {
    let lanes = &session.capture.trace.lanes;
    let all: Vec<(&LaneRows, &Row)> = chosen
        .lanes
        .iter()
        .flat_map(|lane| lane.rows.iter().map(move |row| (lane, row)))
        .collect();
    let mut table = TypedTable::default()
        .with("kind", each(&all, |_, r| r.step.kind.as_str()))
        .with("gpu", each(&all, |l, _| l.lane as u32))
        .with("pid", each(&all, |l, _| lanes[l.lane].pid))
        .with("device", each(&all, |l, _| lanes[l.lane].id.device))
        .with("step", each(&all, |_, r| r.step.index))
        .with("start_ns", each(&all, |_, r| r.step.start))
        .with("dur_ns", each(&all, |_, r| r.step.dur()));
    for part in &PARTS {
        let known = |r: &Row| (!hidden(r, part.named)).then(|| (part.get)(&r.buckets));
        table = table.with(part.key, each(&all, |_, r| known(r)));
    }
    let waiting = |r: &Row| r.wait_service().filter(|_| !hidden(r, true));
    table
        .with("comm_service_ns", each(&all, |_, r| Some(waiting(r)?.1)))
        .with("comm_wait_ns", each(&all, |_, r| Some(waiting(r)?.0)))
        .with(
            "comm_exposed_ns",
            each(&all, |_, r| Some(r.comm?.exposed_ns)),
        )
        .with(
            "comm_overlapped_ns",
            each(&all, |_, r| Some(r.comm?.overlapped_ns)),
        )
        .with(
            "idle_launch_bound_ns",
            each(&all, |_, r| Some(r.idle?.launch_bound_ns)),
        )
        .with(
            "idle_between_steps_ns",
            each(&all, |_, r| Some(r.idle?.between_steps_ns)),
        )
        .with(
            "idle_in_graph_ns",
            each(&all, |_, r| Some(r.idle?.in_graph_ns)),
        )
        .with("idle_other_ns", each(&all, |_, r| Some(r.idle?.other_ns)))
        .with(
            "context_requests",
            each(&all, |_, r| Some(r.step.batch?.context_requests)),
        )
        .with(
            "context_tokens",
            each(&all, |_, r| {
                let batch = r.step.batch?;
                tokens(batch.context_requests, batch.context_tokens)
            }),
        )
        .with(
            "generation_requests",
            each(&all, |_, r| Some(r.step.batch?.generation_requests)),
        )
        .with(
            "generation_tokens",
            each(&all, |_, r| {
                let batch = r.step.batch?;
                tokens(batch.generation_requests, batch.generation_tokens)
            }),
        )
        .with(
            "generation_kv_tokens",
            each(&all, |_, r| r.step.batch?.generation_kv_tokens),
        )
        .with("tokens", each(&all, |_, r| r.step.batch?.tokens()))
        .with(
            "tokens_per_sequence",
            each(&all, |_, r| r.step.batch?.tokens_per_sequence()),
        )
        .with("ops", each(&all, |_, r| r.ops))
        .with("launches", each(&all, |_, r| r.launches))
        .with("method", each(&all, |_, r| r.step.method.as_str()))
        .with("confidence", each(&all, |_, r| r.step.confidence))
        .with("label", each(&all, |_, r| r.step.label.clone()))
        .with("overhead_ns", each(&all, |_, r| r.step.overhead_ns))
        .with(
            "estimated",
            each(&all, |_, r| r.origin == Origin::Estimated),
        )
        .with(
            "splittable",
            each(&all, |l, r| {
                let opaque = matches!(r.origin, Origin::Opaque | Origin::Invisible);
                l.refusal.is_none() || !opaque
            }),
        )
}

fn each<'a, T>(
    all: &[(&'a LaneRows, &'a Row)],
    get: impl Fn(&'a LaneRows, &'a Row) -> T,
) -> Vec<T> {
    all.iter().map(|&(lane, row)| get(lane, row)).collect()
}

/// Names of kernels as few words for many rows.
#[derive(Default)]
struct Kernels {
    words: Vec<String>,
    known: BTreeMap<NameId, u32>,
    places: Vec<Option<u32>>,
}

impl Kernels {
    fn push(&mut self, trace: &Trace, name: Option<NameId>) {
        let place = name.map(|name| {
            *self.known.entry(name).or_insert_with(|| {
                self.words.push(trace.names.full(name).to_owned());
                self.words.len() as u32 - 1
            })
        });
        self.places.push(place);
    }

    fn values(self) -> Values {
        Values::Words(self.words, self.places)
    }
}

/// Collectives column by column: there may be millions.
#[derive(Default)]
struct Calls {
    group: Vec<u32>,
    gpu: Vec<u32>,
    step: Vec<u32>,
    ordinal: Vec<u32>,
    class: Vec<&'static str>,
    operation: Vec<Option<&'static str>>,
    start_ns: Vec<i64>,
    dur_ns: Vec<u64>,
    service_ns: Vec<u64>,
    wait_ns: Vec<u64>,
    common_ns: Vec<Option<u64>>,
    last: Vec<Option<bool>>,
    wait_method: Vec<&'static str>,
    kernel: Kernels,
}

/// One row a collective and rank, of the chosen steps.
pub(super) fn collectives(session: &Session, chosen: &Chosen) -> TypedTable {
    let mut rows = Calls::default();
    let groups = chosen.collectives.as_ref().map_or(&[][..], |c| &c.groups);
    for (at, group) in (0..).zip(groups) {
        rows.add(session, at, group, &chosen_steps(session, group));
    }
    TypedTable::default()
        .with("group", rows.group)
        .with("gpu", rows.gpu)
        .with("step", rows.step)
        .with("ordinal", rows.ordinal)
        .with("class", rows.class)
        .with("operation_by_name", rows.operation)
        .with("start_ns", rows.start_ns)
        .with("dur_ns", rows.dur_ns)
        .with("service_ns", rows.service_ns)
        .with("wait_ns", rows.wait_ns)
        .with("common_ns", rows.common_ns)
        .with("came_last", rows.last)
        .with("wait_method", rows.wait_method)
        .with("kernel", rows.kernel.values())
}

impl Calls {
    fn add(&mut self, session: &Session, at: u32, group: &CommGroup, wanted: &BTreeSet<u32>) {
        use linktax_trace::WaitMethod;
        let paired = group.method == WaitMethod::Paired;
        let method = if paired { "paired" } else { "lower_bound" };
        for (index, call) in group.collectives.iter().enumerate() {
            if !wanted.contains(&call.step) {
                continue;
            }
            for (rank, (part, lane)) in (0..).zip(group.parts(index).iter().zip(&group.lanes)) {
                self.group.push(at);
                self.gpu.push(*lane as u32);
                self.step.push(call.step);
                self.ordinal.push(call.ordinal);
                self.class.push(call.class.as_str());
                self.operation.push(call.operation.map(|op| op.as_str()));
                self.start_ns.push(part.start);
                self.dur_ns.push(part.dur);
                self.service_ns.push(call.service);
                self.wait_ns.push(part.wait);
                self.common_ns.push(call.common);
                self.last.push(paired.then_some(rank == call.last));
                self.wait_method.push(method);
                self.kernel.push(&session.capture.trace, Some(call.name));
            }
        }
    }
}

/// One row a GPU, step kind and kernel name, and a row a class of operations that have no kernel name.
pub(super) fn kernel_classes(session: &Session, chosen: &Chosen) -> TypedTable {
    let (mut gpu, mut kind, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    let (mut class, mut count, mut sum_ns) = (Vec::<Class>::new(), Vec::new(), Vec::new());
    let mut kernel = Kernels::default();
    let capture = &session.capture;
    for lane in &chosen.lanes {
        for step_kind in StepKind::ALL {
            let own = lane.rows.iter().map(|row| &row.step);
            let own: Vec<&Step> = own.filter(|step| step.kind == step_kind).collect();
            for (name, of, total) in totals(session, lane.lane, &own) {
                gpu.push(lane.lane as u32);
                kind.push(step_kind.as_str());
                steps.push(own.len() as u32);
                class.push(of);
                count.push(total.0);
                sum_ns.push(total.1);
                kernel.push(&capture.trace, name);
            }
        }
    }
    TypedTable::default()
        .with("gpu", gpu)
        .with("kind", kind)
        .with("steps", steps)
        .with(
            "group",
            class.iter().map(|c| c.group().as_str()).collect::<Vec<_>>(),
        )
        .with(
            "class",
            class.iter().map(|c| c.as_str()).collect::<Vec<_>>(),
        )
        .with("count", count)
        .with("sum_ns", sum_ns)
        .with("kernel", kernel.values())
}

/// Count and time of each kernel name, then of each class beyond them (copies, fills, opaque graphs).
fn totals(
    session: &Session,
    lane: usize,
    steps: &[&Step],
) -> Vec<(Option<NameId>, Class, (u64, u64))> {
    let capture = &session.capture;
    let mut totals = Totals::default();
    if !steps.is_empty() {
        totals.add(&capture.trace.lanes[lane], &capture.classes, steps);
    }
    let mut out = Vec::new();
    for (name, total) in totals.top() {
        let class = capture.classes.name(name);
        out.push((Some(name), class, (total.count, total.ns)));
        if let Some(rest) = totals.by_class.get_mut(&class) {
            rest.count -= total.count;
            rest.ns -= total.ns;
        }
    }
    let nameless = totals.by_class.into_iter();
    out.extend(
        nameless
            .filter(|(_, total)| total.count > 0 || total.ns > 0)
            .map(|(class, total)| (None, class, (total.count, total.ns))),
    );
    out
}

#[cfg(test)]
mod tests;
