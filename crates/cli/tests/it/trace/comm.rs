//! Collectives and what-if.

use serde_json::Value;

use super::{AFTER, BEFORE, TP2, items, json, near, ns, trace, with_capture, with_spec};

const CONFIG: &str = r#"{"hidden_size": 2560, "num_hidden_layers": 12, "torch_dtype": "bfloat16", "vocab_size": 151936}"#;

#[test]
fn the_two_gpu_captures_have_the_figures_of_the_field_reference() {
    for (name, pairs, service, totals) in [
        (BEFORE, 33, 5.78, [17.17, 8.23]),
        (AFTER, 31, 5.48, [9.99, 23.75]),
    ] {
        let (rig, file) = with_capture(name);
        let comm = json(&rig, &["comm", &file]);
        let [group] = items(&comm) else {
            panic!("{comm}");
        };
        assert_eq!(
            (&group["collectives"], &group["method"]),
            (&pairs.into(), &"paired".into())
        );
        near(ns(&group["service_ns"]) as f64 / 1e6, service, 0.005);
        for (rank, total) in items(&group["ranks"]).iter().zip(totals) {
            let found = ns(&rank["service_ns"]) + ns(&rank["wait_ns"]);
            near(found as f64 / 1e6, total, 0.005);
        }
        // Of two ranks each waits for the other.
        let [a, b] = items(&group["ranks"]) else {
            panic!("{group}");
        };
        assert_eq!(a["wait_ns"], b["caused_wait_ns"]);
        assert_eq!(b["wait_ns"], a["caused_wait_ns"]);
        assert_eq!(group["operations"][0]["operation_certain"], false);
    }
}

#[test]
fn the_replay_stands_beside_plain_amdahl_as_the_reference_says() {
    for (name, replayed, infinite, no_straggler, amdahl) in [
        (BEFORE, 280.29, 274.62, 273.56, [263.40, 272.37]),
        (AFTER, 298.27, 292.90, 287.10, [288.61, 274.85]),
    ] {
        let (rig, file) = with_capture(name);
        let answer = json(&rig, &["whatif", &file]);
        let replay = &answer["groups"][0]["replay"];
        near(
            replay["replayed_ns"].as_f64().unwrap() / 1e6,
            replayed,
            0.006,
        );
        assert!(answer["groups"][0]["replay_error"].as_f64().unwrap().abs() < 0.001);
        let projection = |wanted: &str| {
            let all = items(&replay["projections"]);
            all.iter().find(|p| p["name"] == wanted).unwrap()
        };
        let ms = |value: &Value| value.as_f64().unwrap() / 1e6;
        let faster = projection("communication infx");
        near(ms(&faster["time_ns"]), infinite, 0.006);
        for (found, wanted) in items(&faster["amdahl_ns"]).iter().zip(amdahl) {
            near(ms(found), wanted, 0.006);
        }
        near(
            ms(&projection("no straggler")["time_ns"]),
            no_straggler,
            0.006,
        );
        let untold = projection("bandwidth only 2x");
        assert_eq!(untold["time_ns"], Value::Null);
        assert!(untold["reason"].as_str().unwrap().contains("message sizes"));
    }
}

#[test]
fn the_fixed_cost_of_a_message_answers_what_bandwidth_alone_would_do() {
    let (rig, file) = with_capture(BEFORE);
    let flags = ["--comm", "2", "--alpha-us", "100"];
    let answer = json(&rig, &[&["whatif", file.as_str()][..], &flags].concat());
    let projections = items(&answer["groups"][0]["replay"]["projections"]);
    let time = |name: &str| {
        let found = projections.iter().find(|p| p["name"] == name);
        found.unwrap()["time_ns"].as_f64().unwrap()
    };
    assert!(time("bandwidth only 2x") > time("communication 2x"));
    assert!(projections.iter().all(|p| p["name"] != "communication 4x"));
}

