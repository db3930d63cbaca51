//! Steps, split, collectives and replay on recorded captures.

use linktax_trace::{
    Batch, Classes, Collectives, GraphProfile, Group, LaneSplit, LaneSteps, ReadOptions, Replay,
    ReplayOptions, Rules, Scenario, StepKind, StepMethod, StepOptions, Trace, TraceError,
    WaitMethod, counts_by_step, find_steps, graph_level, pair_collectives, read, replay, sizes,
    split,
};

use crate::exports::capture;

const DECODE_C16: &str = "vllm-qwen3-4b-decode-c16";
const MIXED: &str = "vllm-qwen3-4b-mixed-prefill";
const NGRAM: &str = "vllm-qwen3-4b-ngram-c1";
const GDN: &str = "vllm-qwen3-next-gdn-decode-c16";
const TP2: &str = "vllm-qwen3-4b-tp2-two-ranks-one-gpu";
const GRAPH_LEVEL: &str = "vllm-qwen3-4b-decode-c16-graph-level";

struct Analysis {
    trace: Trace,
    classes: Classes,
    steps: Vec<LaneSteps>,
}

fn analyse_with(name: &str, options: &StepOptions, change: impl FnOnce(&mut Trace)) -> Analysis {
    let mut trace = read(&[capture(name)], &ReadOptions::default()).unwrap();
    change(&mut trace);
    let classes = Classes::of(&trace.names, &Rules::embedded());
    let steps = find_steps(&trace, &classes, options).unwrap();
    Analysis {
        trace,
        classes,
        steps,
    }
}

fn analyse(name: &str) -> Analysis {
    analyse_with(name, &StepOptions::default(), |_| {})
}

fn without_marks(name: &str) -> Analysis {
    analyse_with(name, &StepOptions::default(), |trace| trace.marks.clear())
}

impl Analysis {
    fn split(&self, lane: usize) -> LaneSplit {
        split(&self.trace, &self.classes, &self.steps[lane], None).unwrap()
    }

    fn collectives(&self) -> Collectives {
        pair_collectives(&self.trace, &self.classes, &self.steps).unwrap()
    }

    fn replay(&self, collectives: &Collectives) -> Result<Replay, TraceError> {
        let group = &collectives.groups[0];
        let options = ReplayOptions::default();
        replay(&self.trace, &self.classes, &self.steps, group, &options)
    }

    /// The method of a lane, and its steps by kind.
    fn found(&self, lane: usize) -> (StepMethod, Vec<(StepKind, usize)>) {
        let lane = &self.steps[lane];
        let count = |kind| lane.steps.iter().filter(|s| s.kind == kind).count();
        let kinds = StepKind::ALL.map(|kind| (kind, count(kind)));
        let kinds = kinds.into_iter().filter(|k| k.1 > 0).collect();
        (lane.method, kinds)
    }

    /// Mean milliseconds a step of a kind on the first lane, by bucket; the last is the step.
    fn means(&self, kind: StepKind) -> [f64; 5] {
        let (buckets, n) = self.split(0).total(|s| s.kind == kind);
        let groups = [Group::Linear, Group::Attention, Group::Ssm, Group::Moe];
        let [a, b, c, d] = groups.map(|g| buckets.get(g));
        [a, b, c, d, buckets.total()].map(|ns| ns as f64 / n as f64 / 1e6)
    }

    fn batch(&self, lane: usize, step: usize) -> Batch {
        self.steps[lane].steps[step].batch.unwrap()
    }
}

/// A number to the last digit that its source gives.
#[track_caller]
fn near(found: f64, wanted: f64, within: f64) {
    assert!((found - wanted).abs() <= within, "{found} is not {wanted}");
}

