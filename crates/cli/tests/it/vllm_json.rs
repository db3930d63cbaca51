//! `--vllm-json`: the keys of `vllm bench serve`.

use serde_json::Value;

use crate::rig::{Rig, SMALL, fast};

/// Keys of vLLM's file that dashboards and scripts read.
const KEYS: [&str; 24] = [
    "date",
    "endpoint_type",
    "backend",
    "model_id",
    "tokenizer_id",
    "num_prompts",
    "request_rate",
    "burstiness",
    "max_concurrency",
    "duration",
    "completed",
    "failed",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "mean_ttft_ms",
    "median_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "median_tpot_ms",
    "mean_itl_ms",
    "std_itl_ms",
];

const ARRAYS: [&str; 6] = [
    "input_lens",
    "output_lens",
    "ttfts",
    "itls",
    "generated_texts",
    "errors",
];

fn lines(rig: &Rig) -> Vec<Value> {
    let text = std::fs::read_to_string(rig.path("v.json")).unwrap();
    text.lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect()
}

#[test]
fn one_line_a_cell_with_the_keys_of_vllm() {
    let rig = Rig::new(fast());
    let flags = [
        "--concurrency",
        "1,2",
        "--input-len",
        "32",
        "--output-len",
        "4",
        "--vllm-json",
        "v.json",
    ];
    rig.bench("run", &flags);
    let lines = lines(&rig);
    assert_eq!(lines.len(), 2);
    for (line, concurrency) in lines.iter().zip([1, 2]) {
        for key in KEYS {
            assert!(line.get(key).is_some(), "no {key}");
        }
        assert_eq!(line["max_concurrency"], concurrency);
        assert_eq!(line["completed"], 8);
        assert!(
            line.get("ttfts").is_none(),
            "arrays only with --save-detailed"
        );
    }
}

#[test]
fn detailed_arrays_have_an_entry_a_request() {
    let rig = Rig::new(fast());
    let flags = [&SMALL[..], &["--vllm-json", "v.json", "--save-detailed"]].concat();
    rig.bench("run", &flags);
    let lines = lines(&rig);
    for key in ARRAYS {
        assert_eq!(lines[0][key].as_array().map(Vec::len), Some(8), "{key}");
    }
    // Two chunks may share a read on a busy machine.
    let gaps = lines[0]["itls"][0].as_array().map_or(0, Vec::len);
    assert!((1..=7).contains(&gaps), "{gaps}");
    assert!(
        lines[0]["generated_texts"][0]
            .as_str()
            .is_some_and(|t| !t.is_empty())
    );
}

#[test]
fn a_run_that_does_not_start_leaves_the_file_as_it_was() {
    let mut rig = Rig::new(fast());
    let url = rig.url();
    rig.stop_server();
    let args = [
        &rig.bench_args("run", &SMALL, &url)[..],
        &["--vllm-json", "v.json"],
    ]
    .concat();
    rig.run(&args).refused(&["is the server up"]);
    assert_eq!(rig.files().len(), 0);
    rig.write("v.json", "earlier results\n");
    rig.run(&args).refused(&["is the server up"]);
    assert_eq!(
        std::fs::read_to_string(rig.path("v.json")).unwrap(),
        "earlier results\n"
    );
}
