//! The numbers of one group of ranks, over the chosen steps.

use std::collections::BTreeMap;

use linktax_linkmodel::{Collective as Traffic, Model};
use linktax_records::Note;
use linktax_trace::{
    Class, ClockOffset, CollectiveOp, CommGroup, StepCounts, WaitMethod, collective_of,
    counts_by_step, sizes,
};

use super::super::args::ModelArgs;
use super::super::heading::counted;
use super::super::session::Session;
use super::super::stats::Stats;
use super::chosen_steps;

/// Figures of one group.
pub(super) struct Figures<'a> {
    pub(super) group: &'a CommGroup,
    /// Positions of its collectives in the chosen steps.
    pub(super) chosen: Vec<usize>,
    /// Chosen steps that have collectives.
    pub(super) steps: usize,
    pub(super) by_step: Vec<StepCounts>,
    /// What a step holds, and how many do; the commonest first.
    pub(super) counts: Vec<(String, usize)>,
    pub(super) operations: Vec<Operation>,
    pub(super) ranks: Vec<Rank>,
    /// Ranks by `--tp`.
    asked: Option<u32>,
}

/// Collectives of one kernel name and size.
pub(super) struct Operation {
    /// Kernel name.
    pub(super) name: String,
    /// The operation as the name says, with how sure that is.
    pub(super) what: String,
    pub(super) operation: Option<CollectiveOp>,
    pub(super) certain: bool,
    pub(super) class: Class,
    /// Service times.
    pub(super) service: Vec<u64>,
    /// Waits of all ranks, summed.
    pub(super) wait_ns: u64,
    /// Message bytes, where the model and the step's tokens tell.
    pub(super) bytes: Option<u64>,
    /// Bus bandwidth on the median service time, bytes a second.
    pub(super) bus: Option<f64>,
}

/// One rank.
pub(super) struct Rank {
    pub(super) lane: usize,
    pub(super) service_ns: u64,
    pub(super) wait_ns: u64,
    /// Waiting of the others where it came last.
    pub(super) caused_ns: u64,
    pub(super) last: usize,
    pub(super) clock: Option<ClockOffset>,
}

impl<'a> Figures<'a> {
    pub(super) fn of(
        session: &Session,
        group: &'a CommGroup,
        model: Option<&Model>,
        args: &ModelArgs,
    ) -> Self {
        let wanted = chosen_steps(session, group);
        let each = group.collectives.iter().enumerate();
        let chosen: Vec<usize> = each
            .filter(|(_, c)| wanted.contains(&c.step))
            .map(|(at, _)| at)
            .collect();
        let mut by_step = counts_by_step(group, model);
        by_step.retain(|counts| wanted.contains(&counts.step));
        let sized = bytes(session, group, model, args);
        Figures {
            steps: by_step.len(),
            counts: counts(&by_step),
            operations: operations(session, group, &chosen, &sized, args),
            ranks: ranks(group, &chosen),
            chosen,
            by_step,
            group,
            asked: args.tp,
        }
    }

    pub(super) fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        let odd: Vec<u32> = self
            .by_step
            .iter()
            .filter(|counts| counts.as_expected() == Some(false))
            .map(|counts| counts.step)
            .collect();
        if let (Some(first), Some(expected)) = (
            odd.first(),
            self.by_step.first().and_then(|c| c.expected_all_reduces),
        ) {
            notes.push(Note::new(
                "unexpected_collectives",
                format!(
                    "{} of {} steps have not the {expected} all-reduces that the model's shape gives (2 x layers + 1 + 3 x draft passes), the first is step {first}",
                    odd.len(),
                    self.by_step.len()
                ),
            ));
        }
        let traced = self.group.lanes.len();
        if let Some(asked) = self.asked.filter(|&asked| asked as usize != traced) {
            notes.push(Note::new(
                "other_tp",
                format!("--tp {asked}, but these collectives are of {traced} traced rank(s)"),
            ));
        }
        notes
    }
}

