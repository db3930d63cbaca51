//! What people reported about exports of Nsight Systems, with the right answer.

use serde_json::Value;

use super::made::{ALL_REDUCE, ATTENTION, DEVICE_COUNT, LINEAR, MS, Made};
use super::{items, json, ns, trace, with_spec};
use crate::rig::{Ran, Rig};

const FILE: &str = "made.sqlite";
const SPLITS: [&str; 5] = ["split", "steps", "comm", "whatif", "kernels"];

/// The file is sound and cannot answer: exit code 1, no table, the reason on stderr.
#[track_caller]
fn cannot_answer(ran: &Ran, said: &[&str]) {
    assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
    for said in said {
        assert!(ran.err.contains(said), "no {said:?} in {}", ran.err);
    }
}

#[test]
fn fr_13_an_export_without_kernels_has_no_table_of_zeros() {
    let mut no_table = Made::new().calls();
    no_table.call((1, 2), (101, 1), DEVICE_COUNT);
    let mut no_rows = Made::new().calls().kernels();
    no_rows.call((1, 2), (101, 1), DEVICE_COUNT);
    for rig in [no_table.write(), no_rows.write()] {
        for command in SPLITS {
            let ran = trace(&rig, &[command, FILE]);
            let hints = [
                "--trace=cuda,nvtx",
                "profiler range",
                "worker processes were traced",
            ];
            cannot_answer(&ran, &["made.sqlite: no GPU kernel rows in this export"]);
            cannot_answer(&ran, &hints);
        }
        let ran = trace(&rig, &["doctor", FILE]);
        assert_eq!(ran.code, Some(1));
        assert!(ran.out.contains("! PROBLEM: no_kernels"), "{}", ran.out);
    }
}

#[test]
fn fr_13_without_marks_steps_are_found_otherwise_and_that_is_said() {
    let mut made = Made::new().kernels();
    for step in 0..6 {
        let at = step * 10 * MS;
        made.kernel((at, at + 4 * MS), (101, 2 * step + 1), 7, LINEAR, 0);
        made.kernel(
            (at + 4 * MS, at + 7 * MS),
            (101, 2 * step + 2),
            7,
            ATTENTION,
            0,
        );
    }
    let rig = made.write();
    let ran = trace(&rig, &["split", FILE]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("(no NVTX step marks)"), "{}", ran.out);
    let doctor = trace(&rig, &["doctor", FILE]);
    assert_eq!(doctor.code, Some(1));
    assert!(
        doctor.out.contains("no NVTX ranges in this export"),
        "{}",
        doctor.out
    );
}

#[test]
fn fr_13_files_that_are_no_export_are_unreadable() {
    let rig = Rig::bare();
    rig.write("text.sqlite", "id,name\n1,gemm\n");
    rig.write("empty.sqlite", "");
    for command in SPLITS {
        trace(&rig, &[command, "text.sqlite"]).refused(&["not an Nsight SQLite export"]);
        trace(&rig, &[command, "empty.sqlite"]).refused(&["the file is empty"]);
        trace(&rig, &[command, "absent.sqlite"]).refused(&["absent.sqlite", "No such file"]);
    }
    for file in ["text.sqlite", "empty.sqlite", "absent.sqlite"] {
        assert_eq!(trace(&rig, &["doctor", file]).code, Some(2), "{file}");
    }
}

