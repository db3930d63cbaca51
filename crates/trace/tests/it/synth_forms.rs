//! What the form of a file must not change: schema, order, ids, marks, missing tables, broken rows, clocks, repetition.

use linktax_trace::synth::{Flavour, NvtxForm, NvtxStyle, Spec};
use linktax_trace::{CommGroup, LaneSplit, ReadOptions, StepMethod, read};

use crate::synth::{Synthetic, named};
use crate::synth_truth::{Analysis, analyse, expected, without_wait};

/// Everything of an analysis that may not depend on how the file was written.
fn essence(found: &Analysis) -> Vec<(LaneSplit, Vec<u64>, Vec<u64>)> {
    let empty = Vec::new();
    let groups: &Vec<CommGroup> = found.collectives.as_ref().map_or(&empty, |c| &c.groups);
    found
        .splits
        .iter()
        .map(|split| {
            let group = groups.iter().find(|g| g.lanes.contains(&split.lane));
            let service = group.map_or(Vec::new(), |g| {
                g.collectives.iter().map(|c| c.service).collect()
            });
            let waits = group.map_or(Vec::new(), |g| {
                (0..g.collectives.len())
                    .flat_map(|at| g.parts(at).iter().map(|p| p.wait))
                    .collect()
            });
            (split.clone(), service, waits)
        })
        .collect()
}

#[test]
fn every_schema_gives_the_same_answer() {
    let mut spec = named("tp8");
    spec.phase[0].steps = 3;
    spec.host.nvtx = NvtxForm::TextId;
    let wanted = essence(&analyse(&Synthetic::new(&spec).path));
    for flavour in Flavour::ALL {
        spec.file.flavour = flavour;
        for eager_tables in [false, true] {
            spec.file.eager_tables = eager_tables;
            let found = analyse(&Synthetic::new(&spec).path);
            let mut found = essence(&found);
            if flavour == Flavour::V2021 {
                // It does not record graph nodes, so gaps inside graphs look like any others.
                for ((lane, ..), (wanted, ..)) in found.iter_mut().zip(&wanted) {
                    for (step, wanted) in lane.steps.iter_mut().zip(&wanted.steps) {
                        assert_eq!(step.idle.total(), wanted.idle.total());
                        step.idle = wanted.idle;
                        step.launches = wanted.launches;
                    }
                }
            }
            assert_eq!(found, wanted, "{flavour:?}, eager tables: {eager_tables}");
        }
    }
}

#[test]
fn order_of_rows_columns_and_ids_does_not_matter() {
    let mut spec = named("tp8");
    spec.phase[0].steps = 3;
    let wanted = essence(&analyse(&Synthetic::new(&spec).path));
    type Change = fn(&mut Spec);
    let changes: [(&str, Change); 6] = [
        ("rows", |s| s.file.shuffle_rows = true),
        ("columns", |s| s.file.shuffle_columns = true),
        ("ids", |s| s.file.shuffle_ids = true),
        ("extras", |s| s.file.unknown_extras = true),
        ("text names", |s| s.file.text_names = true),
        ("unknown version", |s| {
            s.file.claim_version = Some("99.0".to_owned())
        }),
    ];
    for (what, change) in changes {
        let mut changed = spec.clone();
        change(&mut changed);
        let found = essence(&analyse(&Synthetic::new(&changed).path));
        assert!(found == wanted, "{what} changed the answer");
    }
}

#[test]
fn marks_in_every_form_and_style_find_the_same_steps() {
    let mut spec = named("mixed-piecewise");
    let reference = analyse(&Synthetic::new(&spec).path);
    let times = |found: &Analysis| -> Vec<Vec<(i64, i64)>> {
        let lanes = found.steps.iter();
        lanes
            .map(|l| l.steps.iter().map(|s| (s.start, s.end)).collect())
            .collect()
    };
    for nvtx in [
        NvtxForm::Text,
        NvtxForm::TextId,
        NvtxForm::V2,
        NvtxForm::Open,
        NvtxForm::OtherThread,
    ] {
        for style in [
            NvtxStyle::Vllm,
            NvtxStyle::VllmNew,
            NvtxStyle::Sglang,
            NvtxStyle::Trtllm,
        ] {
            (spec.host.nvtx, spec.host.nvtx_style) = (nvtx, style);
            let found = analyse(&Synthetic::new(&spec).path);
            assert_eq!(times(&found), times(&reference), "{nvtx:?} {style:?}");
            let methods = found.steps.iter().all(|l| l.method == StepMethod::Nvtx);
            assert!(methods, "{nvtx:?} {style:?}");
        }
    }
}

