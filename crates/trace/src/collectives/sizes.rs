//! How many collectives a step should have, how large they are, and what bandwidth that makes.

use std::collections::BTreeMap;

use linktax_linkmodel::{Collective as Traffic, Model};
use serde::Serialize;

use super::CommGroup;
use crate::classify::CollectiveOp;
use crate::steps::{LaneSteps, StepKind};

/// Collectives of one step beside what the model should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StepCounts {
    /// Index of the step.
    pub step: u32,
    /// All-reduces seen.
    pub all_reduces: u32,
    /// All-gathers seen.
    pub all_gathers: u32,
    /// Other communication kernels seen.
    pub others: u32,
    /// All-reduces of tensor parallelism by the model's shape: 2L + 1 + 3K.
    pub expected_all_reduces: Option<u32>,
    /// All-gathers by the model's shape: 1 + 2K.
    pub expected_all_gathers: Option<u32>,
}

impl StepCounts {
    /// Whether the step has as many all-reduces as the model should have; `None` without a model.
    pub fn as_expected(&self) -> Option<bool> {
        Some(self.all_reduces == self.expected_all_reduces?)
    }
}

/// Counts the collectives of each step of a group.
pub fn counts_by_step(group: &CommGroup, model: Option<&Model>) -> Vec<StepCounts> {
    let mut by_step = BTreeMap::<u32, StepCounts>::new();
    for collective in &group.collectives {
        let counts = by_step.entry(collective.step).or_insert(StepCounts {
            step: collective.step,
            all_reduces: 0,
            all_gathers: 0,
            others: 0,
            expected_all_reduces: model.map(Model::all_reduces),
            expected_all_gathers: model.map(Model::all_gathers),
        });
        *match collective.operation {
            Some(CollectiveOp::AllReduce) => &mut counts.all_reduces,
            Some(CollectiveOp::AllGather) => &mut counts.all_gathers,
            _ => &mut counts.others,
        } += 1;
    }
    by_step.into_values().collect()
}

/// Size and bandwidth of one collective.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sized {
    /// Position in [`CommGroup::collectives`].
    pub collective: usize,
    /// Message bytes.
    pub bytes: u64,
    /// Bus bandwidth on the service time, bytes a second.
    pub bus_bytes_per_second: f64,
}

/// Sizes of the all-reduces, from the model and each step's tokens; steps whose batch is not known have none.
///
/// A captured graph is padded: `padded` (ascending batch sizes in tokens, as the engine captured them) rounds the tokens
/// of decode steps up to the next one.
pub fn sizes(group: &CommGroup, steps: &LaneSteps, model: &Model, padded: &[u64]) -> Vec<Sized> {
    let tokens: BTreeMap<u32, u64> = steps
        .steps
        .iter()
        .filter_map(|step| {
            let tokens = step.batch?.tokens()?;
            let bucket = padded.iter().find(|&&b| b >= tokens);
            let in_graph = step.kind == StepKind::Decode;
            Some((step.index, *bucket.filter(|_| in_graph).unwrap_or(&tokens)))
        })
        .collect();
    let ranks = group.lanes.len() as u32;
    let sized = |(at, collective): (usize, &super::PairedCollective)| {
        if collective.operation != Some(CollectiveOp::AllReduce) {
            return None;
        }
        let bytes = model.all_reduce_bytes(*tokens.get(&collective.step)?);
        Some(Sized {
            collective: at,
            bytes,
            bus_bytes_per_second: Traffic::AllReduce.bus_bandwidth(
                bytes,
                collective.service,
                ranks,
            )?,
        })
    };
    group
        .collectives
        .iter()
        .enumerate()
        .filter_map(sized)
        .collect()
}
