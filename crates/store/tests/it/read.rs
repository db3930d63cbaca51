use std::fs;

use linktax_records::{CellStatus, RecordSource, SCHEMA_VERSION};
use linktax_store::{REQUESTS_FILE, RUN_FILE, RunReader, RunWriter, StoreError};
use proptest::prelude::*;
use tempfile::{TempDir, tempdir};

use crate::samples::{manifest, record};
use crate::write::indices;

const ONE: [CellStatus; 1] = [CellStatus::Running];

fn run_with(lines: &str) -> TempDir {
    let root = tempdir().unwrap();
    drop(RunWriter::create(root.path(), manifest(&ONE)).unwrap());
    fs::write(root.path().join(REQUESTS_FILE), lines).unwrap();
    root
}

fn line(index: u64) -> String {
    serde_json::to_string(&record(0, 0, index, 2)).unwrap() + "\n"
}

#[test]
fn no_run_json_says_what_was_expected() {
    let root = tempdir().unwrap();
    for path in [root.path().to_owned(), root.path().join("absent")] {
        let error = RunReader::open(&path).unwrap_err();
        assert!(matches!(error, StoreError::NotARun { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(path.to_str().unwrap()) && text.contains("run.json"));
    }
}

#[test]
fn a_broken_run_json_names_the_place() {
    let root = run_with("");
    fs::write(
        root.path().join(RUN_FILE),
        "{\n  \"schema_version\": 1,\n  \"tool\": 5\n}\n",
    )
    .unwrap();
    let text = RunReader::open(root.path()).unwrap_err().to_string();
    assert!(text.contains("run.json, line 3, column 11:"), "{text}");
    assert!(text.contains("invalid type: integer `5`"), "{text}");
    assert!(!text.contains("at line"), "position once only: {text}");
}

#[test]
fn a_newer_layout_is_refused_before_its_fields_are_looked_at() {
    let root = run_with("");
    fs::write(root.path().join(RUN_FILE), "{\"schema_version\": 2}").unwrap();
    let error = RunReader::open(root.path()).unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::SchemaVersion {
                found: 2,
                known: SCHEMA_VERSION,
                ..
            }
        ),
        "{error}"
    );
    assert!(matches!(
        RunWriter::resume(root.path()).unwrap_err(),
        StoreError::SchemaVersion { .. }
    ));
}

#[test]
fn a_run_killed_before_its_first_record_is_empty() {
    let root = run_with("");
    fs::remove_file(root.path().join(REQUESTS_FILE)).unwrap();
    let run = RunReader::open(root.path()).unwrap();
    assert_eq!(indices(&run, 0), [0; 0]);
    assert!(run.is_incomplete());
}

#[test]
fn a_malformed_line_names_file_line_and_column() {
    let root = run_with(
        &[
            &line(0),
            "{\"cell\":0,\"attempt\":0,\"index\":x}\n",
            &line(2),
        ]
        .concat(),
    );
    let run = RunReader::open(root.path()).unwrap();
    let mut before = 0;
    let error = run.cell_records(0).scan(&mut |_| before += 1).unwrap_err();
    assert_eq!(before, 1);
    let text = error.to_string();
    assert!(
        text.contains("requests.jsonl, line 2, column 31: expected value;"),
        "{text}"
    );
}

#[test]
fn a_line_without_a_cell_is_an_error_at_open() {
    let root = run_with(&[&line(0), "\n", "[1, 2]\n", &line(2)].concat());
    let error = RunReader::open(root.path()).unwrap_err();
    assert!(
        matches!(error, StoreError::Record { line: 3, .. }),
        "{error}"
    );
}

#[test]
fn unequal_arrays_are_an_error() {
    let bad = line(1).replace("\"tokens\":[1,1]", "\"tokens\":[1]");
    assert_ne!(bad, line(1));
    let root = run_with(&[line(0), bad.clone()].concat());
    let run = RunReader::open(root.path()).unwrap();
    let error = run.cell_records(0).scan(&mut |_| ()).unwrap_err();
    let at = 1 + bad.find("\"reads\"").unwrap();
    assert!(
        matches!(error, StoreError::Record { line: 2, column, .. } if column == at),
        "{error}"
    );
    assert!(error.to_string().contains("t_ns 2, tokens 1"), "{error}");
}

