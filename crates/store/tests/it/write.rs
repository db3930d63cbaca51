use std::fs;
use std::path::Path;

use linktax_records::{CellStatus, RecordSource, RunStatus};
use linktax_store::{REQUESTS_FILE, RUN_FILE, RunReader, RunWriter, StoreError, TORN_FILE};
use serde_json::json;
use tempfile::tempdir;

use crate::samples::{full_record, manifest, record};

const TWO: [CellStatus; 2] = [CellStatus::Complete, CellStatus::Running];

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n != ".lock")
        .collect();
    names.sort();
    names
}

pub(crate) fn indices(run: &RunReader, cell: u32) -> Vec<u64> {
    let mut seen = vec![];
    run.cell_records(cell)
        .scan(&mut |r| seen.push(r.index))
        .unwrap();
    seen
}

#[test]
fn create_makes_parents_and_the_documented_files() {
    let root = tempdir().unwrap();
    let dir = root.path().join("runs/2026/nvlink");
    let mut run = RunWriter::create(&dir, manifest(&TWO)).unwrap();
    run.append(&record(0, 0, 0, 3)).unwrap();
    run.write_server(&json!([{"version": "0.32"}])).unwrap();
    assert_eq!(names(&dir), ["requests.jsonl", "run.json", "server.json"]);
    assert_eq!(run.server().unwrap(), Some(json!([{"version": "0.32"}])));
    let reader = RunReader::open(&dir).unwrap();
    assert_eq!(reader.manifest(), run.manifest());
    assert_eq!(reader.server().unwrap(), run.server().unwrap());
}