#[test]
fn decode_c16_has_sixty_steps_of_sixteen_tokens() {
    let a = analyse(DECODE_C16);
    assert_eq!(a.found(0), (StepMethod::Nvtx, vec![(StepKind::Decode, 60)]));
    assert!(a.steps[0].confidence > 0.999, "{}", a.steps[0].confidence);
    for step in 0..60 {
        let batch = a.batch(0, step);
        assert_eq!(
            (batch.tokens(), batch.tokens_per_sequence()),
            (Some(16), Some(1.0))
        );
    }
    let [linear, attention, ssm, moe, step] = a.means(StepKind::Decode);
    near(linear, 2.59, 0.01);
    near(attention, 4.78, 0.01);
    near(step, 8.2, 0.05);
    assert_eq!((ssm, moe), (0.0, 0.0));
    let (total, _) = a.split(0).total(|_| true);
    assert!(total.unknown_ns * 100 < total.total());
    // The steps are the wall time, and every launch is seen: 27 calls for 532 operations.
    let wall: u64 = a.steps[0].wall_ns();
    let (first, last) = (&a.steps[0].steps[0], &a.steps[0].steps[59]);
    assert_eq!(wall, last.end.abs_diff(first.start));
    assert_eq!(a.split(0).steps[5].launches, Some(27));
}

#[test]
fn the_gpu_runs_behind_the_marks_and_attribution_does_not_care() {
    let a = analyse(DECODE_C16);
    let mark = a
        .trace
        .marks
        .iter()
        .rfind(|m| m.text.starts_with("execute_context"))
        .unwrap();
    let last = a.steps[0].steps.last().unwrap();
    // By time the last step would belong to nothing: its GPU work starts after its mark has ended.
    assert!(last.start > mark.end.unwrap());
    assert_eq!(last.label.as_deref(), Some(mark.text.as_str()));
}

#[test]
fn mixed_steps_are_told_from_decode_steps() {
    let a = analyse(MIXED);
    let kinds = vec![(StepKind::Decode, 57), (StepKind::Mixed, 3)];
    assert_eq!(a.found(0), (StepMethod::Nvtx, kinds));
    let mixed: Vec<_> = a.steps[0]
        .steps
        .iter()
        .filter(|s| s.kind == StepKind::Mixed)
        .collect();
    let tokens: Vec<_> = mixed
        .iter()
        .map(|s| s.batch.unwrap().context_tokens)
        .collect();
    assert_eq!(tokens, [Some(8188), Some(8188), Some(8)]);
    let only = StepOptions {
        kinds: vec![StepKind::Mixed],
        ..StepOptions::default()
    };
    let only = analyse_with(MIXED, &only, |_| {});
    assert_eq!(only.found(0).1, [(StepKind::Mixed, 3)]);
    assert_eq!(only.steps[0].steps[0].index, mixed[0].index);
}

#[test]
fn speculative_steps_have_four_tokens_a_sequence() {
    let a = analyse(NGRAM);
    assert_eq!(a.found(0).1, [(StepKind::Decode, 60)]);
    assert!((0..60).all(|k| a.batch(0, k).tokens_per_sequence() == Some(4.0)));
}

#[test]
fn a_hybrid_model_has_state_space_and_experts() {
    let a = analyse(GDN);
    assert_eq!(a.found(0).1, [(StepKind::Decode, 60)]);
    let [linear, attention, ssm, moe, step] = a.means(StepKind::Decode);
    assert!([linear, attention, ssm, moe].iter().all(|&ms| ms > 0.1));
    assert!(linear + attention + ssm + moe < step);
    // Two streams inside the graph: the sum of durations is more than the busy time.
    let split = a.split(0);
    assert!(
        split
            .steps
            .iter()
            .all(|s| s.overlap_factor().unwrap() > 1.01)
    );
}