/// Bytes by position of the collective.
fn bytes(
    session: &Session,
    group: &CommGroup,
    model: Option<&Model>,
    args: &ModelArgs,
) -> BTreeMap<usize, u64> {
    let first = group.lanes.first();
    let steps = session.steps.iter().find(|s| Some(&s.lane) == first);
    let (Some(model), Some(steps)) = (model, steps) else {
        return BTreeMap::new();
    };
    let sized = sizes(group, steps, model, &args.padded());
    sized.into_iter().map(|s| (s.collective, s.bytes)).collect()
}

fn counts(by_step: &[StepCounts]) -> Vec<(String, usize)> {
    let mut same: BTreeMap<String, usize> = BTreeMap::new();
    for counts in by_step {
        let part = |n: u32, words: (&str, &str), expected: Option<u32>| {
            let expected = expected.map_or_else(String::new, |e| format!(" (expected {e})"));
            let shown = n > 0 || !expected.is_empty();
            shown.then(|| format!("{}{expected}", counted(n as usize, words.0, words.1)))
        };
        let parts = [
            part(
                counts.all_reduces,
                ("all-reduce", "all-reduces"),
                counts.expected_all_reduces,
            ),
            part(
                counts.all_gathers,
                ("all-gather", "all-gathers"),
                counts.expected_all_gathers,
            ),
            part(counts.others, ("other", "others"), None),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        *same.entry(parts.join(", ")).or_default() += 1;
    }
    let mut counts: Vec<_> = same.into_iter().collect();
    counts.sort_by_key(|c| std::cmp::Reverse(c.1));
    counts
}

fn operations(
    session: &Session,
    group: &CommGroup,
    chosen: &[usize],
    bytes: &BTreeMap<usize, u64>,
    args: &ModelArgs,
) -> Vec<Operation> {
    let names = &session.capture.trace.names;
    let mut by: BTreeMap<(&str, Option<u64>), Operation> = BTreeMap::new();
    for &at in chosen {
        let collective = &group.collectives[at];
        let name = names.full(collective.name);
        let bytes = bytes.get(&at).copied();
        let entry = by.entry((name, bytes)).or_insert_with(|| {
            let said = collective_of(name);
            Operation {
                name: name.to_owned(),
                what: match &said {
                    Some(said) => said.to_string(),
                    None => names.short(collective.name).to_owned(),
                },
                operation: collective.operation,
                certain: said.is_some_and(|s| s.certain),
                class: collective.class,
                service: Vec::new(),
                wait_ns: 0,
                bytes,
                bus: None,
            }
        });
        entry.service.push(collective.service);
        entry.wait_ns += group.parts(at).iter().map(|p| p.wait).sum::<u64>();
    }
    let ranks = args.tp.unwrap_or(group.lanes.len() as u32);
    let mut operations: Vec<Operation> = by.into_values().collect();
    for op in &mut operations {
        let median = Stats::of(op.service.iter().copied()).median as u64;
        // A single rank has no bus.
        let bytes = op.bytes.filter(|_| ranks > 1);
        op.bus = bytes.and_then(|b| Traffic::AllReduce.bus_bandwidth(b, median, ranks));
    }
    operations.sort_by_key(|op| std::cmp::Reverse(op.service.iter().sum::<u64>()));
    operations
}

fn ranks(group: &CommGroup, chosen: &[usize]) -> Vec<Rank> {
    let each = group.lanes.iter().enumerate().map(|(rank, &lane)| {
        let mut out = Rank {
            lane,
            service_ns: 0,
            wait_ns: 0,
            caused_ns: 0,
            last: 0,
            clock: group.clock.get(rank).copied().flatten(),
        };
        for &at in chosen {
            let collective = &group.collectives[at];
            let parts = group.parts(at);
            out.service_ns += collective.service;
            out.wait_ns += parts.get(rank).map_or(0, |part| part.wait);
            if group.method == WaitMethod::Paired && collective.last as usize == rank {
                out.last += 1;
                out.caused_ns += parts.iter().map(|part| part.wait).sum::<u64>();
            }
        }
        out
    });
    each.collect()
}
