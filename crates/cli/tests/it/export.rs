//! `linktax export`, with the tables that a full build writes.

use crate::rig::{Rig, SMALL, fast};

#[test]
fn parquet_beside_the_run_and_csv_elsewhere() {
    let rig = Rig::new(fast());
    rig.bench("run", &SMALL);
    let ran = rig.run(&["export", "run"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for name in ["requests.parquet", "events.parquet"] {
        let bytes = std::fs::read(rig.path("run").join(name)).unwrap();
        assert_eq!(
            (&bytes[..4], &bytes[bytes.len() - 4..]),
            (&b"PAR1"[..], &b"PAR1"[..]),
            "{name}"
        );
        assert!(ran.out.contains(name), "{}", ran.out);
    }
    let ran = rig.run(&["export", "run", "--format", "csv", "--out", "tables/here"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let lines = |name: &str| rig.read("tables/here", name).lines().count();
    // A header, and one line a request; one line a read of each.
    assert_eq!(lines("requests.csv"), 1 + 8);
    let reads = |line: &str| -> usize {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        record["reads"]["t_ns"].as_array().unwrap().len()
    };
    let reads: usize = rig.read("run", "requests.jsonl").lines().map(reads).sum();
    assert_eq!(lines("events.csv"), 1 + reads);
    assert!(rig.read("tables/here", "requests.csv").starts_with("cell,"));
}

#[test]
fn what_is_no_run_and_where_nothing_can_be_written() {
    let rig = Rig::new(fast());
    rig.run(&["export", "nowhere"]).refused(&["nowhere"]);
    rig.bench("run", &SMALL);
    rig.write("file", "");
    rig.run(&["export", "run", "--out", "file"])
        .refused(&["file"]);
    rig.run(&["export", "run", "--format", "xlsx"])
        .refused(&["xlsx", "parquet", "csv"]);
}
