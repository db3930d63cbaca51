//! Captures that hide what runs inside CUDA graphs.

use serde_json::Value;

use super::{
    DECODE_C16, GRAPH_LEVEL, INVISIBLE, items, json, near, ns, take_capture, trace, with_capture,
    with_spec,
};

fn refused(name: &str, words: &[&str]) -> (Value, String) {
    let (rig, file) = with_capture(name);
    let ran = trace(
        &rig,
        &[&[words[0], file.as_str()], &words[1..], &["--json"]].concat(),
    );
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    (serde_json::from_str(&ran.out).unwrap(), ran.err)
}

#[test]
fn fr_14_a_recorded_graph_level_capture_is_refused_with_the_command() {
    let (split, said) = refused(GRAPH_LEVEL, &["split"]);
    assert!(
        said.contains("96.6 % of GPU busy time (470 of 487 ms)"),
        "{said}"
    );
    assert!(
        said.contains("nsys profile --trace=cuda,nvtx --cuda-graph-trace=node"),
        "{said}"
    );
    let one = &split[0];
    assert_eq!(
        (&one["splittable"], &one["linear"]),
        (&false.into(), &Value::Null)
    );
    // Step times are as good as any.
    near(one["dur"]["mean_ns"].as_f64().unwrap() / 1e6, 8.18, 0.01);
    let sum = ["graph", "eager", "copies", "idle"].map(|part| ns(&one[part]["sum_ns"]));
    assert_eq!(sum.iter().sum::<u64>(), ns(&one["dur"]["sum_ns"]));
    assert!(one.get("top_kernels").is_none());
}

#[test]
fn graphs_without_rows_are_never_shown_as_idle() {
    let (split, said) = refused(INVISIBLE, &["split"]);
    assert!(
        said.contains("20 of 20 graph launches left no GPU row"),
        "{said}"
    );
    assert_eq!(split[0]["idle"], Value::Null);
    assert_eq!(split[0]["busy_share"], Value::Null);
    let (steps, _) = refused(INVISIBLE, &["steps"]);
    assert!(items(&steps).iter().all(|s| s["idle_ns"].is_null()));
    let (rig, file) = with_spec("graph-invisible");
    let ran = trace(&rig, &["split", &file]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("left no GPU row"), "{}", ran.out);
    assert!(!ran.out.contains("| idle |"), "{}", ran.out);
}

#[test]
fn shares_of_a_node_level_capture_are_marked_as_estimated() {
    let (rig, graph) = with_capture(GRAPH_LEVEL);
    let node = take_capture(&rig, DECODE_C16);
    let flags = ["--profile-from", node.as_str()];
    let split = json(&rig, &[&["split", graph.as_str()][..], &flags].concat());
    let one = &split[0];
    assert_eq!(
        (&one["estimated"], &one["splittable"]),
        (&true.into(), &true.into())
    );
    near(one["linear"]["mean_ns"].as_f64().unwrap() / 1e6, 2.59, 0.02);
    near(
        one["attention"]["mean_ns"].as_f64().unwrap() / 1e6,
        4.78,
        0.02,
    );
    assert_eq!(one["graph"]["sum_ns"], 0);
    let codes: Vec<_> = items(&one["warnings"]).iter().map(|w| &w["code"]).collect();
    assert!(codes.contains(&&"estimated".into()) && codes.contains(&&"probe_effect".into()));
    let steps = json(&rig, &[&["steps", graph.as_str()][..], &flags].concat());
    assert!(items(&steps).iter().all(|s| s["estimated"] == true));
    let text = trace(&rig, &[&["split", graph.as_str()][..], &flags].concat()).out;
    assert!(text.contains("mean ms a step (ESTIMATED"), "{text}");
    // A capture without graph nodes has no shares to give.
    let ran = trace(&rig, &["split", &graph, "--profile-from", &graph]);
    ran.refused(&["graph nodes", "--cuda-graph-trace=node"]);
}

#[test]
fn communication_inside_graphs_is_not_looked_for_outside() {
    let (rig, file) = with_spec("graph-level");
    for command in ["comm", "whatif"] {
        let ran = trace(&rig, &[command, &file]);
        assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{command}");
        assert!(ran.err.contains("--cuda-graph-trace=node"), "{}", ran.err);
    }
}