#[test]
fn colliding_ranks_are_two_lanes_with_25_all_reduces_a_step() {
    let a = analyse(TP2);
    let kinds = vec![(StepKind::Decode, 23), (StepKind::Prefill, 1)];
    for lane in 0..2 {
        assert_eq!(a.found(lane), (StepMethod::Nvtx, kinds.clone()));
        assert_eq!(a.batch(lane, 0).context_tokens, Some(4096));
    }
    let collectives = a.collectives();
    assert_eq!(collectives.groups.len(), 1);
    let group = &collectives.groups[0];
    assert_eq!(
        (group.lanes.as_slice(), group.method),
        (&[0, 1][..], WaitMethod::Paired)
    );
    let model = linktax_linkmodel::Model {
        layers: 12,
        hidden: 2560,
        dtype_bytes: 2,
        vocab: None,
        draft_depth: 0,
    };
    let counts = counts_by_step(group, Some(&model));
    assert_eq!(counts.len(), 24);
    for counts in counts {
        assert_eq!(
            (counts.all_reduces, counts.all_gathers, counts.others),
            (25, 1, 0)
        );
        assert_eq!(counts.as_expected(), Some(true));
    }
    // 4 decode tokens a step, padded to a captured size of 8.
    let sized = sizes(group, &a.steps[0], &model, &[1, 2, 8]);
    assert_eq!(sized.len(), 24 * 25);
    assert_eq!(
        (sized[0].bytes, sized[25].bytes),
        (4096 * 2560 * 2, 8 * 2560 * 2)
    );
    assert!(sized.iter().all(|s| s.bus_bytes_per_second > 0.0));
}

#[test]
fn two_ranks_that_take_turns_on_one_gpu_are_not_replayed() {
    let a = analyse(TP2);
    let collectives = a.collectives();
    let refused = a.replay(&collectives).unwrap_err();
    assert!(
        matches!(refused, TraceError::ReplayMismatch { .. }),
        "{refused}"
    );
}

#[test]
fn a_loop_of_ones_own_is_twenty_replays_and_five_eager_steps() {
    let kinds = vec![(StepKind::Decode, 20), (StepKind::Unknown, 5)];
    for name in ["torch-graph-node-nsys2023.4", "torch-graph-node-nsys2025.3"] {
        assert_eq!(analyse(name).found(0), (StepMethod::Nvtx, kinds.clone()));
        let blind = without_marks(name);
        assert_eq!(blind.found(0), (StepMethod::GraphLaunch, kinds.clone()));
        assert_eq!(blind.steps[0].wall_ns(), analyse(name).steps[0].wall_ns());
    }
}

#[test]
fn without_marks_the_next_method_finds_the_same_steps_and_says_so() {
    use StepKind::{Decode, Unknown};
    use StepMethod::{Anchor, GraphLaunch};
    for (name, method, kinds) in [
        (DECODE_C16, GraphLaunch, vec![(Decode, 60)]),
        (NGRAM, GraphLaunch, vec![(Decode, 60)]),
        (GDN, GraphLaunch, vec![(Decode, 60)]),
        (GRAPH_LEVEL, GraphLaunch, vec![(Decode, 60)]),
        // Eager steps among the replays: only the kernels that run once a step see them.
        (MIXED, Anchor, vec![(Decode, 57), (Unknown, 3)]),
        (TP2, Anchor, vec![(Decode, 23), (Unknown, 1)]),
    ] {
        let (marked, blind) = (analyse(name), without_marks(name));
        for (marked, lane) in marked.steps.iter().zip(0..) {
            assert_eq!(blind.found(lane), (method, kinds.clone()), "{name}");
            assert!(blind.steps[lane].confidence < marked.confidence);
            // The starts move by what the engine prepares, each within its step.
            for (blind, marked) in blind.steps[lane].steps.iter().zip(&marked.steps) {
                let inside = (marked.start..marked.end).contains(&blind.start);
                assert!(inside, "{name} step {}", marked.index);
                assert!(blind.batch.is_none() && blind.label.is_none());
            }
        }
    }
}

