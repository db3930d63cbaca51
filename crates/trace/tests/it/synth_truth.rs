//! The analysis against the truth of synthetic exports, to the nanosecond.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use linktax_trace::synth::{LaneTruth, NvtxForm, Spec, StepTruth, Truth};
use linktax_trace::{
    Buckets, Class, Classes, Collectives, Group, LaneSplit, LaneSteps, ReadOptions, Rules,
    StepKind, StepMethod, StepOptions, StepSplit, Trace, TraceError, find_steps, pair_collectives,
    read, split,
};
use proptest::prelude::*;

use crate::synth::{Synthetic, named, spec};

/// Specifications whose steps are marked and whose ranks all have rows.
const MARKED: [&str; 25] = [
    "async",
    "clock",
    "colliding",
    "comm-custom-all-reduce",
    "comm-fused",
    "comm-fused-gemm",
    "comm-nccl-legacy",
    "comm-nccl-short",
    "comm-nccl-symmetric",
    "experts",
    "graph-level",
    "graph-mixed",
    "hostile-file",
    "mixed-piecewise",
    "one-gpu",
    "overlap-identical",
    "overlap-nested",
    "overlap-partial",
    "pdl",
    "plain",
    "replica-c2",
    "replicas",
    "secrets",
    "straggler",
    "tp8",
];

/// Compiling the rules costs more than reading a small export.
pub(crate) static RULES: LazyLock<Rules> = LazyLock::new(Rules::embedded);

pub(crate) struct Analysis {
    pub(crate) trace: Trace,
    pub(crate) steps: Vec<LaneSteps>,
    pub(crate) collectives: Result<Collectives, TraceError>,
    pub(crate) splits: Vec<LaneSplit>,
}

pub(crate) fn analyse(path: &Path) -> Analysis {
    let trace = read(&[path.to_owned()], &ReadOptions::default()).unwrap();
    let classes = Classes::of(&trace.names, &RULES);
    let steps = find_steps(&trace, &classes, &StepOptions::default()).unwrap();
    let collectives = pair_collectives(&trace, &classes, &steps);
    let splits = steps
        .iter()
        .map(|lane| split(&trace, &classes, lane, collectives.as_ref().ok()).unwrap())
        .collect();
    Analysis {
        trace,
        steps,
        collectives,
        splits,
    }
}

impl Analysis {
    /// Position of a rank's lane.
    pub(crate) fn lane(&self, truth: &LaneTruth) -> usize {
        self.trace
            .lanes
            .iter()
            .position(|l| (l.id.global_pid, l.id.device) == (truth.global_pid, truth.device))
            .unwrap()
    }
}

fn group(class: &str) -> Group {
    Class::ALL
        .iter()
        .find(|c| c.as_str() == class)
        .unwrap_or_else(|| panic!("no class {class}"))
        .group()
}

/// The disjoint buckets that follow from which classes ran together, by the documented priority.
pub(crate) fn expected(step: &StepTruth) -> Buckets {
    let order = [
        Group::Linear,
        Group::Attention,
        Group::Ssm,
        Group::Moe,
        Group::Other,
        Group::Unknown,
        Group::Graph,
        Group::Comm,
        Group::Copy,
    ];
    let mut buckets = Buckets::default();
    for (classes, ns) in &step.together_ns {
        let groups: Vec<Group> = match classes.as_str() {
            "idle" => Vec::new(),
            some => some.split('+').map(group).collect(),
        };
        *match order.into_iter().find(|g| groups.contains(g)) {
            Some(Group::Linear) => &mut buckets.linear_ns,
            Some(Group::Attention) => &mut buckets.attention_ns,
            Some(Group::Ssm) => &mut buckets.ssm_ns,
            Some(Group::Moe) => &mut buckets.moe_ns,
            Some(Group::Other) => &mut buckets.other_ns,
            Some(Group::Unknown) => &mut buckets.unknown_ns,
            Some(Group::Graph) => &mut buckets.graph_ns,
            Some(Group::Comm) => &mut buckets.comm_ns,
            Some(Group::Copy) => &mut buckets.copy_ns,
            None => &mut buckets.idle_ns,
        } += ns;
    }
    buckets
}

