//! Verdicts, replay and scrubbing on synthetic exports: what can be answered, and what must be refused.

use linktax_trace::synth::{GraphMode as Replays, Spec, TruthVerdict};
use linktax_trace::{
    Classes, GraphMode, Group, ReadOptions, ReplayOptions, Scenario, TraceError, graph_level,
    inspect, read, replay, scrub,
};

use crate::synth::{Synthetic, named};
use crate::synth_truth::{Analysis, RULES, analyse};

fn classes(found: &Analysis) -> Classes {
    Classes::of(&found.trace.names, &RULES)
}

#[test]
fn fr_14_opaque_graphs_are_busy_and_refused() {
    let made = Synthetic::new(&named("graph-level"));
    assert_eq!(made.truth.verdict, TruthVerdict::OpaqueGraphs);
    let found = analyse(&made.path);
    for (at, truth) in made.truth.lanes.iter().enumerate() {
        let level = graph_level(&found.trace, &classes(&found), at).unwrap();
        let opaque: u64 = truth.steps.iter().map(|s| s.opaque_ns).sum();
        assert_eq!(level.opaque_ns, opaque);
        assert!(level.refusal().unwrap().contains("--cuda-graph-trace=node"));
        for (step, truth) in found.splits[at].steps.iter().zip(&truth.steps) {
            assert_eq!(step.buckets.get(Group::Graph), truth.opaque_ns);
            assert_eq!(
                step.buckets.idle_ns, truth.idle_ns,
                "opaque time is not idle"
            );
        }
    }
    assert_eq!(inspect(&made.path).unwrap().graphs.mode, GraphMode::Graph);
}

#[test]
fn replays_without_rows_are_refused_not_idle() {
    let made = Synthetic::new(&named("graph-invisible"));
    assert_eq!(made.truth.verdict, TruthVerdict::InvisibleGraphs);
    let found = analyse(&made.path);
    let level = graph_level(&found.trace, &classes(&found), 0).unwrap();
    assert_eq!((level.graph_launches, level.invisible_launches), (10, 10));
    assert!(level.refusal().unwrap().starts_with("UNSPLITTABLE"));
    let doctor = inspect(&made.path).unwrap();
    assert_eq!(doctor.graphs.mode, GraphMode::Invisible);
    assert!(doctor.verdicts.iter().any(|v| v.code == "invisible_graphs"));
}

#[test]
fn doctor_tells_how_graphs_were_captured() {
    for (mode, expected) in [
        (Replays::Node, GraphMode::Node),
        (Replays::Piecewise, GraphMode::Node),
        (Replays::Eager, GraphMode::None),
        (Replays::Graph, GraphMode::Graph),
        (Replays::GraphNoTable, GraphMode::Invisible),
    ] {
        let mut spec = named("plain");
        spec.graph.mode = mode;
        let doctor = inspect(&Synthetic::new(&spec).path).unwrap();
        assert_eq!(doctor.graphs.mode, expected, "{mode:?}");
    }
    let mixed = inspect(&Synthetic::new(&named("graph-mixed")).path).unwrap();
    assert_eq!(mixed.graphs.mode, GraphMode::Mixed);
    assert!(mixed.graphs.opaque_rows > 0 && mixed.graphs.node_rows > 0);
}

#[test]
fn a_graph_without_an_end_takes_no_other_step_with_it() {
    let made = Synthetic::new(&named("graph-unfinished"));
    let found = analyse(&made.path);
    assert!(!found.trace.notes.is_empty(), "the row is told");
    for (split, truth) in found.splits.iter().zip(&made.truth.lanes) {
        let last = truth.steps.len() - 1;
        for (step, truth) in split.steps.iter().zip(&truth.steps).take(last) {
            assert_eq!(step.buckets.get(Group::Graph), truth.opaque_ns);
            assert_eq!(step.step.dur(), truth.length_ns());
        }
    }
}