#[test]
fn create_refuses_an_earlier_run() {
    for name in [RUN_FILE, REQUESTS_FILE] {
        let root = tempdir().unwrap();
        fs::write(root.path().join(name), "precious").unwrap();
        let error = RunWriter::create(root.path(), manifest(&TWO)).unwrap_err();
        assert!(matches!(error, StoreError::AlreadyARun { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(root.path().to_str().unwrap()), "{text}");
        assert!(
            text.contains("--out") && text.contains("--resume"),
            "{text}"
        );
        assert_eq!(names(root.path()), [name], "nothing may be added");
        let kept = fs::read_to_string(root.path().join(name)).unwrap();
        assert_eq!(kept, "precious");
    }
}

#[test]
fn create_accepts_a_directory_with_other_files() {
    let root = tempdir().unwrap();
    fs::write(root.path().join("notes.txt"), "pair 0-1").unwrap();
    RunWriter::create(root.path(), manifest(&TWO)).unwrap();
    assert!(root.path().join("notes.txt").exists());
}

#[test]
fn create_refuses_a_file_and_a_path_below_a_file() {
    let root = tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [file.clone(), file.join("run")] {
        let error = RunWriter::create(&path, manifest(&TWO)).unwrap_err();
        assert!(matches!(error, StoreError::NotADirectory { .. }), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()));
    }
}

/// The process directory refuses new files even to root, for whom permission bits do not count.
#[cfg(target_os = "linux")]
#[test]
fn create_refuses_an_unwritable_directory() {
    let error = RunWriter::create(Path::new("/proc/self"), manifest(&TWO)).unwrap_err();
    assert!(matches!(error, StoreError::NotWritable { .. }), "{error}");
    assert!(error.to_string().starts_with("/proc/self"), "{error}");
}

#[test]
fn one_writer_at_a_time() {
    let root = tempdir().unwrap();
    let first = RunWriter::create(root.path(), manifest(&TWO)).unwrap();
    let error = RunWriter::resume(root.path()).unwrap_err();
    let own = std::process::id();
    assert!(
        matches!(error, StoreError::Locked { pid: Some(pid), .. } if pid == own),
        "{error}"
    );
    drop(first);
    RunWriter::resume(root.path()).unwrap();
}

#[test]
fn save_replaces_the_manifest() {
    let root = tempdir().unwrap();
    let mut run = RunWriter::create(root.path(), manifest(&TWO)).unwrap();
    run.manifest_mut().status = RunStatus::Complete;
    assert!(RunReader::open(root.path()).unwrap().is_incomplete());
    run.save().unwrap();
    assert!(!RunReader::open(root.path()).unwrap().is_incomplete());
    assert_eq!(names(root.path()), ["requests.jsonl", "run.json"]);
}

#[test]
fn results_keep_their_order_and_their_last_digit() {
    let root = tempdir().unwrap();
    let mut m = manifest(&TWO);
    let mut results = serde_json::Map::new();
    results.insert("zulu".into(), json!(0.1 + 0.2));
    results.insert("alpha".into(), json!(2551.178244076589));
    m.cells[0].results = Some(results.clone());
    drop(RunWriter::create(root.path(), m).unwrap());
    let read = RunReader::open(root.path()).unwrap();
    let back = read.manifest().cells[0].results.clone().unwrap();
    let keys: Vec<_> = back.keys().collect();
    assert_eq!(keys, ["zulu", "alpha"]);
    assert_eq!(back, results);
}

#[test]
fn a_record_comes_back_as_it_was() {
    let root = tempdir().unwrap();
    let mut m = manifest(&[CellStatus::Complete; 4]);
    m.cells[3].attempt = 1;
    let mut run = RunWriter::create(root.path(), m).unwrap();
    run.append(&full_record()).unwrap();
    let mut back = vec![];
    RunReader::open(root.path())
        .unwrap()
        .cell_records(3)
        .scan(&mut |r| back.push(r.clone()))
        .unwrap();
    assert_eq!(back, [full_record()]);
}

#[test]
fn resume_keeps_complete_cells_and_starts_others_over() {
    let root = tempdir().unwrap();
    let mut m = manifest(&[
        CellStatus::Complete,
        CellStatus::Running,
        CellStatus::Incomplete,
        CellStatus::Pending,
        CellStatus::Pending,
    ]);
    m.cells[1].results = Some(serde_json::Map::new());
    m.cells[1].started_unix_ns = Some(1);
    let mut run = RunWriter::create(root.path(), m).unwrap();
    // Cell 4 was killed before the save that would have called it running.
    for cell in [0, 1, 2, 4] {
        run.append(&record(cell, 0, 0, 2)).unwrap();
        run.append(&record(cell, 0, 1, 2)).unwrap();
    }
    drop(run);

    let mut run = RunWriter::resume(root.path()).unwrap();
    let states: Vec<_> = run
        .manifest()
        .cells
        .iter()
        .map(|c| (c.status, c.attempt))
        .collect();
    assert_eq!(
        states,
        [
            (CellStatus::Complete, 0),
            (CellStatus::Pending, 1),
            (CellStatus::Pending, 1),
            (CellStatus::Pending, 0),
            (CellStatus::Pending, 1),
        ]
    );
    assert_eq!(run.manifest().cells[1].results, None);
    assert_eq!(run.manifest().cells[1].started_unix_ns, None);
    run.append(&record(1, 1, 7, 2)).unwrap();
    drop(run);

    let reader = RunReader::open(root.path()).unwrap();
    assert!(reader.is_incomplete());
    assert_eq!(indices(&reader, 0), [0, 1]);
    assert_eq!(indices(&reader, 1), [7], "the first try no longer counts");
    assert_eq!(indices(&reader, 4), [0; 0]);
}

#[test]
fn resume_of_an_untouched_resume_changes_nothing() {
    let root = tempdir().unwrap();
    drop(RunWriter::create(root.path(), manifest(&TWO)).unwrap());
    let first = RunWriter::resume(root.path()).unwrap().manifest().clone();
    let second = RunWriter::resume(root.path()).unwrap().manifest().clone();
    assert_eq!(first, second);
}

#[test]
fn resume_of_a_complete_run_leaves_it_complete() {
    let root = tempdir().unwrap();
    let mut m = manifest(&[CellStatus::Complete]);
    m.status = RunStatus::Complete;
    m.finished_unix_ns = Some(2);
    drop(RunWriter::create(root.path(), m.clone()).unwrap());
    assert_eq!(RunWriter::resume(root.path()).unwrap().manifest(), &m);
}

#[test]
fn resume_moves_a_torn_line_and_loses_no_byte() {
    let root = tempdir().unwrap();
    let path = root.path().join(REQUESTS_FILE);
    let mut run = RunWriter::create(root.path(), manifest(&TWO)).unwrap();
    run.append(&record(0, 0, 0, 2)).unwrap();
    run.append(&record(0, 0, 1, 2)).unwrap();
    drop(run);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 30]).unwrap();

    let mut run = RunWriter::resume(root.path()).unwrap();
    assert!(run.manifest().notes.iter().any(|n| n.code == "torn_record"));
    run.append(&record(0, 0, 2, 2)).unwrap();
    drop(run);
    let torn = fs::read(root.path().join(TORN_FILE)).unwrap();
    let kept = fs::read(&path).unwrap();
    let first = 1 + whole.iter().position(|&b| b == b'\n').unwrap();
    assert_eq!(kept[..first], whole[..first]);
    assert_eq!(torn, [&whole[first..whole.len() - 30], b"\n"].concat());
    assert_eq!(indices(&RunReader::open(root.path()).unwrap(), 0), [0, 2]);
}

#[test]
fn resume_gives_a_whole_last_line_its_newline_back() {
    let root = tempdir().unwrap();
    let path = root.path().join(REQUESTS_FILE);
    let mut run = RunWriter::create(root.path(), manifest(&TWO)).unwrap();
    run.append(&record(0, 0, 0, 2)).unwrap();
    drop(run);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let mut run = RunWriter::resume(root.path()).unwrap();
    run.append(&record(0, 0, 1, 2)).unwrap();
    drop(run);
    assert!(!root.path().join(TORN_FILE).exists());
    assert_eq!(indices(&RunReader::open(root.path()).unwrap(), 0), [0, 1]);
}

#[test]
fn resume_without_a_run_leaves_no_trace() {
    let root = tempdir().unwrap();
    let error = RunWriter::resume(root.path()).unwrap_err();
    assert!(matches!(error, StoreError::NotARun { .. }), "{error}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}