/// Leaves out what the truth states elsewhere.
pub(crate) fn without_wait(buckets: &Buckets) -> Buckets {
    Buckets {
        comm_wait_ns: None,
        comm_service_ns: None,
        ..*buckets
    }
}

fn sums(step: &StepTruth) -> BTreeMap<Group, u64> {
    let mut sums = BTreeMap::new();
    for (class, ns) in &step.class_sum_ns {
        *sums.entry(group(class)).or_default() += ns;
    }
    sums
}

fn assert_step(name: &str, found: &StepSplit, truth: &StepTruth) {
    let place = format!("{name}, step {}", truth.index);
    let step = &found.step;
    assert_eq!(
        (step.start, step.end),
        (truth.start_ns, truth.end_ns),
        "{place}"
    );
    assert_eq!(step.kind.as_str(), truth.kind, "{place}");
    let batch = step.batch.unwrap_or_default();
    assert_eq!(
        (batch.context_requests, batch.generation_requests),
        (truth.batch.prefill_requests, truth.batch.decode_requests),
        "{place}"
    );
    for (found, truth) in [
        (batch.context_tokens, truth.batch.prefill_tokens),
        (batch.generation_tokens, truth.batch.decode_tokens),
    ] {
        assert!(
            found.is_none_or(|tokens| tokens == u64::from(truth)),
            "{place}"
        );
    }
    assert_eq!(without_wait(&found.buckets), expected(truth), "{place}");
    assert_eq!(found.buckets.comm_ns, truth.exposed_comm_ns, "{place}");
    assert_eq!(found.buckets.idle_ns, truth.idle_ns, "{place}");
    let sums = sums(truth);
    for group in Group::ALL {
        let wanted = sums.get(&group).copied().unwrap_or(0);
        assert_eq!(found.summed.get(group), wanted, "{place}: sum of {group}");
    }
    assert_eq!(found.unioned.get(Group::Comm), truth.comm_ns, "{place}");
    assert_eq!(found.ops, u64::from(truth.ops), "{place}");
    if truth.exposed_comm_ns == truth.comm_ns && found.buckets.comm_wait_ns.is_some() {
        assert_eq!(found.buckets.comm_wait_ns, Some(truth.wait_ns), "{place}");
        assert_eq!(
            found.buckets.comm_service_ns,
            Some(truth.service_ns),
            "{place}"
        );
    }
}

fn assert_collectives(name: &str, found: &Analysis, truth: &Truth) {
    let groups = &found.collectives.as_ref().unwrap().groups;
    let communicators = truth.lanes.iter().map(|l| l.communicator).max().unwrap() + 1;
    for communicator in 0..communicators {
        let wanted: Vec<_> = truth
            .collectives
            .iter()
            .filter(|c| c.communicator == communicator)
            .collect();
        if wanted.is_empty() {
            continue;
        }
        let ranks: Vec<usize> = truth
            .lanes
            .iter()
            .filter(|l| l.communicator == communicator)
            .map(|l| found.lane(l))
            .collect();
        let group = groups.iter().find(|g| g.lanes == ranks).unwrap();
        assert_eq!(group.collectives.len(), wanted.len(), "{name}");
        for (at, (collective, wanted)) in group.collectives.iter().zip(wanted).enumerate() {
            let place = format!("{name}, step {} collective {}", wanted.step, wanted.ordinal);
            assert_eq!(
                (collective.step, collective.ordinal),
                (wanted.step, wanted.ordinal),
                "{place}"
            );
            assert_eq!(
                found.trace.names.full(collective.name),
                wanted.name,
                "{place}"
            );
            assert_eq!(collective.service, wanted.service_ns, "{place}");
            let waits: Vec<u64> = group.parts(at).iter().map(|p| p.wait).collect();
            assert_eq!(waits, wanted.wait_ns, "{place}");
            assert!(
                wanted.last.is_none_or(|last| last == collective.last),
                "{place}"
            );
        }
    }
}

fn assert_truth(name: &str, spec: &Spec) -> (Synthetic, Analysis) {
    let made = Synthetic::new(spec);
    let found = analyse(&made.path);
    assert_eq!(found.splits.len(), made.truth.lanes.len(), "{name}");
    for lane in &made.truth.lanes {
        let split = &found.splits[found.lane(lane)];
        assert_eq!(split.steps.len(), lane.steps.len(), "{name}");
        for (found, truth) in split.steps.iter().zip(&lane.steps) {
            assert_step(name, found, truth);
        }
    }
    if found
        .collectives
        .as_ref()
        .is_ok_and(|c| !c.groups.is_empty())
        || made.truth.ranks_align
    {
        assert_collectives(name, &found, &made.truth);
    }
    (made, found)
}

