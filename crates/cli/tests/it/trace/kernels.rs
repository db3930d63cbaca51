//! `linktax trace kernels` against NVIDIA's own tool, and what it says about names.

use std::collections::BTreeMap;

use super::{DECODE_C16, MIXED, NGRAM, captures, items, json, ns, trace, with_capture};
use crate::rig::Rig;

/// Count and sum by name, from a report of `nsys stats --report cuda_gpu_kern_sum`.
fn nsys_stats(name: &str) -> BTreeMap<String, (u64, u64)> {
    let path = captures().join(format!("{name}.nsys-stats-kern-sum.csv"));
    let text = std::fs::read_to_string(path).unwrap();
    let row = |line: &str| {
        let fields: Vec<&str> = line.splitn(9, ',').collect();
        let name = fields[8].trim_matches('"').replace("\"\"", "\"");
        (
            name,
            (fields[2].parse().unwrap(), fields[1].parse().unwrap()),
        )
    };
    let lines = || text.lines().filter(|line| !line.is_empty());
    let rows: BTreeMap<_, _> = lines().skip(1).map(row).collect();
    assert_eq!(rows.len(), lines().count() - 1, "a name stands twice");
    rows
}

#[test]
fn counts_and_sums_are_exactly_those_of_nsys_stats() {
    for name in [DECODE_C16, MIXED] {
        let (rig, file) = with_capture(name);
        let kernels = json(&rig, &["kernels", &file]);
        let mut ours: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for kernel in items(&kernels) {
            let full = kernel["name"].as_str().unwrap().to_owned();
            let entry = ours.entry(full).or_default();
            entry.0 += ns(&kernel["count"]);
            entry.1 += ns(&kernel["total_ns"]);
        }
        assert_eq!(ours, nsys_stats(name), "{name}");
    }
}

#[test]
fn explain_works_without_a_file() {
    let rig = Rig::bare();
    let name =
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)";
    let ran = trace(&rig, &["kernels", "--explain", name]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    for said in [
        "class       comm.nccl (group comm)",
        "decided by  built-in rule",
        "operation   all-reduce (per name, not certain)",
    ] {
        assert!(ran.out.contains(said), "{}", ran.out);
    }
    let why = json(&rig, &["kernels", "--explain", "no_such_thing_at_all"]);
    assert_eq!(why["class"], "unknown");
}

#[test]
fn explain_with_a_file_finds_the_names_that_contain_it() {
    let (rig, file) = with_capture(NGRAM);
    let ran = trace(&rig, &["kernels", &file, "--explain", "rejection_greedy"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(
        ran.out.contains("rejection_greedy_sample_kernel"),
        "{}",
        ran.out
    );
    assert!(ran.out.contains("here        60 times"), "{}", ran.out);
    let ran = trace(
        &rig,
        &["kernels", &file, "--explain", "nvjet_that_is_not_there"],
    );
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.contains("no kernel name in the capture contains"),
        "{}",
        ran.err
    );
    assert!(ran.out.contains("class       linear"), "{}", ran.out);
}

#[test]
fn the_stub_of_unknown_names_is_a_rule_file_that_settles_them() {
    let rig = super::made::Made::with_names(&["void lab::new_kernel<(int)4>(float *)", "nvjet_x"]);
    let file = "made.sqlite";
    let ran = trace(&rig, &["split", file]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(
        ran.out.contains("! unknown_kernels: 50.0 % of kernel time"),
        "{}",
        ran.out
    );
    let strict = trace(&rig, &["split", file, "--strict"]);
    assert_eq!(strict.code, Some(1));
    assert!(
        strict.err.contains("error: --strict: 50.0 %"),
        "{}",
        strict.err
    );

    let stub = trace(&rig, &["kernels", file, "--unknown"]);
    assert!(
        stub.out.contains(r"name = '^lab::new_kernel\b'"),
        "{}",
        stub.out
    );
    rig.write("mine.toml", &stub.out.replace("\"unknown\"", "\"act\""));
    let ran = trace(&rig, &["split", file, "--strict", "--rules", "mine.toml"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("unknown kernels: 0.0 %"), "{}", ran.out);
    let one = json(&rig, &["kernels", file, "--rules", "mine.toml"]);
    assert!(items(&one).iter().any(|k| k["class"] == "act"));
}

#[test]
fn a_rule_file_that_is_wrong_is_named_with_its_line() {
    let (rig, file) = with_capture(NGRAM);
    rig.write(
        "mine.toml",
        "[[rule]]\nclass = \"fast\"\nname = 'x'\nwhy = \"\"\n",
    );
    let ran = trace(&rig, &["kernels", &file, "--rules", "mine.toml"]);
    ran.refused(&["mine.toml:", "fast"]);
}
