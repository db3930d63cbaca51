//! The whole JSON of one small cell.

use linktax_metrics::Options;
use serde_json::{Map, Value};

use crate::cells::{closed, request, steps, sum};

/// Keys in alphabetical order whatever the map type, floats to six digits: libm differs in the last bit.
fn tidy(json: &Map<String, Value>) -> String {
    let mut keys: Vec<&String> = json.keys().collect();
    keys.sort();
    let line = |key: &&String| {
        let value = &json[*key];
        match value.as_f64() {
            Some(number) if value.is_f64() => format!("{key}: {number:.6}"),
            _ => format!("{key}: {value}"),
        }
    };
    let keys = keys.iter().filter(|key| **key != "null_reasons");
    keys.map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_small_cell() {
    let records: Vec<_> = (0..10_u32)
        .map(|i| {
            let mut gaps = vec![20.0 + f64::from(i % 3); 15];
            if i == 4 {
                gaps[7] = 700.0;
            }
            let start = f64::from(i / 2) * 1200.0 + f64::from(i % 2) * 30.0;
            request(u64::from(i), start, &steps(80.0 + f64::from(i), &gaps))
        })
        .collect();
    let opts = Options {
        gpus: Some(2),
        slos: vec!["ttft:85".parse().unwrap(), "tpot:30".parse().unwrap()],
        ..Options::default()
    };
    let json = sum(&records, &closed(2), &opts).to_json();
    insta::assert_snapshot!(tidy(&json));
}

#[test]
fn the_reasons_of_an_empty_cell() {
    let json = sum(&[], &closed(2), &Options::default()).to_json();
    let reasons = json["null_reasons"].as_object().unwrap();
    insta::assert_snapshot!(tidy(reasons));
}