#[test]
fn a_demanded_method_that_finds_nothing_is_an_error() {
    let trace = read(&[capture("nsys-ai-h100_2gpu_1s")], &ReadOptions::default()).unwrap();
    let classes = Classes::of(&trace.names, &Rules::embedded());
    let options = |method| StepOptions {
        method: Some(method),
        ..StepOptions::default()
    };
    let refused = find_steps(&trace, &classes, &options(StepMethod::GraphLaunch)).unwrap_err();
    assert!(
        refused.to_string().contains("no steps by graph_launch"),
        "{refused}"
    );
    let whole = find_steps(&trace, &classes, &options(StepMethod::Whole)).unwrap();
    assert!(
        whole
            .iter()
            .all(|lane| lane.steps.len() == 1 && lane.confidence == 0.0)
    );
}

#[test]
fn steady_and_windowed_steps_keep_their_index() {
    let steady = StepOptions {
        steady: 3,
        ..StepOptions::default()
    };
    let a = analyse_with(DECODE_C16, &steady, |_| {});
    let steps = &a.steps[0].steps;
    assert_eq!((steps.len(), steps[0].index, steps[53].index), (54, 3, 56));
    let window = StepOptions {
        from: Some(steps[10].start),
        to: Some(steps[20].start),
        ..StepOptions::default()
    };
    let a = analyse_with(DECODE_C16, &window, |_| {});
    let found: Vec<u32> = a.steps[0].steps.iter().map(|s| s.index).collect();
    assert_eq!(found, (13..23).collect::<Vec<_>>());
}

#[test]
fn fr_19_a_window_outside_the_capture_is_an_error() {
    let trace = read(&[capture(DECODE_C16)], &ReadOptions::default()).unwrap();
    let classes = Classes::of(&trace.names, &Rules::embedded());
    let options = StepOptions {
        from: Some(-10),
        to: Some(-1),
        ..StepOptions::default()
    };
    let refused = find_steps(&trace, &classes, &options).unwrap_err();
    assert!(
        matches!(refused, TraceError::WindowOutside { .. }),
        "{refused}"
    );
    assert!(
        refused.to_string().contains("is outside the capture"),
        "{refused}"
    );
}

/// Figures of the field reference for the public two-GPU captures, in milliseconds.
struct Pair {
    name: &'static str,
    pairs: usize,
    service: f64,
    common: f64,
    totals: [f64; 2],
    offset_us: f64,
    measured: f64,
    replayed: f64,
    twice: f64,
    infinite: f64,
    no_straggler: f64,
    amdahl: [f64; 2],
}

const PAIRS: [Pair; 2] = [
    Pair {
        name: "nsys-ai-mfu_2gpu_before",
        pairs: 33,
        service: 5.78,
        common: 5.74,
        totals: [17.17, 8.23],
        offset_us: 13.0,
        measured: 280.47,
        replayed: 280.29,
        twice: 277.45,
        infinite: 274.62,
        no_straggler: 273.56,
        amdahl: [263.40, 272.37],
    },
    Pair {
        name: "nsys-ai-mfu_2gpu_after",
        pairs: 31,
        service: 5.48,
        common: 5.48,
        totals: [9.99, 23.75],
        offset_us: 6.0,
        measured: 298.49,
        replayed: 298.27,
        twice: 295.59,
        infinite: 292.90,
        no_straggler: 287.10,
        amdahl: [288.61, 274.85],
    },
];

