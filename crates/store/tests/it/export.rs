use std::fs::{self, File};
use std::path::Path;

use linktax_records::{CellStatus, Load, RequestRecord};
use linktax_store::export::{Format, export};
use linktax_store::{REQUESTS_FILE, RunReader, RunWriter, StoreError};
use polars::frame::DataFrame;
use polars::prelude::DataType;
use polars_io::SerReader;
use polars_io::csv::read::CsvReadOptions;
use polars_io::parquet::read::ParquetReader;
use tempfile::tempdir;

use crate::samples::{bare_record, full_record, manifest, record};

/// Records of four cells, cell 3 at its second attempt; some that do not count.
fn write_run(dir: &Path) -> Vec<RequestRecord> {
    let mut m = manifest(&[CellStatus::Complete; 4]);
    m.cells[1].spec.input_len = None;
    m.cells[1].spec.load = Load::Trace {
        speedup: 1.0,
        max_concurrency: None,
    };
    m.cells[3].attempt = 1;
    let mut counted = vec![bare_record()];
    counted.extend((0..40).map(|i| record(0, 0, i, 16)));
    counted.extend((0..40).map(|i| record(1, 0, i, 1 + i as u32)));
    counted.push(full_record());
    let mut run = RunWriter::create(dir, m).unwrap();
    run.append(&record(3, 0, 5, 100)).unwrap();
    run.append(&record(9, 0, 5, 100)).unwrap();
    for r in &counted {
        run.append(r).unwrap();
    }
    counted
}

fn read_back(path: &Path, format: Format) -> DataFrame {
    match format {
        Format::Parquet => ParquetReader::new(File::open(path).unwrap()).finish(),
        Format::Csv => CsvReadOptions::default()
            .with_infer_schema_length(None)
            .try_into_reader_with_file_path(Some(path.to_owned()))
            .unwrap()
            .finish(),
    }
    .unwrap()
}

/// The column as integers, nulls kept.
fn integers(frame: &DataFrame, name: &str) -> Vec<Option<u64>> {
    let column = frame.column(name).unwrap().cast(&DataType::UInt64).unwrap();
    column.u64().unwrap().iter().collect()
}

fn strings(frame: &DataFrame, name: &str) -> Vec<Option<String>> {
    let column = frame.column(name).unwrap();
    let values = column.str().unwrap().iter();
    values.map(|v| v.map(str::to_owned)).collect()
}

fn check_requests(frame: &DataFrame, records: &[RequestRecord]) {
    let ints =
        |f: &dyn Fn(&RequestRecord) -> Option<u64>| records.iter().map(f).collect::<Vec<_>>();
    assert_eq!(frame.height(), records.len());
    assert_eq!(integers(frame, "cell"), ints(&|r| Some(r.cell.into())));
    assert_eq!(integers(frame, "index"), ints(&|r| Some(r.index)));
    assert_eq!(
        integers(frame, "t_sent_ns"),
        ints(&|r| r.t_sent_ns.map(|t| t.as_nanos()))
    );
    assert_eq!(
        integers(frame, "completion_tokens"),
        ints(&|r| r.usage.map(|u| u.completion_tokens))
    );
    assert_eq!(
        integers(frame, "cached_tokens"),
        ints(&|r| r.usage.and_then(|u| u.cached_tokens))
    );
    assert_eq!(
        integers(frame, "counted_tokens"),
        ints(&|r| Some(r.reads.counted_tokens()))
    );
    assert_eq!(
        integers(frame, "concurrency"),
        ints(&|r| (r.cell != 1).then_some(4 << r.cell))
    );
    assert_eq!(
        integers(frame, "cell_input_len"),
        ints(&|r| (r.cell != 1).then_some(1024))
    );
    let outcomes: Vec<_> = records
        .iter()
        .map(|r| Some(r.outcome.as_str().to_owned()))
        .collect();
    assert_eq!(strings(frame, "outcome"), outcomes);
    let messages: Vec<_> = records
        .iter()
        .map(|r| r.failure.as_ref().map(|f| f.message.clone()))
        .collect();
    assert_eq!(strings(frame, "failure_message"), messages);
}

fn check_events(frame: &DataFrame, records: &[RequestRecord]) {
    let mut tokens = vec![];
    let mut absolute = vec![];
    let mut classes = vec![];
    for r in records {
        for (i, &t) in r.reads.t_ns.iter().enumerate() {
            tokens.push(Some(u64::from(r.reads.tokens[i])));
            absolute.push(r.t_sent_ns.map(|sent| (sent + t).as_nanos()));
            classes.push(Some(r.reads.class[i].as_str().to_owned()));
        }
    }
    assert_eq!(frame.height(), tokens.len());
    assert_eq!(integers(frame, "tokens"), tokens);
    assert_eq!(integers(frame, "t_abs_ns"), absolute);
    assert_eq!(strings(frame, "class"), classes);
    let bytes: u64 = integers(frame, "bytes").into_iter().flatten().sum();
    let expected: u64 = records
        .iter()
        .flat_map(|r| &r.reads.bytes)
        .map(|&b| u64::from(b))
        .sum();
    assert_eq!(bytes, expected);
}