#[test]
fn the_clock_of_a_device_changes_neither_service_nor_wait() {
    let tilted = named("clock");
    let mut straight = tilted.clone();
    straight.clock = Default::default();
    let (tilted, straight) = (
        analyse(&Synthetic::new(&tilted).path),
        analyse(&Synthetic::new(&straight).path),
    );
    let times = |found: &Analysis| -> Vec<(Vec<u64>, Vec<u64>)> {
        essence(found)
            .into_iter()
            .map(|(_, service, waits)| (service, waits))
            .collect()
    };
    assert_eq!(times(&tilted), times(&straight));
    let offset = |found: &Analysis| {
        found.collectives.as_ref().unwrap().groups[0].clock[1]
            .unwrap()
            .offset_ns
    };
    // "First lane minus the other": device 1 is 15 us ahead.
    assert!(
        (offset(&tilted) + 15_000).abs() < 2_000,
        "{}",
        offset(&tilted)
    );
    assert!(offset(&straight).abs() < 2_000, "{}", offset(&straight));
}

#[test]
fn broken_rows_change_no_step() {
    let broken = named("broken-rows");
    let mut whole = broken.clone();
    whole.faults = Default::default();
    let (broken, whole) = (
        analyse(&Synthetic::new(&broken).path),
        analyse(&Synthetic::new(&whole).path),
    );
    assert!(!broken.trace.notes.is_empty(), "broken rows are told");
    for (broken, whole) in broken.splits.iter().zip(&whole.splits) {
        assert_eq!(broken.steps.len(), whole.steps.len());
        // The launches of the first kernels are missing, so which step those belong to is not known.
        for (broken, whole) in broken.steps.iter().zip(&whole.steps).skip(2) {
            assert_eq!(broken.buckets, whole.buckets);
        }
    }
}

#[test]
fn tables_may_be_missing_one_by_one() {
    let mut spec = named("plain");
    let needed = ["CUPTI_ACTIVITY_KIND_KERNEL", "StringIds"];
    let tables = [
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "StringIds",
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "NVTX_EVENTS",
        "PROCESSES",
        "ThreadNames",
        "META_DATA_CAPTURE",
        "META_DATA_EXPORT",
        "TARGET_INFO_GPU",
        "TARGET_INFO_CUDA_DEVICE",
        "TARGET_INFO_SESSION_START_TIME",
        "DIAGNOSTIC_EVENT",
        "ENUM_CUDA_MEMCPY_OPER",
    ];
    for table in tables {
        spec.file.without_tables = vec![table.to_owned()];
        let made = Synthetic::new(&spec);
        let result = read(std::slice::from_ref(&made.path), &ReadOptions::default());
        if needed.contains(&table) && result.is_err() {
            continue;
        }
        result.unwrap();
        let found = analyse(&made.path);
        assert_eq!(found.splits.len(), 2, "without {table}");
        for lane in &made.truth.lanes {
            let steps = &found.steps[found.lane(lane)].steps;
            assert_eq!(steps.len(), lane.steps.len(), "without {table}");
        }
    }
    spec.file.without_tables = tables.iter().skip(2).map(|t| (*t).to_owned()).collect();
    let found = analyse(&Synthetic::new(&spec).path);
    assert_eq!(found.splits.len(), 2, "kernels and their names alone");
}

#[test]
fn repeated_steps_are_all_found() {
    let mut spec = named("scale");
    spec.file.kernel_rows = 60_000;
    spec.phase[0].steps = 4;
    let made = Synthetic::new(&spec);
    let found = analyse(&made.path);
    let period = made.truth.period_ns as i64;
    for lane in &made.truth.lanes {
        let split = &found.splits[found.lane(lane)];
        let per_round = lane.steps.len();
        assert_eq!(
            split.steps.len() as u64,
            per_round as u64 * made.truth.repeats
        );
        for (at, step) in split.steps.iter().enumerate().rev().skip(1) {
            let truth = &lane.steps[at % per_round];
            assert_eq!(
                step.step.start,
                truth.start_ns + period * (at / per_round) as i64
            );
            assert_eq!(without_wait(&step.buckets), expected(truth));
            assert_eq!(step.buckets.comm_wait_ns, Some(truth.wait_ns));
        }
    }
}