#[test]
fn the_model_gives_sizes_and_expected_counts() {
    let (rig, file) = with_capture(TP2);
    rig.write("config.json", CONFIG);
    let flags = [
        "--model",
        "config.json",
        "--tp",
        "2",
        "--capture-sizes",
        "8,1,2,4",
    ];
    let comm = json(&rig, &[&["comm", file.as_str()][..], &flags].concat());
    let group = &comm[0];
    assert_eq!(items(&group["counts_per_step"]).len(), 24);
    for counts in items(&group["counts_per_step"]) {
        assert_eq!(
            (&counts["all_reduces"], &counts["expected_all_reduces"]),
            (&25.into(), &25.into())
        );
        assert_eq!(
            (&counts["all_gathers"], &counts["expected_all_gathers"]),
            (&1.into(), &1.into())
        );
    }
    let sizes: Vec<(u64, u64)> = items(&group["operations"])
        .iter()
        .filter(|op| op["operation"] == "all_reduce")
        .map(|op| (ns(&op["message_bytes"]), ns(&op["count"])))
        .collect();
    // 4 tokens in a decode step, 4096 in the prefill; bfloat16.
    assert_eq!(sizes, [(4 * 2560 * 2, 23 * 25), (4096 * 2560 * 2, 25)]);
    let text = trace(&rig, &[&["comm", file.as_str()][..], &flags].concat()).out;
    let line = "24 steps: 25 all-reduces (expected 25), 1 all-gather (expected 1) each";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("busbw GB/s"), "{text}");
}

#[test]
fn counts_that_the_model_does_not_have_are_a_warning() {
    let (rig, file) = with_capture(TP2);
    rig.write("config.json", &CONFIG.replace("12", "13"));
    let ran = trace(
        &rig,
        &["comm", &file, "--model", "config.json", "--tp", "4"],
    );
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for said in [
        "! unexpected_collectives: 24 of 24 steps have not the 27 all-reduces",
        "! other_tp: --tp 4, but these collectives are of 2 traced rank(s)",
    ] {
        assert!(ran.out.contains(said), "{}", ran.out);
    }
}

#[test]
fn a_config_that_gives_no_shape_is_named() {
    let (rig, file) = with_capture(TP2);
    for (text, said) in [
        ("{", "config.json: not a model configuration"),
        (
            "{\"torch_dtype\": \"int3\"}",
            "config.json: no num_hidden_layers",
        ),
    ] {
        rig.write("config.json", text);
        let ran = trace(&rig, &["comm", &file, "--model", "config.json"]);
        ran.refused(&[said]);
    }
    let ran = trace(&rig, &["comm", &file, "--model", "absent.json"]);
    ran.refused(&["absent.json", "No such file"]);
}

#[test]
fn two_ranks_on_one_gpu_are_not_replayed() {
    let (rig, file) = with_capture(TP2);
    let ran = trace(&rig, &["whatif", &file, "--json"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("replay refused"), "{}", ran.err);
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(answer["groups"][0]["replay"], Value::Null);
    assert!(
        answer["groups"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("replay refused")
    );
}

#[test]
fn ranks_that_cannot_be_paired_are_refused_with_where_and_still_split() {
    let (rig, file) = with_spec("missing-collective");
    for command in ["comm", "whatif"] {
        let ran = trace(&rig, &[command, &file]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{command}");
        assert!(
            ran.err
                .contains("ranks not alignable: lane 1 against lane 0, step 3"),
            "{}",
            ran.err
        );
    }
    let split = json(&rig, &["split", &file]);
    assert_eq!(split[0]["comm_wait"], Value::Null);
    assert!(ns(&split[0]["communication"]["sum_ns"]) > 0);
}

#[test]
fn a_capture_without_communication_answers_for_its_compute() {
    let (rig, file) = with_capture(super::DECODE_C16);
    let ran = trace(&rig, &["comm", &file]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.out.contains("! no_collectives"), "{}", ran.out);
    let ran = trace(&rig, &["whatif", &file, "--compute", "3"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.out.contains("attention 3x"), "{}", ran.out);
    assert!(!ran.out.contains("communication"), "{}", ran.out);
}