#[test]
fn tables_hold_the_records_that_count() {
    let root = tempdir().unwrap();
    let dir = root.path().join("run");
    let records = write_run(&dir);
    let run = RunReader::open(&dir).unwrap();
    for format in [Format::Parquet, Format::Csv] {
        let out = root.path().join("tables");
        let files = export(&run, &out, format).unwrap();
        let names: Vec<_> = files
            .iter()
            .map(|f| f.file_name().unwrap().to_str().unwrap().to_owned())
            .collect();
        let ext = format.extension();
        assert_eq!(names, [format!("requests.{ext}"), format!("events.{ext}")]);
        check_requests(&read_back(&files[0], format), &records);
        check_events(&read_back(&files[1], format), &records);
    }
    let left = fs::read_dir(root.path().join("tables")).unwrap().count();
    assert_eq!(left, 4, "no temporary file stays");
}

#[test]
fn both_formats_have_the_same_columns() {
    let root = tempdir().unwrap();
    let dir = root.path().join("run");
    write_run(&dir);
    let run = RunReader::open(&dir).unwrap();
    let parquet = export(&run, root.path(), Format::Parquet).unwrap();
    let csv = export(&run, root.path(), Format::Csv).unwrap();
    for (a, b) in parquet.iter().zip(&csv) {
        let a = read_back(a, Format::Parquet);
        let b = read_back(b, Format::Csv);
        assert_eq!(a.get_column_names(), b.get_column_names());
    }
}

/// More reads than one batch holds: the row groups together are the whole.
#[test]
fn batches_join_up() {
    let root = tempdir().unwrap();
    let dir = root.path().join("run");
    let mut run = RunWriter::create(&dir, manifest(&[CellStatus::Complete])).unwrap();
    for index in 0..2 {
        run.append(&record(0, 0, index, 140_000)).unwrap();
    }
    drop(run);
    let run = RunReader::open(&dir).unwrap();
    let files = export(&run, root.path(), Format::Parquet).unwrap();
    let mut reader = ParquetReader::new(File::open(&files[1]).unwrap());
    assert_eq!(reader.get_metadata().unwrap().row_groups.len(), 2);
    let frame = read_back(&files[1], Format::Parquet);
    assert_eq!(frame.height(), 280_000);
    let sum = |name| integers(&frame, name).into_iter().flatten().sum::<u64>();
    assert_eq!(sum("tokens"), 280_000);
    assert_eq!(sum("index"), 140_000);
    // 50 ms + k * 9 ms, and one microsecond more for the second request.
    let ks: u64 = (0..140_000).sum();
    let each = 140_000 * 50_000_000 + 9_000_000 * ks;
    assert_eq!(sum("t_ns"), 2 * each + 140_000 * 1_000);
    let files = export(&run, root.path(), Format::Csv).unwrap();
    let lines = fs::read_to_string(&files[1]).unwrap().lines().count();
    assert_eq!(lines, 1 + 280_000, "one header for all batches");
}

#[test]
fn a_run_without_records_gives_tables_without_rows() {
    let root = tempdir().unwrap();
    let dir = root.path().join("run");
    drop(RunWriter::create(&dir, manifest(&[CellStatus::Pending])).unwrap());
    let run = RunReader::open(&dir).unwrap();
    let files = export(&run, root.path(), Format::Parquet).unwrap();
    let requests = read_back(&files[0], Format::Parquet);
    assert_eq!((requests.height(), requests.width()), (0, 31));
    assert_eq!(
        requests.column("t_sent_ns").unwrap().dtype(),
        &DataType::UInt64
    );
    let files = export(&run, root.path(), Format::Csv).unwrap();
    let header = fs::read_to_string(&files[1]).unwrap();
    assert_eq!(
        header,
        "cell,index,phase,t_ns,t_abs_ns,tokens,class,bytes,events\n"
    );
}

#[test]
fn a_malformed_record_leaves_the_old_table() {
    let root = tempdir().unwrap();
    let dir = root.path().join("run");
    write_run(&dir);
    fs::write(root.path().join("requests.csv"), "old").unwrap();
    let mut text = fs::read_to_string(dir.join(REQUESTS_FILE)).unwrap();
    text.push_str("{\"cell\":0,\"attempt\":0,\"index\":x}\n");
    fs::write(dir.join(REQUESTS_FILE), text).unwrap();
    let run = RunReader::open(&dir).unwrap();
    let error = export(&run, root.path(), Format::Csv).unwrap_err();
    assert!(matches!(error, StoreError::Record { .. }), "{error}");
    let old = fs::read_to_string(root.path().join("requests.csv")).unwrap();
    assert_eq!(old, "old");
}
