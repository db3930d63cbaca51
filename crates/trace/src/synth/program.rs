//! What a step does, before it has times on a lane: passes, launches and durations.

mod durations;

use rand_chacha::ChaCha8Rng;

use super::catalog::Role;
use super::spec::{Bucket, CommKind, GraphMode, PhaseKind, PhaseSpec, Spec};

/// One operation of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A kernel of one rank.
    Kernel { role: Role, dur: u64 },
    /// An operation in which all ranks of the communicator meet; `dur` is its service time.
    Collective { role: Role, dur: u64 },
    /// A copy; `kind` as in the export.
    Copy { kind: u8, bytes: u64, dur: u64 },
}

impl Item {
    fn bucket(&self) -> Bucket {
        match self {
            Item::Kernel { role, .. } | Item::Collective { role, .. } => role.bucket(),
            Item::Copy { .. } => Bucket::Copy,
        }
    }

    fn weight(&self) -> u64 {
        match self {
            Item::Kernel { role, .. } => role.weight(),
            Item::Collective { .. } | Item::Copy { .. } => 1,
        }
    }

    fn set_dur(&mut self, ns: u64) {
        match self {
            Item::Kernel { dur, .. } | Item::Collective { dur, .. } | Item::Copy { dur, .. } => {
                *dur = ns;
            }
        }
    }

    fn default_ns(&self) -> u64 {
        match self {
            Item::Kernel { role, .. } | Item::Collective { role, .. } => role.default_ns(),
            Item::Copy { .. } => 1_200,
        }
    }
}

/// How a run of operations was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Each on its own.
    Eager,
    /// As one replay of this graph, every node recorded.
    Nodes(u32),
    /// As one replay of this graph, one row for all of it.
    Opaque(u32),
    /// As one replay of this graph that left nothing.
    Invisible(u32),
}

/// Operations that were launched alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// How.
    pub(crate) how: How,
    /// Launched inside the range that marks the step.
    pub(crate) marked: bool,
    /// What, in order.
    pub(crate) items: Vec<Item>,
}

/// The number of sequences and tokens of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) prefill_requests: u32,
    pub(crate) prefill_tokens: u32,
    pub(crate) decode_requests: u32,
    pub(crate) decode_tokens: u32,
}

/// One step of every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepProgram {
    /// What it does.
    pub(crate) kind: PhaseKind,
    /// For how many.
    pub(crate) load: Load,
    /// Its operations.
    pub(crate) segments: Vec<Segment>,
    /// Nothing runs for this long before the step.
    pub(crate) pause_before_ns: u64,
}

/// The target model's graph; pieces count up from it.
const TARGET_GRAPH: u32 = 1_228;
/// The draft model's graph.
const DRAFT_GRAPH: u32 = 1_000;

/// All steps of a specification.
pub(crate) fn steps(spec: &Spec, rng: &mut ChaCha8Rng) -> Result<Vec<StepProgram>, String> {
    let mut steps = Vec::new();
    let mut pause_before_ns = 0;
    for (index, phase) in spec.phase.iter().enumerate() {
        let mode = phase.graph.unwrap_or(spec.graph.mode);
        let template = passes(spec, mode);
        for _ in 0..phase.steps {
            let mut segments = template.clone();
            durations::set_durations(&mut segments, phase, spec.gaps.jitter, rng)
                .map_err(|what| format!("phase {}: {what}", index + 1))?;
            steps.push(StepProgram {
                kind: phase.kind,
                load: load(spec, phase),
                segments,
                pause_before_ns: std::mem::take(&mut pause_before_ns),
            });
        }
        pause_before_ns = phase.pause_after_ns;
    }
    Ok(steps)
}

fn load(spec: &Spec, phase: &PhaseSpec) -> Load {
    let decodes = match phase.kind {
        PhaseKind::Decode | PhaseKind::Mixed => phase.concurrency,
        PhaseKind::Prefill => 0,
    };
    let prefills = match phase.kind {
        PhaseKind::Decode => 0,
        PhaseKind::Mixed | PhaseKind::Prefill => phase.prefill_requests,
    };
    Load {
        prefill_requests: prefills,
        prefill_tokens: phase.prefill_tokens,
        decode_requests: decodes,
        decode_tokens: decodes * (1 + spec.model.mtp),
    }
}

/// Preparation, the target pass, sampling and the draft passes of a step, still without durations.
fn passes(spec: &Spec, mode: GraphMode) -> Vec<Segment> {
    let mut all = vec![eager(true, prepare())];
    all.extend(launched(target(spec), mode, TARGET_GRAPH));
    all.push(eager(false, sample(spec)));
    for _ in 0..spec.model.mtp {
        let mode = match mode {
            GraphMode::MixedLevel => GraphMode::Node,
            // A draft pass has one attention layer; vLLM captures it whole or not at all.
            GraphMode::Piecewise => GraphMode::Eager,
            other => other,
        };
        all.extend(
            launched(draft(spec), mode, DRAFT_GRAPH)
                .into_iter()
                .map(|segment| Segment {
                    marked: false,
                    ..segment
                }),
        );
        all.push(eager(false, draft_tokens(spec)));
    }
    all
}

fn eager(marked: bool, items: Vec<Item>) -> Segment {
    Segment {
        how: How::Eager,
        marked,
        items,
    }
}