#[test]
fn two_real_gpus_pair_and_replay_as_the_reference_says() {
    for pair in PAIRS {
        let a = analyse(pair.name);
        let collectives = a.collectives();
        assert_eq!(collectives.groups.len(), 1);
        let group = &collectives.groups[0];
        assert_eq!(group.collectives.len(), pair.pairs);
        let common: u64 = group.collectives.iter().filter_map(|c| c.common).sum();
        assert!(
            group
                .collectives
                .iter()
                .all(|c| c.common > Some(0) && c.one_sided())
        );
        near(group.service_ns() as f64 / 1e6, pair.service, 0.005);
        near(common as f64 / 1e6, pair.common, 0.005);
        for (rank, total) in pair.totals.into_iter().enumerate() {
            let total_ns = group.service_ns() + group.wait_ns(rank);
            near(total_ns as f64 / 1e6, total, 0.005);
        }
        // Two ranks: what one waits the other caused.
        assert_eq!(group.caused_ns, [group.wait_ns(1), group.wait_ns(0)]);
        let clock = group.clock[1].unwrap();
        near(clock.offset_ns as f64 / 1e3, pair.offset_us, 0.5);

        let replay = a.replay(&collectives).unwrap();
        near(replay.measured_ns as f64 / 1e6, pair.measured, 0.01);
        near(replay.replayed_ns as f64 / 1e6, pair.replayed, 0.006);
        let projection = |wanted| {
            let found = replay.projections.iter().find(|p| p.scenario == wanted);
            found.unwrap()
        };
        let twice = projection(Scenario::Communication { factor: 2.0 });
        near(twice.time_ns.unwrap() / 1e6, pair.twice, 0.006);
        let infinite = projection(Scenario::Communication {
            factor: f64::INFINITY,
        });
        near(infinite.time_ns.unwrap() / 1e6, pair.infinite, 0.006);
        near(
            projection(Scenario::NoStraggler).time_ns.unwrap() / 1e6,
            pair.no_straggler,
            0.006,
        );
        let amdahl = infinite.amdahl_ns.as_ref().unwrap();
        for (found, wanted) in amdahl.iter().zip(pair.amdahl) {
            near(found / 1e6, wanted, 0.006);
        }
        // Without message sizes nobody can tell latency from bandwidth.
        let bandwidth = projection(Scenario::Bandwidth { factor: 2.0 });
        assert_eq!(bandwidth.time_ns, None);
        assert!(
            bandwidth
                .reason
                .as_ref()
                .unwrap()
                .contains("message sizes are not known")
        );
    }
}

#[test]
fn the_whole_capture_pairs_like_its_periods() {
    for pair in PAIRS {
        let mut a = analyse(pair.name);
        a.steps = (0..2)
            .filter_map(|lane| LaneSteps::whole(&a.trace, lane))
            .collect();
        let collectives = a.collectives();
        assert_eq!(collectives.groups[0].collectives.len(), pair.pairs);
        near(
            a.replay(&collectives).unwrap().replayed_ns as f64 / 1e6,
            pair.replayed,
            0.006,
        );
    }
}

#[test]
fn fr_20_one_traced_rank_gives_a_lower_bound_and_says_so() {
    let mut a = analyse(TP2);
    a.trace.lanes.truncate(1);
    a.steps.truncate(1);
    let collectives = a.collectives();
    let group = &collectives.groups[0];
    assert_eq!(
        (group.lanes.len(), group.method),
        (1, WaitMethod::LowerBound)
    );
    assert!(
        collectives.notes[0].message.contains(
            "collectives present but kernels from 1 GPU only: other ranks were not traced"
        )
    );
    let refused = a.replay(&collectives).unwrap_err();
    assert!(matches!(refused, TraceError::NoReplay { .. }), "{refused}");
    let split = split(&a.trace, &a.classes, &a.steps[0], Some(&collectives)).unwrap();
    assert!(
        split
            .steps
            .iter()
            .all(|s| s.comm.wait_ns.unwrap() < s.comm.total_ns)
    );
}

#[test]
fn a_rank_that_lacks_a_collective_is_refused_with_where() {
    let a = analyse_with(TP2, &StepOptions::default(), |trace| {
        let lane = &mut trace.lanes[1];
        let lost = (0..lane.ops.len())
            .filter(|&i| trace.names.full(lane.ops.name(i)).contains("AllReduce"))
            .nth(25 * 7 + 3)
            .unwrap();
        let ops = lane.ops.iter().enumerate().filter(|(i, _)| *i != lost);
        lane.ops = ops.map(|(_, op)| op).collect();
    });
    let refused = pair_collectives(&a.trace, &a.classes, &a.steps).unwrap_err();
    let TraceError::NotAlignable { step, ref why, .. } = refused else {
        panic!("{refused}");
    };
    assert_eq!(step, 7);
    assert!(why.contains("26 collectives there, 25 here"), "{why}");
}

