use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::classify::Rules;
use crate::steps::StepKind;
use crate::{CopyKind, LaneId, NameId, Names, pair_collectives};

/// Compiled once: it takes most of a test.
static RULES: LazyLock<Rules> = LazyLock::new(Rules::embedded);

const GEMM: &str = "void cutlass::gemm_kernel<\"quoted\">(int)";
const ALL_REDUCE: &str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)";

fn op(start: i64, dur: u64, name: u32, kind: OpKind) -> Op {
    Op {
        start,
        dur,
        name: NameId(name),
        stream: 7,
        corr: 3,
        node: 0,
        bytes: if kind == OpKind::Kernel { 0 } else { 64 },
        kind,
    }
}

/// Two ranks with two steps each; rank 1 waits 40 ns in each all-reduce.
fn two_ranks() -> (Trace, Classes, Vec<LaneSteps>) {
    let mut names = Names::default();
    names.push(GEMM, "gemm_kernel");
    names.push(ALL_REDUCE, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL");
    let mut trace = Trace {
        names,
        ..Trace::default()
    };
    for (rank, wait) in [(0u32, 0u64), (1, 40)] {
        let mut ops = Vec::new();
        for step in [1_000, 2_000] {
            ops.push(op(step, 300 - wait, 0, OpKind::Kernel));
            ops.push(op(step + 300 - wait as i64, 100 + wait, 1, OpKind::Kernel));
            // Starts before the all-reduce ends.
            ops.push(op(
                step + 390,
                50,
                0,
                OpKind::Memcpy(CopyKind::DeviceToHost),
            ));
        }
        trace.lanes.push(Lane {
            id: LaneId {
                file: 0,
                global_pid: i64::from(rank + 1) << 24,
                device: rank,
            },
            pid: rank + 1,
            gpu: Default::default(),
            ops: ops.into_iter().collect(),
        });
    }
    let classes = Classes::of(&trace.names, &RULES);
    let steps = (0..2)
        .map(|lane| {
            let mut all = LaneSteps::whole(&trace, lane).unwrap();
            let whole = all.steps.remove(0);
            all.steps = [(0, 1_000, 2_000), (1, 2_000, 2_440)]
                .map(|(index, start, end)| Step {
                    index,
                    start,
                    end,
                    kind: StepKind::Decode,
                    ..whole.clone()
                })
                .to_vec();
            all
        })
        .collect();
    (trace, classes, steps)
}

fn written(first: u32, last: u32) -> Value {
    let (trace, classes, steps) = two_ranks();
    let comm = pair_collectives(&trace, &classes, &steps).unwrap();
    let options = ChromeOptions::steps(first, last);
    let chrome = ChromeTrace::new(&trace, &classes, &steps, Some(&comm), &options).unwrap();
    let mut out = Vec::new();
    chrome.write(&mut out).unwrap();
    serde_json::from_slice(&out).unwrap()
}

/// What the Trace Event format requires of a JSON object file.
fn check_format(file: &Value) {
    for event in file["traceEvents"].as_array().unwrap() {
        assert!(event["name"].is_string(), "{event}");
        assert!(event["pid"].is_u64() && event["tid"].is_u64(), "{event}");
        match event["ph"].as_str().unwrap() {
            "X" => {
                assert!(event["ts"].as_f64().unwrap().is_finite(), "{event}");
                assert!(event["dur"].as_f64().unwrap() >= 0.0, "{event}");
                assert!(
                    event["cat"].is_string() && event["args"].is_object(),
                    "{event}"
                );
            }
            "M" => {
                let args = &event["args"];
                match event["name"].as_str().unwrap() {
                    "process_name" | "thread_name" => assert!(args["name"].is_string(), "{event}"),
                    "process_sort_index" | "thread_sort_index" => {
                        assert!(args["sort_index"].is_u64(), "{event}");
                    }
                    other => panic!("{other} is no metadata event"),
                }
            }
            other => panic!("phase {other}"),
        }
    }
}

/// Slices of one track lie beside or inside each other: viewers drop those that cross.
fn check_nesting(file: &Value) {
    let mut tracks: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    for event in file["traceEvents"].as_array().unwrap() {
        if event["ph"] == "X" {
            let at = |key: &str| event[key].as_f64().unwrap();
            let track = (
                event["pid"].as_u64().unwrap(),
                event["tid"].as_u64().unwrap(),
            );
            let slice = (at("ts"), at("ts") + at("dur"));
            tracks.entry(track).or_default().push(slice);
        }
    }
    for (track, slices) in tracks {
        for (i, a) in slices.iter().enumerate() {
            for b in &slices[i + 1..] {
                let beside = a.1 <= b.0 + 1e-6 || b.1 <= a.0 + 1e-6;
                let inside = (a.0 <= b.0 && b.1 <= a.1 + 1e-6) || (b.0 <= a.0 && a.1 <= b.1 + 1e-6);
                assert!(beside || inside, "{track:?}: {a:?} crosses {b:?}");
            }
        }
    }
}

fn named<'a>(file: &'a Value, name: &str) -> Vec<&'a Value> {
    let events = file["traceEvents"].as_array().unwrap().iter();
    events.filter(|e| e["name"] == name).collect()
}