#[test]
fn fr_14_the_time_inside_graphs_is_busy_and_nobodys() {
    let mut made = Made::new().kernels();
    made.sql(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER,
            contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER,
            graphId INTEGER, graphExecId INTEGER);",
    );
    for replay in 0..80 {
        let (at, end) = (replay * 31 * MS, replay * 31 * MS + 30 * MS);
        made.sql(&format!(
            "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES ({at}, {end}, 0, 1, 7, {}, {}, 5, 6);",
            replay + 1,
            (1i64 << 48) | (101 << 24)
        ));
        for sample in 0..2 {
            let at = end + sample * 100_000;
            made.kernel(
                (at, at + 50_000),
                (101, 1000 + 2 * replay + sample),
                7,
                LINEAR,
                0,
            );
        }
    }
    let rig = made.write();
    let ran = trace(&rig, &["split", FILE]);
    assert_eq!(ran.code, Some(1));
    let sentence = "99.7 % of GPU busy time (2,400 of 2,408 ms) is inside opaque graphs; \
                    re-record with `--cuda-graph-trace=node`";
    assert!(ran.out.contains(sentence), "{}", ran.out);
    for group in ["linear", "attention", "comm "] {
        assert!(!ran.out.contains(group), "{}", ran.out);
    }
    let ran = trace(&rig, &["steps", FILE, "--json"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains(sentence), "{}", ran.err);
    let steps: Value = serde_json::from_str(&ran.out).unwrap();
    let sum = |key: &str| items(&steps).iter().map(|s| ns(&s[key])).sum::<u64>();
    assert_eq!(sum("graph_ns"), 2_400_000_000, "busy");
    assert_eq!(sum("eager_ns"), 8_000_000);
    assert_eq!(
        sum("graph_ns") + sum("eager_ns") + sum("idle_ns"),
        sum("dur_ns")
    );
    assert!(items(&steps).iter().all(|s| s["linear_ns"].is_null()));
}

#[test]
fn fr_15_overlapping_kernels_are_not_summed() {
    let mut made = Made::new().kernels();
    made.kernel((0, 100 * MS), (101, 1), 7, LINEAR, 0);
    made.kernel((60 * MS, 130 * MS), (101, 2), 20, ALL_REDUCE, 0);
    let rig = made.write();
    let steps = json(&rig, &["steps", FILE]);
    let [step] = items(&steps) else {
        panic!("{steps}");
    };
    let ms = |key: &str| ns(&step[key]) / MS as u64;
    assert_eq!(ms("dur_ns"), 130);
    assert_eq!(
        (ms("linear_ns"), ms("communication_ns"), ms("idle_ns")),
        (100, 30, 0)
    );
    assert_eq!((ms("comm_exposed_ns"), ms("comm_overlapped_ns")), (30, 40));
    let split = json(&rig, &["split", FILE]);
    assert_eq!(split[0]["busy_share"], 1.0);
    assert_eq!(split[0]["overlap_factor"].as_f64(), Some(170.0 / 130.0));
}

#[test]
fn fr_16_communication_is_found_by_every_name_it_has() {
    let names = [
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, x)",
            "comm.nccl",
        ),
        (
            "ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm*, x)",
            "comm.nccl",
        ),
        (
            "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, x)",
            "comm.nccl",
        ),
        (
            "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(x)",
            "comm.custom_ar",
        ),
        ("multimem_all_reduce_kernel<float>", "comm.custom_ar"),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(x)",
            "elem",
        ),
        ("cutlass_80_tensorop_bf16_gemm_x", "linear"),
        ("flash_fwd_splitkv_kernel<x>", "attention"),
        ("chunk_gated_delta_rule_fwd_kernel", "ssm"),
    ];
    let rig = Made::with_names(&names.map(|n| n.0));
    let kernels = json(&rig, &["kernels", FILE]);
    assert_eq!(items(&kernels).len(), names.len(), "none is dropped");
    for (name, class) in names {
        let found = items(&kernels).iter().find(|k| k["name"] == name).unwrap();
        assert_eq!(found["class"], class, "{name}");
    }
    let split = json(&rig, &["split", FILE]);
    assert_eq!(split[0]["communication"]["sum_ns"], 5 * MS);
    let classes = items(&split[0]["classes"]);
    let nccl = classes.iter().find(|c| c["class"] == "comm.nccl").unwrap();
    assert_eq!(nccl["count_per_step"], 3.0);
    let text = trace(&rig, &["comm", FILE]).out;
    assert!(
        text.contains("all-reduce (per name, not certain)"),
        "{text}"
    );
    assert!(!text.contains("RING"), "the suffix is no fact: {text}");
}