/// A pass as the graph mode launches it.
fn launched(items: Vec<Item>, mode: GraphMode, graph: u32) -> Vec<Segment> {
    let how = match mode {
        GraphMode::Eager => How::Eager,
        GraphMode::Node => How::Nodes(graph),
        GraphMode::Graph | GraphMode::MixedLevel => How::Opaque(graph),
        GraphMode::GraphNoTable => How::Invisible(graph),
        GraphMode::Piecewise => return pieces(items, graph),
    };
    vec![Segment {
        how,
        marked: true,
        items,
    }]
}

/// One graph between two attentions, the attentions on their own.
fn pieces(items: Vec<Item>, graph: u32) -> Vec<Segment> {
    let attends = |item: &Item| item.bucket() == Bucket::Attention;
    let mut number = 0;
    items
        .chunk_by(|a, b| attends(a) == attends(b))
        .map(|run| {
            let alone = run.first().is_some_and(attends);
            number += 1;
            Segment {
                how: if alone {
                    How::Eager
                } else {
                    How::Nodes(graph + number)
                },
                marked: true,
                items: run.to_vec(),
            }
        })
        .collect()
}

fn kernel(role: Role) -> Item {
    Item::Kernel { role, dur: 0 }
}

fn prepare() -> Vec<Item> {
    vec![
        Item::Copy {
            kind: 1,
            bytes: 4_096,
            dur: 0,
        },
        kernel(Role::PrepPositions),
        kernel(Role::PrepTokens),
        kernel(Role::PrepSlots),
    ]
}

/// A collective, or nothing on one rank.
fn meet(spec: &Spec, role: Role) -> Option<Item> {
    (spec.parallel.tensor > 1).then_some(Item::Collective { role, dur: 0 })
}

fn target(spec: &Spec) -> Vec<Item> {
    let (attention, layers) = (
        u64::from(spec.model.attention_layers),
        u64::from(spec.model.layers()),
    );
    let mut items = vec![kernel(Role::Embed)];
    items.extend(meet(spec, Role::AllReduce));
    for layer in 0..layers {
        // Spreads the attention layers evenly; they end their group, as in Qwen3-Next.
        let attends = (layer + 1) * attention / layers > layer * attention / layers;
        mixer(spec, attends, &mut items);
        feed_forward(spec, &mut items);
    }
    items.push(kernel(Role::Norm));
    items
}

fn mixer(spec: &Spec, attends: bool, items: &mut Vec<Item>) {
    items.extend([kernel(Role::Norm), kernel(Role::QkvProj)]);
    if attends {
        items.extend(
            [
                Role::Rope,
                Role::KvWrite,
                Role::Attention,
                Role::AttentionCombine,
            ]
            .map(kernel),
        );
    } else {
        items.extend([Role::SsmConv, Role::SsmDelta].map(kernel));
    }
    items.extend([kernel(Role::OutProj), kernel(Role::SplitK)]);
    items.extend(meet(spec, Role::AllReduce));
}

fn feed_forward(spec: &Spec, items: &mut Vec<Item>) {
    items.push(kernel(Role::Norm));
    if !spec.model.moe {
        items.extend([Role::GateUp, Role::Act, Role::Down].map(kernel));
        items.extend(meet(spec, Role::AllReduce));
        return;
    }
    let spread = spec.parallel.comm == CommKind::ExpertParallel;
    items.extend([Role::Router, Role::TopK].map(kernel));
    if spread {
        items.extend(meet(spec, Role::Dispatch));
    }
    items.extend([Role::Experts, Role::Act, Role::Experts, Role::ExpertSum].map(kernel));
    items.extend(meet(
        spec,
        if spread {
            Role::Combine
        } else {
            Role::AllReduce
        },
    ));
}

fn sample(spec: &Spec) -> Vec<Item> {
    let mut items = vec![kernel(Role::LmHead)];
    items.extend(meet(spec, Role::AllGather));
    items.extend([kernel(Role::Sample), kernel(Role::PostUpdate)]);
    items.push(Item::Copy {
        kind: 2,
        bytes: 256,
        dur: 0,
    });
    items
}

/// Embedding (all-reduce), input projection (all-gather), one layer (two all-reduces): 3 and 1 a pass, and the
/// all-gather of its logits.
fn draft(spec: &Spec) -> Vec<Item> {
    let mut items = vec![kernel(Role::Embed)];
    items.extend(meet(spec, Role::AllReduce));
    items.extend([kernel(Role::Norm), kernel(Role::OutProj)]);
    items.extend(meet(spec, Role::AllGather));
    mixer(spec, spec.model.attention_layers > 0, &mut items);
    feed_forward(spec, &mut items);
    items
}

fn draft_tokens(spec: &Spec) -> Vec<Item> {
    let mut items = vec![kernel(Role::LmHead)];
    items.extend(meet(spec, Role::AllGather));
    items.extend([kernel(Role::ArgMax), kernel(Role::DraftTokens)]);
    items
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    #[test]
    fn collectives_follow_the_count_of_the_field() {
        let text =
            "phase = [{ steps = 1 }]\n[model]\nattention_layers = 16\nssm_layers = 48\nmtp = 3\n";
        let spec: Spec = toml::from_str(text).unwrap();
        let steps = steps(&spec, &mut ChaCha8Rng::seed_from_u64(0)).unwrap();
        let count = |wanted: Role| {
            steps[0]
                .segments
                .iter()
                .flat_map(|s| &s.items)
                .filter(|i| matches!(i, Item::Collective { role, .. } if *role == wanted))
                .count()
        };
        // 2 L + 1 + K (2 + 1) and 1 + 2 K.
        assert_eq!((count(Role::AllReduce), count(Role::AllGather)), (138, 7));
    }
}
