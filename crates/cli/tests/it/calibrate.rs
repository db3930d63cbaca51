//! `linktax calibrate`: its shape; what it measures is for a quiet machine.

use serde_json::Value;

use crate::rig::Rig;

#[test]
fn json_has_a_row_a_concurrency_with_the_clients_own_numbers() {
    let rig = Rig::bare();
    let args = [
        "calibrate",
        "--concurrency",
        "2,1",
        "--ttft-ms",
        "10",
        "--step-ms",
        "2",
        "--output-len",
        "16",
        "--json",
    ];
    let ran = rig.run(&args);
    assert!(matches!(ran.code, Some(0 | 1)), "{}", ran.err);
    let result: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&result["true_ttft_ms"], &result["true_step_ms"]),
        (&10.0.into(), &2.0.into())
    );
    let rows = result["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for (row, concurrency) in rows.iter().zip([1, 2]) {
        assert_eq!(row["concurrency"], concurrency);
        assert_eq!(row["requests"], 16);
        assert_eq!(row["failed"], 0);
        for key in [
            "ttft_bias_p50_ms",
            "delivery_lag_p50_ms",
            "delivery_lag_p99_ms",
            "output_throughput",
        ] {
            assert!(row[key].is_f64(), "{key}: {}", row[key]);
        }
        assert!(row["client"]["events"].as_u64() > Some(16 * 16));
        assert!(row["trustworthy"].is_boolean());
    }
    let trusted = result["trustworthy_up_to"].as_u64();
    assert_eq!(ran.code, Some(i32::from(trusted.is_none())));
    assert_eq!(ran.err.lines().count(), 2);
    assert_eq!(rig.files().len(), 0);
}

#[test]
fn the_table_names_truth_and_limits() {
    let rig = Rig::bare();
    let args = [
        "calibrate",
        "--concurrency",
        "1",
        "--ttft-ms",
        "5",
        "--step-ms",
        "2",
        "--output-len",
        "8",
    ];
    let ran = rig.run(&args);
    assert!(
        ran.out
            .starts_with("truth: first token after 5 ms, then one every 2 ms"),
        "{}",
        ran.out
    );
    for column in ["TTFT bias p50", "lag p99", "CPU us/event", "trustworthy"] {
        assert!(ran.out.contains(&format!(" {column} |")), "{column}");
    }
    assert!(ran.out.contains("trustworthy "), "{}", ran.out);
}

#[test]
fn senseless_settings_are_refused() {
    let rig = Rig::bare();
    for (flags, words) in [
        (
            &["--concurrency", "0"][..],
            &["--concurrency", "1 to 100000"][..],
        ),
        (&["--ttft-ms", "0"], &["--ttft-ms"]),
        (&["--ttft-ms", "nan"], &["--ttft-ms"]),
        (&["--step-ms", "-1"], &["--step-ms"]),
        (&["--step-ms", "inf"], &["--step-ms"]),
        (&["--output-len", "1"], &["--output-len", "2 to"]),
        (&["--threads", "0"], &["--threads", "1 to 64"]),
    ] {
        rig.run(&[&["calibrate"], flags].concat()).refused(words);
    }
}