fn replayed(spec: &Spec, scenarios: Vec<Scenario>) -> (Synthetic, linktax_trace::Replay) {
    let made = Synthetic::new(spec);
    let found = analyse(&made.path);
    let group = &found.collectives.as_ref().unwrap().groups[0];
    let options = ReplayOptions {
        scenarios,
        ..ReplayOptions::default()
    };
    let replay = replay(
        &found.trace,
        &classes(&found),
        &found.steps,
        group,
        &options,
    )
    .unwrap();
    (made, replay)
}

/// All ranks leave a synthetic collective at the same instant, so the replay has no error at all.
#[test]
fn replay_at_factor_one_is_the_truth() {
    let infinite = Scenario::Communication {
        factor: f64::INFINITY,
    };
    for name in ["straggler", "tp8", "plain"] {
        let (made, replay) = replayed(&named(name), vec![infinite]);
        assert_eq!(replay.replayed_ns, replay.measured_ns, "{name}");
        // The first collective only opens the replay.
        let service: u64 = made.truth.collectives[1..]
            .iter()
            .map(|c| c.service_ns)
            .sum();
        let without = replay.projections[0].time_ns.unwrap();
        assert_eq!(
            replay.measured_ns as f64 - without,
            service as f64,
            "{name}"
        );
    }
}

#[test]
fn the_replica_gains_at_most_a_sixth_from_a_faster_link() {
    let mut spec = named("replica-c8");
    spec.phase[0].steps = 12;
    let infinite = Scenario::Communication {
        factor: f64::INFINITY,
    };
    let (_, replay) = replayed(&spec, vec![infinite]);
    let speedup = replay.projections[0].speedup.unwrap();
    // NCCL is 15 % of the step: 1 / (1 - 0.15) = 1.176 at most; nobody waits, so the replay says the same.
    assert!((1.16..=1.177).contains(&speedup), "{speedup}");
}

#[test]
fn a_truncated_export_is_named_as_such() {
    let mut spec = named("plain");
    spec.file.truncate_to = Some(0.7);
    let made = Synthetic::new(&spec);
    let error = read(std::slice::from_ref(&made.path), &ReadOptions::default()).unwrap_err();
    assert!(matches!(error, TraceError::Truncated { .. }), "{error}");
}

#[test]
fn no_secret_survives_reading_or_scrubbing() {
    let spec = named("secrets");
    let made = Synthetic::new(&spec);
    let found = analyse(&made.path);
    let doctor = inspect(&made.path).unwrap();
    let outputs = [
        serde_json::to_string(&doctor).unwrap(),
        serde_json::to_string(&found.splits).unwrap(),
        format!("{:?}", found.trace),
    ];
    let scrubbed = made.path.with_extension("scrubbed.sqlite");
    scrub(&made.path, &scrubbed).unwrap();
    let bytes = std::fs::read(&scrubbed).unwrap();
    let whole = std::fs::read(&made.path).unwrap();
    for secret in &spec.secrets {
        let in_bytes = |bytes: &[u8]| {
            bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes())
        };
        assert!(in_bytes(&whole), "it was there to be found");
        assert!(!in_bytes(&bytes), "scrub left {secret}");
        assert!(
            outputs.iter().all(|text| !text.contains(secret)),
            "{secret}"
        );
    }
    let again = analyse(&scrubbed);
    assert_eq!(again.splits, found.splits, "the same analysis");
}

#[test]
fn the_source_file_is_left_as_it_was() {
    let made = Synthetic::new(&named("plain"));
    let before = std::fs::read(&made.path).unwrap();
    analyse(&made.path);
    inspect(&made.path).unwrap();
    assert!(std::fs::read(&made.path).unwrap() == before);
    let entries = std::fs::read_dir(made.path.parent().unwrap())
        .unwrap()
        .count();
    assert_eq!(entries, 1, "no index, no journal beside it");
}

#[test]
fn doctor_counts_the_ranks() {
    for name in ["replicas", "tp8", "colliding", "hostile-file"] {
        let made = Synthetic::new(&named(name));
        let doctor = inspect(&made.path).unwrap();
        assert_eq!(doctor.lanes.len(), made.truth.lanes.len(), "{name}");
        assert_eq!(doctor.kernels, made.truth.kernel_rows, "{name}");
    }
}