#[test]
fn a_malformed_line_of_another_cell_does_not_matter() {
    let root = run_with(&["{\"cell\":9,\"attempt\":0,\"index\":x}\n", &line(1)].concat());
    let run = RunReader::open(root.path()).unwrap();
    assert_eq!(indices(&run, 0), [1]);
    assert_eq!(run.notes().len(), 1);
    assert_eq!(run.notes()[0].code, "unknown_cell");
}

#[test]
fn a_file_cut_after_it_was_opened_is_an_error() {
    let root = run_with(&[line(0), line(1)].concat());
    let run = RunReader::open(root.path()).unwrap();
    fs::write(root.path().join(REQUESTS_FILE), line(0)).unwrap();
    let error = run.cell_records(0).scan(&mut |_| ()).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
}

#[test]
fn a_scan_can_be_repeated() {
    let root = run_with(&[line(0), line(1)].concat());
    let run = RunReader::open(root.path()).unwrap();
    let records = run.cell_records(0);
    for _ in 0..2 {
        let mut seen = vec![];
        records.scan(&mut |r| seen.push(r.index)).unwrap();
        assert_eq!(seen, [0, 1]);
    }
    let file = fs::metadata(root.path().join(REQUESTS_FILE)).unwrap();
    assert_eq!(records.bytes(), file.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Killed at any byte: the whole lines before the cut are read, nothing else, and a resume can go on.
    #[test]
    fn any_cut_leaves_the_whole_lines(cut in 0_usize..=5 * 600, tokens in 0_u32..4) {
        let lines: Vec<String> = (0..5)
            .map(|i| serde_json::to_string(&record(0, 0, i, tokens)).unwrap() + "\n")
            .collect();
        let text = lines.concat();
        let cut = cut.min(text.len());
        let root = run_with(&text[..cut]);
        // A line of which only the newline is missing is whole.
        let whole = (0..=5_usize)
            .rev()
            .find(|&n| lines[..n].concat().trim_end().len() <= cut)
            .unwrap();
        let expected: Vec<u64> = (0..whole as u64).collect();

        let run = RunReader::open(root.path()).unwrap();
        prop_assert_eq!(indices(&run, 0), expected);
        let end = lines[..whole].concat().len();
        prop_assert_eq!(run.notes().len(), usize::from(cut > end));

        let mut run = RunWriter::resume(root.path()).unwrap();
        let attempt = run.manifest().cells[0].attempt;
        run.append(&record(0, attempt, 77, 1)).unwrap();
        let run = RunReader::open(root.path()).unwrap();
        prop_assert_eq!(indices(&run, 0), [77]);
        prop_assert!(run.notes().is_empty());
    }

    /// Whatever the order in which cells and attempts are mixed, each cell gives its own records in order.
    #[test]
    fn cells_are_told_apart(order in prop::collection::vec((0_u32..3, 0_u32..2), 0..40)) {
        let root = tempdir().unwrap();
        let mut m = manifest(&[CellStatus::Complete; 3]);
        m.cells[1].attempt = 1;
        let mut run = RunWriter::create(root.path(), m).unwrap();
        for (i, &(cell, attempt)) in order.iter().enumerate() {
            run.append(&record(cell, attempt, i as u64, 1)).unwrap();
        }
        let run = RunReader::open(root.path()).unwrap();
        for (cell, counts) in [(0, 0), (1, 1), (2, 0)] {
            let expected: Vec<u64> = (0..)
                .zip(&order)
                .filter(|&(_, &key)| key == (cell, counts))
                .map(|(i, _)| i)
                .collect();
            prop_assert_eq!(indices(&run, cell), expected);
        }
    }
}