#[test]
fn fr_17_correlation_ids_are_a_process_s_own() {
    let mut made = Made::new().calls().kernels();
    for pid in [101, 102] {
        made.launch((0, 1_000), (pid, 7));
        made.kernel((MS, 6 * MS), (pid, 7), 7, LINEAR, 0);
    }
    made.graph_launch((10_000, 14_000), (101, 9));
    for node in 1..4 {
        let at = 6 * MS + i64::from(node) * MS;
        made.kernel((at, at + MS), (101, 9), 7, ATTENTION, node);
    }
    made.kernel((20 * MS, 21 * MS), (101, 99), 7, ALL_REDUCE, 0);
    let rig = made.write();
    let kernels = json(&rig, &["kernels", FILE]);
    let of = |class: &str| {
        let found = items(&kernels)
            .iter()
            .find(|k| k["class"] == class)
            .unwrap();
        (ns(&found["count"]), ns(&found["total_ns"]) / MS as u64)
    };
    assert_eq!(of("linear"), (2, 10), "not 4 and 20");
    assert_eq!(of("attention"), (3, 3));
    assert_eq!(of("comm.nccl"), (1, 1), "a kernel without a call counts");
    let steps = json(&rig, &["steps", FILE, "--method", "whole"]);
    // One kernel launch, one graph launch for three kernels, and the one without a call.
    assert_eq!(
        (&steps[0]["ops"], &steps[0]["launches"]),
        (&5.into(), &3.into())
    );
    assert_eq!(
        (&steps[1]["ops"], &steps[1]["launches"]),
        (&1.into(), &1.into())
    );
}

/// The same kernels in tables of different versions.
fn four_kernels(flavour: &str) -> Rig {
    let mut made = Made::new().calls();
    let marks = match flavour {
        "versioned marks" => "NVTX_EVENTS_V2",
        _ => "NVTX_EVENTS",
    };
    made = made.marks(marks);
    let (columns, name) = match flavour {
        "2021" => (
            "INT NOT NULL",
            "demangledName INT NOT NULL, shortName INT NOT NULL",
        ),
        "2026" => (
            "INTEGER",
            "demangledName INTEGER, shortName INTEGER, graphNodeId INTEGER, graphId INTEGER",
        ),
        "text names" => ("INTEGER", "demangledName TEXT, shortName TEXT"),
        _ => ("INTEGER", "demangledName INTEGER, shortName INTEGER"),
    };
    let own = [
        "deviceId",
        "contextId",
        "streamId",
        "correlationId",
        "globalPid",
    ];
    let own = own.map(|column| format!("{column} {columns}")).join(", ");
    made.sql(&format!(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start {columns}, \"end\" {columns}, {own}, {name});"
    ));
    for step in 0..4i64 {
        let at = step * 10 * MS;
        made.mark(
            marks,
            (at, at + MS),
            101,
            "execute_context_0(0)_generation_2(2)",
        );
        made.launch((at + 1, at + 1_000), (101, step + 1));
        let values = match flavour {
            "2026" => "1, 1, NULL, NULL".to_owned(),
            "text names" => "'nvjet_tst_64x8', 'nvjet_tst_64x8'".to_owned(),
            _ => "1, 1".to_owned(),
        };
        made.sql(&format!(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({}, {}, 0, 1, 7, {}, {}, {values});",
            at + 2 * MS,
            at + 5 * MS,
            step + 1,
            (1i64 << 48) | (101 << 24),
        ));
    }
    match flavour {
        "from the future" => made.metadata("EXPORT_SCHEMA_VERSION", "99.0"),
        "without a column" => {
            made.sql("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN streamId;")
        }
        _ => {}
    }
    made.write()
}

#[test]
fn fr_18_every_schema_gives_the_same_report() {
    let expected = json(&four_kernels("plain"), &["steps", FILE]);
    assert_eq!(items(&expected).len(), 4);
    assert_eq!(expected[0]["tokens"], 2);
    for flavour in ["2021", "2026", "versioned marks", "text names"] {
        let rig = four_kernels(flavour);
        assert_eq!(json(&rig, &["steps", FILE]), expected, "{flavour}");
        let text = trace(&rig, &["split", FILE]).out;
        assert!(text.contains("schema 3.20.3"), "{text}");
    }
}