#[test]
fn the_file_has_what_the_format_requires() {
    let file = written(0, 1);
    check_format(&file);
    check_nesting(&file);
    assert_eq!(file["displayTimeUnit"], "ns");
    assert_eq!(file["otherData"]["base_ns"], 1_000);
    let names: Vec<&str> = named(&file, "thread_name")
        .iter()
        .map(|e| e["args"]["name"].as_str().unwrap())
        .collect();
    let one = ["steps", "stream 7", "stream 7 +1"];
    assert_eq!(names, [one, one].concat());
}

#[test]
fn collectives_say_service_and_wait() {
    let file = written(0, 1);
    let calls = named(&file, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL");
    let parts: Vec<_> = calls
        .iter()
        .map(|e| {
            (
                e["pid"].as_u64(),
                e["args"]["service_ns"].as_u64(),
                e["args"]["wait_ns"].as_u64(),
            )
        })
        .collect();
    let part = |pid, wait| (Some(pid), Some(100), Some(wait));
    assert_eq!(parts, [part(1, 0), part(1, 0), part(2, 40), part(2, 40)]);
    assert_eq!(calls[0]["cat"], "comm.nccl");
    assert_eq!(calls[0]["args"]["wait_method"], "paired");
    assert_eq!(calls[0]["args"]["operation_by_name"], "all_reduce");
    let waits = named(&file, "waits for other ranks");
    assert_eq!(waits.len(), 2);
    assert_eq!(
        (waits[0]["ts"].as_f64(), waits[0]["dur"].as_f64()),
        (Some(0.26), Some(0.04))
    );
}

#[test]
fn only_the_range_is_written() {
    let file = written(1, 7);
    let steps: Vec<&Value> = file["traceEvents"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|e| e["cat"] == "step")
        .collect();
    assert_eq!(steps.len(), 2);
    assert_eq!(steps[0]["name"], "step 1: decode");
    assert_eq!(named(&file, "gemm_kernel").len(), 2);
    assert_eq!(named(&file, "gemm_kernel")[0]["args"]["kernel"], GEMM);
    assert_eq!(named(&file, "gemm_kernel")[0]["args"]["step"], 1);
    assert_eq!(named(&file, "copy")[0]["args"]["bytes"], 64);
}

#[test]
fn too_much_and_nothing_are_refused_with_what_to_do() {
    let (trace, classes, steps) = two_ranks();
    let refused = |options: ChromeOptions| {
        ChromeTrace::new(&trace, &classes, &steps, None, &options)
            .unwrap_err()
            .to_string()
    };
    let small = ChromeOptions {
        max_ops: 11,
        ..ChromeOptions::steps(0, 1)
    };
    assert_eq!(
        refused(small),
        "12 operations in this range, at most 11 fit; viewers fail on more; choose fewer steps, for example --steps 10..12"
    );
    assert_eq!(
        refused(ChromeOptions::steps(5, 6)),
        "no step 5..6; steps are 0 to 1"
    );
}

proptest! {
    /// Whatever overlaps on a stream, no two slices of a track cross, and every operation is there once.
    #[test]
    fn slices_never_cross(raw in prop::collection::vec((0i64..60, 1u64..20, 0u32..2, 0u32..2), 1..40)) {
        let (mut trace, classes, _) = two_ranks();
        trace.lanes.truncate(1);
        trace.lanes[0].ops = raw
            .iter()
            .map(|&(start, dur, name, stream)| Op { stream, ..op(start, dur, name, OpKind::Kernel) })
            .collect();
        let steps = vec![LaneSteps::whole(&trace, 0).unwrap()];
        let options = ChromeOptions::steps(0, 0);
        let comm = pair_collectives(&trace, &classes, &steps).unwrap();
        let chrome = ChromeTrace::new(&trace, &classes, &steps, Some(&comm), &options).unwrap();
        let mut out = Vec::new();
        chrome.write(&mut out).unwrap();
        let file: Value = serde_json::from_slice(&out).unwrap();
        check_format(&file);
        check_nesting(&file);
        let events = file["traceEvents"].as_array().unwrap();
        let ops = events.iter().filter(|e| e["args"]["class"].is_string()).count();
        prop_assert_eq!(ops, raw.len());
        prop_assert_eq!(chrome.operations(), raw.len() as u64);
    }
}
