//! Every key is defined in the one place.

use linktax_metrics::Options;

use crate::cells::{closed, request, steps, sum};

const METRICS: &str = include_str!("../../../../docs/metrics.md");

/// The names in backquotes in the first column of the tables.
fn documented() -> Vec<&'static str> {
    let rows = METRICS.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect()
}

/// A documented name with its placeholder filled in.
fn expand(name: &str, families: &[&str], percentiles: &[f64]) -> Vec<String> {
    let mut names = vec![name.to_owned()];
    if name.contains("{m}") {
        names = families.iter().map(|m| name.replace("{m}", m)).collect();
    }
    if name.contains("{P}") {
        let with_p = |name: &String| {
            let name = name.clone();
            percentiles
                .iter()
                .map(move |p| name.replace("{P}", &p.to_string()))
                .collect::<Vec<_>>()
        };
        names = names.iter().flat_map(with_p).collect();
    }
    names
}

#[test]
fn every_key_is_documented_and_every_documented_key_exists() {
    let records: Vec<_> = (0..4_u32)
        .map(|i| {
            request(
                u64::from(i),
                f64::from(i) * 900.0,
                &steps(100.0, &[20.0; 9]),
            )
        })
        .collect();
    let opts = Options {
        percentiles: vec![50.0, 99.0, 99.9],
        ..Options::default()
    };
    let summary = sum(&records, &closed(1), &opts);
    let json = summary.to_json();
    let families = summary.families().map(|(name, _)| name);
    let mut names: Vec<String> = documented()
        .into_iter()
        .flat_map(|name| expand(name, &families, &opts.percentiles))
        .collect();
    // A throughput's share of one GPU is defined once for all of them.
    let per_gpu: Vec<String> = json
        .keys()
        .filter(|key| {
            key.strip_suffix("_per_gpu")
                .is_some_and(|total| names.iter().any(|n| n == total))
        })
        .cloned()
        .collect();
    assert!(METRICS.contains("_per_gpu"));
    names.extend(per_gpu);
    let undocumented: Vec<&String> = json.keys().filter(|key| !names.contains(key)).collect();
    assert!(
        undocumented.is_empty(),
        "not in docs/metrics.md: {undocumented:?}"
    );
    let gone: Vec<&String> = names
        .iter()
        .filter(|name| !json.contains_key(*name))
        .collect();
    assert!(
        gone.is_empty(),
        "in docs/metrics.md, but not written: {gone:?}"
    );
}