#[test]
fn fr_18_an_unknown_schema_is_a_warning_and_a_missing_column_an_error() {
    let rig = four_kernels("from the future");
    let ran = trace(&rig, &["split", FILE]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(
        ran.out.contains("! unknown_schema: schema version 99.0"),
        "{}",
        ran.out
    );
    let rig = four_kernels("without a column");
    let ran = trace(&rig, &["split", FILE]);
    ran.refused(&["CUPTI_ACTIVITY_KIND_KERNEL lacks streamId", "schema 3.20.3"]);
}

#[test]
fn fr_19_a_kernel_over_the_boundary_of_a_step_counts_in_both() {
    let mut made = Made::new().calls().kernels().marks("NVTX_EVENTS");
    let table = "NVTX_EVENTS";
    for (step, text) in [
        (0, "execute_context_0(0)_generation_1(1)"),
        (1, "execute_context_0(0)_generation_1(1)"),
    ] {
        let at = step * 100;
        made.mark(table, (at, at + 90), 101, text);
        made.launch((at + 10, at + 20), (101, 2 * step + 1));
        made.launch((at + 30, at + 40), (101, 2 * step + 2));
    }
    // Stream 7 works longest, so it is its operations that begin a step; the straggler is on stream 8.
    made.kernel((0, 6 * MS), (101, 1), 7, ATTENTION, 0);
    made.kernel((8 * MS, 13 * MS), (101, 2), 8, LINEAR, 0);
    made.kernel((10 * MS, 18 * MS), (101, 3), 7, ATTENTION, 0);
    made.kernel((19 * MS, 20 * MS), (101, 4), 7, ATTENTION, 0);
    let rig = made.write();
    let steps = json(&rig, &["steps", FILE]);
    let linear: Vec<u64> = items(&steps)
        .iter()
        .map(|s| ns(&s["linear_ns"]) / MS as u64)
        .collect();
    assert_eq!(linear, [2, 3], "{steps}");
}

/// Half busy, from `first` seconds on, for 6 s.
fn half_busy(first: i64) -> Rig {
    let mut made = Made::new().kernels();
    let s = 1_000 * MS;
    made.kernel((first * s, first * s + 1_500 * MS), (101, 1), 7, LINEAR, 0);
    made.kernel(
        (first * s + 4_500 * MS, (first + 6) * s),
        (101, 2),
        7,
        LINEAR,
        0,
    );
    made.write()
}

#[test]
fn fr_19_a_window_past_the_capture_is_cut_to_it() {
    let rig = half_busy(0);
    let words = [
        "split", FILE, "--from", "0", "--to", "60s", "--method", "whole",
    ];
    let ran = trace(&rig, &words);
    assert!(ran.out.contains("! window_cut"), "{}", ran.out);
    let split = json(&rig, &words);
    assert_eq!(split[0]["busy_share"], 0.5);
    assert_eq!(split[0]["dur"]["sum_ns"], 6_000 * MS);
}

#[test]
fn fr_19_a_window_outside_the_capture_is_an_error() {
    let rig = half_busy(155);
    for command in SPLITS {
        let ran = trace(&rig, &[command, FILE, "--from", "0s", "--to", "1s"]);
        ran.refused(&["window 0.0-1.0 s is outside the capture 155.0-161.0 s"]);
    }
    trace(&rig, &["split", FILE, "--from", "soon"]).refused(&["expected a time such as 155.2s"]);
}

#[test]
fn fr_20_ranks_that_were_not_traced_are_told() {
    let (rig, file) = with_spec("one-rank-traced");
    for command in ["split", "comm", "whatif", "steps"] {
        let ran = trace(&rig, &[command, &file]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert!(
            ran.out
                .contains("figures from 1 GPU (NVIDIA H200), 1 process"),
            "{}",
            ran.out
        );
        assert!(
            ran.out.contains(
                "collectives present but kernels from 1 GPU only: other ranks were not traced"
            ),
            "{}",
            ran.out
        );
    }
    for command in SPLITS {
        let ran = trace(&rig, &[command, &file, "--expect-gpus", "4"]);
        cannot_answer(&ran, &["kernels from 1 GPU(s), 4 expected"]);
    }
    let split = json(&rig, &["split", &file]);
    assert_eq!(
        (&split[0]["gpus"], &split[0]["processes"]),
        (&1.into(), &1.into())
    );
    // No replay of one rank, and Amdahl as an upper bound.
    let ran = trace(&rig, &["whatif", &file]);
    assert!(ran.out.contains("no replay: one rank only"), "{}", ran.out);
    assert!(
        ran.out
            .contains("Plain Amdahl on the mean step: an upper bound"),
        "{}",
        ran.out
    );
}