#[test]
fn every_number_equals_the_truth() {
    for name in MARKED {
        let mut spec = named(name);
        spec.phase[0].steps = spec.phase[0].steps.min(20);
        let (_, found) = assert_truth(name, &spec);
        for lane in &found.steps {
            assert_eq!(lane.method, StepMethod::Nvtx, "{name}");
        }
    }
}

/// What the issue asks of the study's replica.
#[test]
fn the_replica_of_the_study() {
    for (name, concurrency, attention, comm) in [
        ("replica-c2", 2, 8_000_000, 5_600_000),
        ("replica-c8", 8, 33_000_000, 13_100_000),
    ] {
        let (_, found) = assert_truth(name, &named(name));
        for lane in &found.splits {
            assert_eq!(lane.steps.len(), 80);
            for step in &lane.steps {
                assert_eq!(step.step.kind, StepKind::Decode);
                let batch = step.step.batch.unwrap();
                assert_eq!(batch.generation_requests, concurrency);
                assert_eq!(batch.tokens_per_sequence(), Some(4.0), "1 + MTP 3");
                assert_eq!(step.buckets.linear_ns, 30_000_000);
                assert_eq!(step.buckets.attention_ns, attention);
                assert_eq!(step.buckets.comm_ns, comm);
                assert_eq!(step.comm.overlapped_ns, 0);
                let share = comm as f64 / step.step.dur() as f64;
                assert!((0.11..0.152).contains(&share), "{share}");
            }
        }
        let [group] = &found.collectives.as_ref().unwrap().groups[..] else {
            panic!("one communicator");
        };
        assert_eq!(group.collectives.len(), 80 * (138 + 7));
    }
}

#[test]
fn a_collective_that_one_rank_lacks_is_refused_with_its_place() {
    let made = Synthetic::new(&named("missing-collective"));
    assert!(!made.truth.ranks_align);
    let found = analyse(&made.path);
    let error = found.collectives.unwrap_err();
    assert!(matches!(error, TraceError::NotAlignable { .. }), "{error}");
    assert!(error.to_string().contains('3'), "{error}");
}

#[test]
fn fr_20_one_rank_of_four_gives_a_lower_bound_and_a_warning() {
    let made = Synthetic::new(&named("one-rank-traced"));
    let found = analyse(&made.path);
    assert_eq!(found.splits.len(), 1);
    let collectives = found.collectives.unwrap();
    assert!(
        collectives
            .notes
            .iter()
            .any(|n| n.code == "other_ranks_not_traced")
    );
    let expected = ReadOptions {
        expect_gpus: Some(4),
        ..ReadOptions::default()
    };
    let error = read(std::slice::from_ref(&made.path), &expected).unwrap_err();
    assert!(
        matches!(
            error,
            TraceError::MissingGpus {
                expected: 4,
                seen: 1
            }
        ),
        "{error}"
    );
}

#[test]
fn the_straggler_is_named_and_charged() {
    let spec = named("straggler");
    let made = Synthetic::new(&spec);
    let found = analyse(&made.path);
    let group = &found.collectives.as_ref().unwrap().groups[0];
    let mut caused = vec![0; 4];
    for collective in &made.truth.collectives {
        if let Some(last) = collective.last {
            caused[last as usize] += collective.wait_ns.iter().sum::<u64>();
        }
    }
    assert_eq!(group.caused_ns, caused);
    // 12 steps, a new straggler every 4, from rank 1 on.
    assert!(
        caused[0] == 0 && caused[1..].iter().all(|&ns| ns > 0),
        "{caused:?}"
    );
}

#[test]
fn peer_copies_are_communication() {
    let made = Synthetic::new(&named("comm-peer-copy"));
    let found = analyse(&made.path);
    for (lane, split) in made.truth.lanes.iter().zip(&found.splits) {
        for (truth, step) in lane.steps.iter().zip(&split.steps) {
            assert_eq!(step.buckets.comm_ns, truth.exposed_comm_ns);
            assert_eq!(step.buckets.comm_ns, truth.wait_ns + truth.service_ns);
        }
    }
}

