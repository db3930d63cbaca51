use std::fs::File;
use std::path::Path;

use linktax_store::StoreError;
use linktax_store::tables::{TypedTable, Values};
use polars::frame::DataFrame;
use polars::prelude::DataType;
use polars_io::SerReader;
use polars_io::parquet::read::ParquetReader;
use tempfile::tempdir;

fn read_back(path: &Path) -> DataFrame {
    ParquetReader::new(File::open(path).unwrap())
        .finish()
        .unwrap()
}

fn all_kinds() -> TypedTable {
    TypedTable::default()
        .with("step", vec![7u32, 8])
        .with("dur_ns", vec![Some(u64::MAX), None])
        .with("start_ns", vec![-5i64, i64::MIN])
        .with("share", vec![Some(0.25), None])
        .with("graphs", vec![true, false])
        .with("kind", vec!["decode", "mixed"])
        .with("mark", vec![None, Some("a\u{4f60}".to_owned())])
        .with("kernel", words(&[Some(1), None]))
}

fn words(places: &[Option<u32>]) -> Values {
    let long = ["x".repeat(300), "y".repeat(300)];
    Values::Words(long.to_vec(), places.to_vec())
}

#[test]
fn every_kind_of_column_comes_back() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("steps.parquet");
    all_kinds().write_parquet(&path).unwrap();
    let frame = read_back(&path);
    let kinds: Vec<(&str, DataType)> = frame
        .columns()
        .iter()
        .map(|c| (c.name().as_str(), c.dtype().clone()))
        .collect();
    assert_eq!(
        kinds,
        [
            ("step", DataType::UInt32),
            ("dur_ns", DataType::UInt64),
            ("start_ns", DataType::Int64),
            ("share", DataType::Float64),
            ("graphs", DataType::Boolean),
            ("kind", DataType::String),
            ("mark", DataType::String),
            ("kernel", DataType::String),
        ]
    );
    let column = |name| frame.column(name).unwrap();
    assert_eq!(column("step").u32().unwrap().to_vec(), [Some(7), Some(8)]);
    let long = column("dur_ns").u64().unwrap().to_vec();
    assert_eq!(long, [Some(u64::MAX), None]);
    let early = column("start_ns").i64().unwrap().to_vec();
    assert_eq!(early, [Some(-5), Some(i64::MIN)]);
    assert_eq!(column("share").f64().unwrap().to_vec(), [Some(0.25), None]);
    let flags: Vec<_> = column("graphs").bool().unwrap().iter().collect();
    assert_eq!(flags, [Some(true), Some(false)]);
    let marks: Vec<_> = column("mark").str().unwrap().iter().collect();
    assert_eq!(marks, [None, Some("a\u{4f60}")]);
    let kernels: Vec<_> = column("kernel").str().unwrap().iter().collect();
    assert_eq!(kernels, [Some("y".repeat(300).as_str()), None]);
}

#[test]
fn a_table_without_rows_keeps_its_columns_and_replaces_the_old_file() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    all_kinds().write_parquet(&path).unwrap();
    let empty = TypedTable::default()
        .with("step", Vec::<u32>::new())
        .with("kind", Vec::<&str>::new());
    empty.write_parquet(&path).unwrap();
    let frame = read_back(&path);
    assert_eq!((frame.height(), frame.width()), (0, 2));
    let names: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["t.parquet"]);
}

#[test]
fn columns_that_do_not_fit_are_an_error_and_leave_nothing() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("t.parquet");
    let uneven = TypedTable::default()
        .with("a", vec![1u32, 2])
        .with("b", vec![1u32]);
    let twice = TypedTable::default()
        .with("a", vec![1u32])
        .with("a", vec![1u32]);
    let beyond = TypedTable::default().with("a", words(&[Some(2)]));
    for wrong in [uneven, twice, beyond] {
        let error = wrong.write_parquet(&path).unwrap_err();
        assert!(matches!(error, StoreError::Table { .. }), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
    let nowhere = dir.path().join("absent/t.parquet");
    let error = TypedTable::default().write_parquet(&nowhere).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
}
