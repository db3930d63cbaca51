//! What scripts rely on.

use serde_json::Value;

use super::{
    AFTER, BEFORE, DECODE_C16, GDN, MIXED, NGRAM, TP2, items, json, near, ns, with_capture,
};

const PARTS: [&str; 10] = [
    "linear_ns",
    "attention_ns",
    "ssm_ns",
    "moe_ns",
    "communication_ns",
    "other_ns",
    "unknown_ns",
    "graph_ns",
    "copies_ns",
    "idle_ns",
];
const IDLE: [&str; 4] = [
    "idle_launch_bound_ns",
    "idle_between_steps_ns",
    "idle_in_graph_ns",
    "idle_other_ns",
];

#[track_caller]
fn sum(step: &Value, keys: &[&str]) -> u64 {
    keys.iter().map(|key| ns(&step[*key])).sum()
}

fn steps(name: &str) -> Value {
    let (rig, file) = with_capture(name);
    json(&rig, &["steps", &file])
}

fn split(name: &str, flags: &[&str]) -> Value {
    let (rig, file) = with_capture(name);
    json(&rig, &[&["split", file.as_str()], flags].concat())
}

#[test]
fn the_parts_of_every_step_sum_to_it_on_every_capture() {
    for name in [DECODE_C16, MIXED, NGRAM, GDN, TP2, BEFORE, AFTER] {
        let steps = steps(name);
        for step in items(&steps) {
            assert_eq!(sum(step, &PARTS), ns(&step["dur_ns"]), "{name}");
            assert_eq!(sum(step, &IDLE), ns(&step["idle_ns"]), "{name}");
            let comm = ["comm_service_ns", "comm_wait_ns"];
            assert_eq!(sum(step, &comm), ns(&step["communication_ns"]), "{name}");
            assert_eq!(step["comm_exposed_ns"], step["communication_ns"], "{name}");
            assert_eq!(step["splittable"], true);
        }
        // A step ends where the next one begins.
        for pair in items(&steps)
            .windows(2)
            .filter(|p| p[0]["gpu"] == p[1]["gpu"])
        {
            let end = pair[0]["start_ns"].as_i64().unwrap() + ns(&pair[0]["dur_ns"]) as i64;
            assert_eq!(pair[1]["start_ns"].as_i64(), Some(end), "{name}");
        }
    }
}

#[test]
fn steps_carry_their_batch_and_how_they_were_found() {
    let steps = steps(MIXED);
    let kinds = |kind: &str| items(&steps).iter().filter(|s| s["kind"] == kind).count();
    assert_eq!((kinds("decode"), kinds("mixed")), (57, 3));
    let mixed = items(&steps).iter().find(|s| s["kind"] == "mixed").unwrap();
    assert_eq!(mixed["batch"]["context_tokens"], 8188);
    assert_eq!(mixed["batch"]["generation_requests"], 4);
    assert_eq!(mixed["tokens"], 8192);
    assert_eq!(mixed["method"], "nvtx");
    assert_eq!(mixed["label"], "execute_context_1(8188)_generation_4(4)");
    let ngram = super::json::steps(NGRAM);
    assert_eq!(items(&ngram).len(), 60);
    assert!(
        items(&ngram)
            .iter()
            .all(|s| s["tokens_per_sequence"] == 4.0)
    );
}

#[test]
fn decode_c16_has_the_figures_of_the_field_reference() {
    let split = split(DECODE_C16, &["--steps", "decode"]);
    let [one] = items(&split) else {
        panic!("{split}");
    };
    let mean_ms = |part: &str| one[part]["mean_ns"].as_f64().unwrap() / 1e6;
    near(mean_ms("linear"), 2.59, 0.01);
    near(mean_ms("attention"), 4.78, 0.01);
    near(mean_ms("dur"), 8.2, 0.02);
    assert_eq!(
        (&one["kind"], &one["gpu"], &one["steps"]),
        (&"decode".into(), &0.into(), &60.into())
    );
    assert_eq!(one["batch"]["generation_requests"], 16);
    assert_eq!((&one["gpus"], &one["processes"]), (&1.into(), &1.into()));
    assert!(one["unknown_share"].as_f64().unwrap() < 0.01);
    assert_eq!(one["method"], "nvtx");
    let shares: f64 = PARTS
        .iter()
        .map(|part| one[part.trim_end_matches("_ns")]["share"].as_f64().unwrap())
        .sum();
    near(shares, 1.0, 1e-9);
    // 60 steps are too few for a p95, and that is said by leaving it out.
    assert_eq!(one["dur"]["p95_ns"], Value::Null);
    assert!(one["dur"]["max_ns"].as_u64() > one["dur"]["median_ns"].as_f64().map(|m| m as u64));
    let first = &one["top_kernels"][0];
    assert_eq!(
        (&first["class"], &first["count_per_step"]),
        (&"attention".into(), &36.0.into())
    );
    let linear: f64 = items(&one["classes"])
        .iter()
        .filter(|class| class["group"] == "linear")
        .map(|class| class["mean_ns"].as_f64().unwrap())
        .sum();
    near(linear / 1e6, mean_ms("linear"), 0.01);
}

#[test]
fn a_hybrid_model_has_state_space_and_experts_and_folds_on_request() {
    let plain = split(GDN, &[]);
    let folded = split(GDN, &["--fold-ssm"]);
    let mean = |split: &Value, part: &str| split[0][part]["mean_ns"].as_f64().unwrap();
    assert!(mean(&plain, "ssm") > 1e5 && mean(&plain, "moe") > 1e6);
    assert_eq!(mean(&folded, "ssm"), 0.0);
    assert!(mean(&folded, "attention") > mean(&plain, "attention"));
    // The one overlaps the other nowhere, or the sum would differ.
    let both = |split| mean(split, "attention") + mean(split, "ssm");
    near(both(&folded), both(&plain), 1.0);
}

#[test]
fn two_ranks_are_two_gpus_of_the_report() {
    let split = split(TP2, &[]);
    let found: Vec<(String, u64, u64)> = items(&split)
        .iter()
        .map(|s| {
            (
                s["kind"].as_str().unwrap().to_owned(),
                ns(&s["gpu"]),
                ns(&s["steps"]),
            )
        })
        .collect();
    let expected = [
        ("decode", 0, 23),
        ("prefill", 0, 1),
        ("decode", 1, 23),
        ("prefill", 1, 1),
    ];
    assert_eq!(
        found,
        expected.map(|(kind, gpu, n)| (kind.to_owned(), gpu, n))
    );
    for one in items(&split) {
        assert_eq!((&one["lanes"], &one["processes"]), (&2.into(), &2.into()));
        let codes: Vec<_> = items(&one["warnings"]).iter().map(|w| &w["code"]).collect();
        assert!(codes.contains(&&"shared_gpu".into()), "{codes:?}");
    }
    let pids: Vec<_> = items(&split).iter().map(|s| ns(&s["pid"])).collect();
    assert_ne!(pids[0], pids[2]);
}

#[test]
fn a_step_kind_without_steps_says_which_there_are() {
    let (rig, file) = with_capture(DECODE_C16);
    let ran = super::trace(&rig, &["split", &file, "--steps", "mixed"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""));
    assert!(ran.err.contains("there are: 60 decode"), "{}", ran.err);
}

#[test]
fn steady_leaves_out_both_ends() {
    let split = split(DECODE_C16, &["--steady", "5"]);
    assert_eq!(split[0]["steps"], 50);
    // The disturbed first step is gone, and with it the warning.
    assert_eq!(split[0]["warnings"], Value::Array(Vec::new()));
}
