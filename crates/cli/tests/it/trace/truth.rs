//! Synthetic exports, whose truth is known, through the binary.

use serde_json::Value;

use super::{items, json, near, ns, truth, with_spec};

/// Sum of a truth's class by its step.
fn class_sum(step: &Value, classes: &[&str]) -> u64 {
    classes
        .iter()
        .filter_map(|class| step["class_union_ns"][*class].as_u64())
        .sum()
}

#[test]
fn steps_are_the_truth_to_the_nanosecond() {
    for name in ["plain", "straggler", "overlap-partial", "mixed-piecewise"] {
        let (rig, file) = with_spec(name);
        let truth = truth(&rig, &file);
        let steps = json(&rig, &["steps", &file]);
        let lanes = items(&truth["lanes"]);
        for (gpu, lane) in lanes.iter().enumerate() {
            let own: Vec<&Value> = items(&steps).iter().filter(|s| s["gpu"] == gpu).collect();
            assert_eq!(own.len(), items(&lane["steps"]).len(), "{name}");
            for (found, truth) in own.into_iter().zip(items(&lane["steps"])) {
                let place = format!("{name}, GPU {gpu}, step {}", truth["index"]);
                let length =
                    truth["end_ns"].as_i64().unwrap() - truth["start_ns"].as_i64().unwrap();
                assert_eq!(found["start_ns"], truth["start_ns"], "{place}");
                assert_eq!(ns(&found["dur_ns"]) as i64, length, "{place}");
                assert_eq!(found["kind"], truth["kind"], "{place}");
                assert_eq!(found["idle_ns"], truth["idle_ns"], "{place}");
                assert_eq!(
                    found["comm_exposed_ns"], truth["exposed_comm_ns"],
                    "{place}"
                );
                let batch = (
                    &found["batch"]["generation_requests"],
                    &found["batch"]["generation_tokens"],
                );
                let expected = (
                    &truth["batch"]["decode_requests"],
                    &truth["batch"]["decode_tokens"],
                );
                assert_eq!(batch, expected, "{place}");
            }
        }
    }
}

#[test]
fn the_waiting_is_put_down_to_the_rank_that_came_late() {
    let (rig, file) = with_spec("straggler");
    let truth = truth(&rig, &file);
    let comm = json(&rig, &["comm", &file]);
    let ranks = items(&comm[0]["ranks"]);
    for (rank, found) in ranks.iter().enumerate() {
        let collectives = || items(&truth["collectives"]).iter();
        let wait: u64 = collectives().map(|c| ns(&c["wait_ns"][rank])).sum();
        let late = || collectives().filter(|c| c["last"] == rank);
        let caused: u64 = late().flat_map(|c| items(&c["wait_ns"])).map(ns).sum();
        assert_eq!(ns(&found["wait_ns"]), wait, "rank {rank}");
        assert_eq!(ns(&found["caused_wait_ns"]), caused, "rank {rank}");
        assert_eq!(
            ns(&found["came_last"]),
            late().count() as u64,
            "rank {rank}"
        );
    }
    // The split says the same beside its times.
    let split = json(&rig, &["split", &file]);
    for (one, rank) in items(&split).iter().zip(ranks) {
        assert_eq!(one["comm_caused_wait_ns"], rank["caused_wait_ns"]);
    }
    let service: u64 = items(&truth["collectives"])
        .iter()
        .map(|c| ns(&c["service_ns"]))
        .sum();
    assert_eq!(ns(&comm[0]["service_ns"]), service);
}

/// The profile of the NVLink-vs-PCIe study: what it published is what the binary says.
#[test]
fn the_replica_of_the_study_reads_as_the_study() {
    for (name, attention, comm, share) in [
        ("replica-c2", 8.0, 5.6, 0.11),
        ("replica-c8", 33.0, 13.1, 0.15),
    ] {
        let (rig, file) = with_spec(name);
        let split = json(
            &rig,
            &["split", &file, "--steps", "decode", "--steady", "1"],
        );
        let one = &split[0];
        let mean = |part: &str| one[part]["mean_ns"].as_f64().unwrap() / 1e6;
        near(mean("linear"), 30.0, 0.1);
        near(mean("attention"), attention, 0.1);
        near(mean("communication"), comm, 0.1);
        near(one["communication"]["share"].as_f64().unwrap(), share, 0.02);
        assert_eq!(one["comm_overlapped"]["sum_ns"], 0, "{name}");
        let comm = json(&rig, &["comm", &file]);
        for counts in items(&comm[0]["counts_per_step"]) {
            assert_eq!(
                (&counts["all_reduces"], &counts["all_gathers"]),
                (&138.into(), &7.into())
            );
        }
        let answer = json(&rig, &["whatif", &file, "--comm", "inf"]);
        let best = &answer["groups"][0]["replay"]["projections"][0];
        let speedup = best["speedup"].as_f64().unwrap();
        assert!(speedup < 1.18, "{name}: {speedup}");
    }
}

#[test]
fn the_truth_has_the_sums_of_the_classes() {
    let (rig, file) = with_spec("plain");
    let truth = truth(&rig, &file);
    let steps = json(&rig, &["steps", &file]);
    let first = &truth["lanes"][0]["steps"][0];
    let linear = class_sum(first, &["linear", "linear.splitk_reduce"]);
    assert_eq!(ns(&steps[0]["linear_ns"]), linear);
    assert_eq!(
        ns(&steps[0]["attention_ns"]),
        class_sum(first, &["attention"])
    );
}
