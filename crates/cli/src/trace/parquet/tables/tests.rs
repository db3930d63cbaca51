use std::path::{Path, PathBuf};

use linktax_trace::ReadOptions;
use serde_json::{Map, Value, json};

use super::*;
use crate::trace::args::{ClassArgs, KindArg, StepArgs};
use crate::trace::session::Capture;
use crate::trace::steps::all;

const MIXED: &str = "vllm-qwen3-4b-mixed-prefill";
const GRAPH_LEVEL: &str = "vllm-qwen3-4b-decode-c16-graph-level";
const TP2: &str = "vllm-qwen3-4b-tp2-two-ranks-one-gpu";

fn opened(name: &str, kinds: &[KindArg]) -> (Session, Chosen) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data/nsys");
    let files: Vec<PathBuf> = vec![data.join(format!("{name}.sqlite.zst"))];
    let capture = Capture::of(&files, &ReadOptions::default(), &ClassArgs::default()).unwrap();
    let args = StepArgs {
        steps: kinds.to_vec(),
        ..StepArgs::default()
    };
    let session = Session::of(capture, &args, None).unwrap();
    let chosen = Chosen::of(&session, None).unwrap();
    (session, chosen)
}

/// The cell of a column as JSON.
fn cell(values: &Values, row: usize) -> Value {
    match values {
        Values::U32(v) => json!(v[row]),
        Values::U64(v) => json!(v[row]),
        Values::I64(v) => json!(v[row]),
        Values::F64(v) => json!(v[row]),
        Values::Bool(v) => json!(v[row]),
        Values::Text(v) => json!(v[row]),
        Values::Words(words, places) => json!(places[row].map(|at| &words[at as usize])),
        other => panic!("{other:?}"),
    }
}

fn rows(table: &TypedTable) -> Vec<Map<String, Value>> {
    let height = match table.columns().next() {
        Some((_, Values::Text(v))) => v.len(),
        Some((_, Values::U32(v))) => v.len(),
        other => panic!("{other:?}"),
    };
    let row = |at| {
        let cells = table
            .columns()
            .map(|(name, values)| (name.to_owned(), cell(values, at)));
        cells.collect()
    };
    (0..height).map(row).collect()
}

/// Numbers of JSON come as they are; what is only in one of the two is named here.
#[track_caller]
fn same_as_json(name: &str) {
    let (session, chosen) = opened(name, &[]);
    let Value::Array(printed) = all(&session, &chosen) else {
        panic!("an array")
    };
    let table = rows(&steps(&session, &chosen));
    assert_eq!((table.len(), table.is_empty()), (printed.len(), false));
    for (row, mut object) in table.into_iter().zip(printed) {
        let object = object.as_object_mut().unwrap();
        let batch = object.remove("batch").unwrap();
        object.remove("reason");
        object.remove("eager_ns");
        for (key, value) in &row {
            let flat = &batch[key.as_str()];
            match object.remove(key) {
                Some(printed) => assert_eq!(*value, printed, "{key}"),
                // No prompt has no prompt tokens, whatever the mark leaves out.
                None if flat.is_null() => assert!(value.is_null() || *value == 0, "{key}: {value}"),
                None => assert_eq!(value, flat, "{key}"),
            }
        }
        assert!(object.is_empty(), "not in the table: {object:?}");
    }
}

#[test]
fn steps_hold_what_json_holds() {
    same_as_json(MIXED);
    same_as_json(TP2);
}

#[test]
fn fr_14_what_is_inside_opaque_graphs_is_null_and_not_zero() {
    same_as_json(GRAPH_LEVEL);
    let (session, chosen) = opened(GRAPH_LEVEL, &[]);
    for row in rows(&steps(&session, &chosen)) {
        assert_eq!(
            (&row["linear_ns"], &row["splittable"]),
            (&Value::Null, &json!(false))
        );
        assert!(row["graph_ns"].as_u64() > Some(7_000_000), "{row:?}");
    }
}

#[test]
fn collectives_have_a_row_a_rank_and_sum_to_those_of_the_group() {
    let (session, chosen) = opened(TP2, &[KindArg::Decode]);
    let table = rows(&collectives(&session, &chosen));
    let decode = session.steps[0]
        .steps
        .iter()
        .filter(|s| s.kind == StepKind::Decode);
    // 25 all-reduces and the all-gather of the logits.
    assert_eq!(table.len(), decode.count() * 26 * 2);
    let group = &chosen.collectives.as_ref().unwrap().groups[0];
    let wanted = chosen_steps(&session, group);
    let service: u64 = group
        .collectives
        .iter()
        .filter(|c| wanted.contains(&c.step))
        .map(|c| c.service)
        .sum();
    let number = |row: &Map<String, Value>, key: &str| row[key].as_u64().unwrap();
    assert_eq!(
        table.iter().map(|r| number(r, "service_ns")).sum::<u64>(),
        2 * service
    );
    for pair in table.chunks(2) {
        assert_eq!((&pair[0]["gpu"], &pair[1]["gpu"]), (&json!(0), &json!(1)));
        assert_eq!(pair[0]["ordinal"], pair[1]["ordinal"]);
        let last = pair.iter().filter(|r| r["came_last"] == true).count();
        assert_eq!(last, 1, "{pair:?}");
        for row in pair {
            assert_eq!(
                number(row, "service_ns") + number(row, "wait_ns"),
                number(row, "dur_ns")
            );
            assert_eq!(
                (&row["class"], &row["wait_method"]),
                (&json!("comm.nccl"), &json!("paired"))
            );
            assert!(
                row["kernel"]
                    .as_str()
                    .unwrap()
                    .starts_with("ncclDevKernel_"),
                "{row:?}"
            );
        }
    }
}

#[test]
fn kernel_classes_sum_to_the_operations_of_the_steps() {
    let (session, chosen) = opened(MIXED, &[]);
    let table = rows(&kernel_classes(&session, &chosen));
    let mut totals = Totals::default();
    let steps: Vec<&Step> = chosen.lanes[0].rows.iter().map(|row| &row.step).collect();
    totals.add(
        &session.capture.trace.lanes[0],
        &session.capture.classes,
        &steps,
    );
    for (class, total) in &totals.by_class {
        let own = table.iter().filter(|row| row["class"] == class.as_str());
        let sum = |key: &str| {
            own.clone()
                .map(|row| row[key].as_u64().unwrap())
                .sum::<u64>()
        };
        assert_eq!(
            (sum("count"), sum("sum_ns")),
            (total.count, total.ns),
            "{class}"
        );
    }
    let copies: Vec<_> = table.iter().filter(|row| row["kernel"].is_null()).collect();
    assert!(
        copies.iter().all(|row| row["group"] == "copy"),
        "{copies:?}"
    );
    let kinds: BTreeSet<&str> = table
        .iter()
        .map(|row| row["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, BTreeSet::from(["decode", "mixed"]));
}