#[test]
fn wait_and_service_fill_the_communication_of_each_step() {
    let a = analyse("nsys-ai-mfu_2gpu_before");
    let collectives = a.collectives();
    let group = &collectives.groups[0];
    for lane in 0..2 {
        let split = split(&a.trace, &a.classes, &a.steps[lane], Some(&collectives)).unwrap();
        let sum = |part: fn(&linktax_trace::CommTime) -> u64| {
            split.steps.iter().map(|s| part(&s.comm)).sum::<u64>()
        };
        assert_eq!(sum(|c| c.wait_ns.unwrap()), group.wait_ns(lane));
        assert_eq!(sum(|c| c.service_ns.unwrap()), group.service_ns());
    }
}

#[test]
fn the_first_and_the_last_steps_are_as_long_as_the_capture_allows() {
    for name in [DECODE_C16, MIXED, NGRAM, GDN, TP2] {
        let a = analyse(name);
        for (lane, steps) in a.trace.lanes.iter().zip(&a.steps) {
            let end = (0..lane.ops.len()).map(|i| lane.ops.end(i)).max();
            assert_eq!(steps.steps.last().map(|s| s.end), end, "{name}");
            assert_eq!(steps.steps[0].start, lane.ops.start(0), "{name}");
        }
    }
}

#[test]
fn graph_level_captures_are_refused_and_estimated_from_a_node_capture() {
    let (node, graph) = (analyse(DECODE_C16), analyse(GRAPH_LEVEL));
    let level = graph_level(&graph.trace, &graph.classes, 0).unwrap();
    assert!(level.is_unsplittable() && level.invisible_launches == 0);
    let refusal = level.refusal().unwrap();
    assert!(refusal.contains("96.6 % of GPU busy time (470 of 487 ms) is inside opaque graphs"));
    let clear = graph_level(&node.trace, &node.classes, 0).unwrap();
    assert_eq!((clear.refusal(), clear.opaque_ns), (None, 0));

    let opaque = graph.split(0);
    let profile = GraphProfile::of(&node.trace, &node.classes, &node.steps[0]).unwrap();
    let estimate = profile.apply(&opaque);
    assert_eq!((estimate.steps.len(), estimate.estimated), (60, true));
    let sum = |part: fn(&linktax_trace::Buckets) -> u64| {
        estimate.steps.iter().map(|s| part(&s.buckets)).sum::<u64>() as f64 / 60e6
    };
    near(sum(|b| b.linear_ns), 2.59, 0.02);
    near(sum(|b| b.attention_ns), 4.78, 0.02);
    for (estimated, measured) in estimate.steps.iter().zip(&opaque.steps) {
        assert_eq!(estimated.buckets.total(), measured.step.dur());
        assert_eq!(estimated.buckets.graph_ns, 0);
    }
    near(estimate.probe_effect.unwrap(), 1.0, 0.02);
    // The other way round there are no shares to take.
    let none = GraphProfile::of(&graph.trace, &graph.classes, &graph.steps[0]);
    assert!(matches!(none, Err(TraceError::NoGraphNodes { lane: 0 })));
}

#[test]
fn replays_that_left_no_rows_are_found_by_their_launches() {
    let a = analyse("torch-graph-level-nsys2023.4");
    let level = graph_level(&a.trace, &a.classes, 0).unwrap();
    assert_eq!((level.graph_launches, level.invisible_launches), (20, 20));
    assert!(level.refusal().unwrap().contains("left no GPU row"));
    assert_eq!(a.found(0), (StepMethod::Nvtx, vec![(StepKind::Unknown, 5)]));
    assert!(a.steps[0].confidence < 0.25);
    let note = &a.steps[0].notes[0].message;
    assert!(note.contains("20 of 25 marked steps"), "{note}");
}