#[test]
fn a_pause_between_bursts_is_no_step_s_time() {
    let made = Synthetic::new(&named("pause"));
    let found = analyse(&made.path);
    for (lane, split) in made.truth.lanes.iter().zip(&found.splits) {
        let idle: Vec<&StepSplit> = split
            .steps
            .iter()
            .filter(|s| s.step.kind == StepKind::Idle)
            .collect();
        assert_eq!(idle.len(), 1);
        assert!((1_990_000_000..2_001_000_000).contains(&idle[0].step.dur()));
        let wall: u64 = lane.steps.iter().map(StepTruth::length_ns).sum();
        assert_eq!(split.steps.iter().map(|s| s.step.dur()).sum::<u64>(), wall);
        let decode = split
            .steps
            .iter()
            .filter(|s| s.step.kind == StepKind::Decode);
        assert_eq!(decode.count(), 12);
    }
}

/// Without marks the boundary may lie at another operation of the step's preparation, but no step is lost and no time.
#[test]
fn steps_are_found_without_marks() {
    for (name, methods) in [
        ("drafts", &[StepMethod::GraphLaunch][..]),
        ("eager", &[StepMethod::Anchor][..]),
        ("plain", &[StepMethod::GraphLaunch][..]),
        ("replicas", &[StepMethod::GraphLaunch][..]),
    ] {
        let mut spec = named(name);
        spec.host.nvtx = NvtxForm::None;
        let made = Synthetic::new(&spec);
        let found = analyse(&made.path);
        for lane in &made.truth.lanes {
            let at = found.lane(lane);
            let method = found.steps[at].method;
            assert!(methods.contains(&method), "{name}: {method:?}");
            assert_eq!(found.steps[at].steps.len(), lane.steps.len(), "{name}");
            // Interior steps hold the same work, wherever they are cut.
            let steps = found.splits[at].steps.iter().zip(&lane.steps);
            for (step, truth) in steps.skip(1).take(lane.steps.len() - 2) {
                let expected = expected(truth);
                assert_eq!(step.buckets.linear_ns, expected.linear_ns, "{name}");
                assert_eq!(step.buckets.attention_ns, expected.attention_ns, "{name}");
                assert_eq!(step.buckets.comm_ns, expected.comm_ns, "{name}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_server_is_measured_exactly(
        seed in 0u64..1_000_000_000,
        (tensor, replicas) in (1u32..5, 1u32..3),
        (attention, ssm, mtp) in (1u32..4, 0u32..3, 0u32..3),
        moe: bool,
        overlap in prop::sample::select(vec!["none", "partial", "nested", "identical"]),
        skew in prop::sample::select(vec!["none", "fixed", "lognormal"]),
        mode in prop::sample::select(vec!["node", "piecewise", "eager"]),
        flavour in prop::sample::select(vec!["3.16.1", "3.20.3", "3.25.0", "3.28.1"]),
        (lag, pdl) in (0.0f64..1.5, 0u64..3_000),
        (jitter, shuffle) in (0.0f64..0.9, any::<bool>()),
        offset in -15_000i64..15_000,
    ) {
        let text = format!(
            "seed = {seed}\nphase = [{{ steps = 3, concurrency = 2 }}, {{ steps = 2, kind = \"mixed\", \
             prefill_tokens = 512 }}]\n[model]\nattention_layers = {attention}\nssm_layers = {ssm}\nmoe = {moe}\n\
             mtp = {mtp}\n[parallel]\ntensor = {tensor}\nreplicas = {replicas}\n[overlap]\nkind = \"{overlap}\"\n\
             pdl_ns = {pdl}\n[skew]\nkind = \"{skew}\"\ndelay_ns = 6_000\n[graph]\nmode = \"{mode}\"\n\
             [clock]\noffset_ns = [0, {offset}]\n[gaps]\njitter = {jitter:.3}\n[host]\nasync_lag = {lag:.3}\n\
             [file]\nflavour = \"{flavour}\"\nshuffle_rows = {shuffle}\nshuffle_ids = {shuffle}\n",
        );
        assert_truth(&text, &spec(&text));
    }
}
