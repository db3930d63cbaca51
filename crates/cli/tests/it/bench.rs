//! What a good run leaves, prints and returns.

use jsonschema::Validator;
use serde_json::Value;

use crate::rig::{Rig, SMALL, engine, fast, number, results};

fn validator(schema: &str) -> Validator {
    jsonschema::draft202012::new(&serde_json::from_str(schema).unwrap()).unwrap()
}

#[track_caller]
fn conforms(validator: &Validator, value: &Value) {
    let errors: Vec<String> = validator
        .iter_errors(value)
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn a_run_leaves_files_that_conform_to_their_schemas() {
    let rig = Rig::new(fast());
    let ran = rig.bench(
        "run",
        &[
            "--concurrency",
            "1,2",
            "--input-len",
            "32,64",
            "--output-len",
            "8",
        ],
    );
    let run = rig.manifest("run");
    assert_eq!(ran.reasons(&run), vec![Vec::<String>::new(); 4]);
    assert!(ran.out.contains("\nrun directory: run\n"), "{}", ran.out);
    assert_eq!(ran.err, "", "--quiet says nothing");

    conforms(&validator(linktax_store::RUN_SCHEMA), &rig.run_json("run"));
    let record = validator(linktax_store::REQUEST_SCHEMA);
    let lines = rig.read("run", "requests.jsonl");
    for line in lines.lines() {
        conforms(&record, &serde_json::from_str(line).unwrap());
    }
    // Eight measured ones a cell, and a warm-up for each stream.
    assert_eq!(lines.lines().count(), 4 * 8 + 2 * (1 + 2));
    let server: Value = serde_json::from_str(&rig.read("run", "server.json")).unwrap();
    for cell in 0..4 {
        let raw = &server["cells"][cell.to_string()];
        assert!(
            raw["before"].is_object() || raw["before"].is_array(),
            "{raw}"
        );
        assert!(!raw["after"].is_null());
    }
}

#[test]
fn progress_goes_to_stderr_and_the_table_to_stdout() {
    let rig = Rig::new(fast());
    let url = rig.url();
    let mut args = vec![
        "bench",
        "--base-url",
        &url,
        "--out",
        "run",
        "--gpus",
        "2",
        "--arm",
        "nvlink",
    ];
    args.extend(SMALL);
    let ran = rig.run(&args);
    ran.reasons(&rig.manifest("run"));
    assert_eq!(
        ran.err,
        "run directory: run\ncell 1/1: input 64, output 8, concurrency 2, cache cold\n"
    );
    assert!(ran.out.starts_with("linktax "), "{}", ran.out);
    let heading = ran.out.lines().next().unwrap();
    for word in [
        "arm nvlink",
        "server version 0.32.0",
        "2 GPU(s) (flag)",
        "seed 0",
        "nonce ",
    ] {
        assert!(heading.contains(word), "{heading}");
    }
    for table in [
        "Throughput and latency",
        "Decode and stalls",
        "Server and client",
    ] {
        assert!(ran.out.contains(&format!("\n{table}\n|")), "{table}");
    }
    for column in [
        "TTFT p50",
        "TPOT mean",
        "out tok/s",
        "out/GPU",
        "verdict",
        "decode tok/s",
        "usual tok/s",
        "stall s",
        "separable",
        "hit rate",
        "ours - server",
        "client CPU",
    ] {
        assert!(ran.out.contains(&format!(" {column} |")), "{column}");
    }
    assert!(
        !ran.out.contains("Arrival and objectives"),
        "a closed loop without objectives"
    );
}

#[test]
fn json_on_stdout_is_run_json() {
    let rig = Rig::new(fast());
    let flags = [&SMALL[..], &["--json"]].concat();
    let ran = rig.bench("run", &flags);
    let printed: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(printed, rig.run_json("run"));
}

#[test]
fn summarize_reproduces_every_number_without_the_server() {
    let mut rig = Rig::new(engine());
    let flags = [
        "--concurrency",
        "1,4",
        "--input-len",
        "64",
        "--output-len",
        "16",
        "--goodput",
        "ttft:500",
        "tpot:50",
    ];
    let ran = rig.bench("run", &flags);
    ran.reasons(&rig.manifest("run"));
    rig.stop_server();

    let again = rig.run(&["summarize", "run", "--json"]);
    assert_eq!(again.code, ran.code);
    let again: Value = serde_json::from_str(&again.out).unwrap();
    assert_eq!(again["cells"], rig.run_json("run")["cells"]);
    let table = rig.run(&["summarize", "run"]);
    let bench_table = ran.out.split("run directory:").next().unwrap();
    assert_eq!(table.out, bench_table);
}

#[test]
fn summarize_flags_a_cell_whose_records_are_not_those_it_ended_with() {
    let rig = Rig::new(fast());
    rig.bench("run", &SMALL);
    let path = rig.path("run/requests.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    std::fs::write(&path, lines[..lines.len() - 1].join("\n") + "\n").unwrap();
    let ran = rig.run(&["summarize", "run"]);
    assert_eq!(ran.code, Some(1));
    let said =
        "records_changed: requests.jsonl holds 7 measured requests of this cell, which had 8";
    assert!(ran.out.contains(said), "{}", ran.out);
}

#[test]
fn a_client_that_was_not_watched_is_unknown_and_not_idle() {
    let rig = Rig::new(fast());
    rig.bench("run", &SMALL);
    let mut run = rig.run_json("run");
    run["cells"][0]["client"] = Value::Null;
    std::fs::write(rig.path("run/run.json"), run.to_string()).unwrap();
    let ran = rig.run(&["summarize", "run"]);
    let row = ran.out.lines().rfind(|l| l.starts_with('|')).unwrap();
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    assert_eq!(cells[13], "unknown", "{row}");
}

#[test]
fn summarize_takes_another_threshold_gpu_count_and_objectives() {
    let rig = Rig::new(fast());
    rig.bench("run", &SMALL);
    let before = rig.run_json("run");
    let with = |flags: &[&str]| -> linktax_records::RunManifest {
        let ran = rig.run(&[&["summarize", "run", "--json"], flags].concat());
        serde_json::from_str(&ran.out).unwrap()
    };
    // Two ms steps: with 1 us every gap is a stall, with a minute none is.
    let all = with(&["--stall-gap", "1us"]);
    assert_eq!(
        number(&all, 0, "stall_count"),
        number(&all, 0, "n_step_gap")
    );
    assert!(results(&all, 0)["decode_tok_s"].is_null());
    let none = with(&["--stall-gap", "60s"]);
    assert_eq!(number(&none, 0, "stall_count"), 0.0);
    let off = with(&["--stall-gap", "off"]);
    assert!(results(&off, 0)["stall_count"].is_null());
    let halved = with(&["--gpus", "4"]);
    assert_eq!(
        number(&halved, 0, "output_throughput_per_gpu") * 4.0,
        number(&halved, 0, "output_throughput")
    );
    let judged = with(&["--goodput", "ttft:0.001"]);
    assert_eq!(number(&judged, 0, "slo_attainment"), 0.0);
    assert_eq!(rig.run_json("run"), before, "summarize changes nothing");
}

#[test]
fn per_gpu_and_goodput_are_columns() {
    let rig = Rig::new(fast());
    let flags = [
        &SMALL[..],
        &["--gpus", "2", "--goodput", "ttft:60000", "e2el:60000"],
    ]
    .concat();
    let ran = rig.bench("run", &flags);
    let run = rig.manifest("run");
    assert_eq!(ran.reasons(&run), [[""; 0]]);
    assert_eq!(
        number(&run, 0, "output_throughput_per_gpu") * 2.0,
        number(&run, 0, "output_throughput")
    );
    assert_eq!(number(&run, 0, "slo_attainment"), 1.0);
    assert_eq!(
        number(&run, 0, "request_goodput"),
        number(&run, 0, "request_throughput")
    );
    assert!(ran.out.contains("Arrival and objectives"), "{}", ran.out);
    assert!(
        ran.out.contains("100.0 % | ttft:60000 e2el:60000 |"),
        "{}",
        ran.out
    );
    assert!(!ran.out.contains("target req/s"), "no rate was asked for");
}

#[test]
fn an_open_loop_says_target_and_achieved_rate() {
    let rig = Rig::new(fast());
    let flags = [
        "--request-rate",
        "50",
        "--burstiness",
        "inf",
        "--requests",
        "20",
        "--input-len",
        "32",
        "--output-len",
        "4",
    ];
    let ran = rig.bench("run", &flags);
    let run = rig.manifest("run");
    assert_eq!(number(&run, 0, "target_rate"), 50.0);
    assert_eq!(number(&run, 0, "completed"), 20.0);
    assert!(number(&run, 0, "achieved_rate") > 0.0);
    assert!(number(&run, 0, "n_ttft_from_sched") == 20.0);
    for column in ["target req/s", "sent req/s", "TTFT from due p50"] {
        assert!(ran.out.contains(column), "{column}");
    }
}

#[test]
fn a_cell_bounded_by_time_ends_by_itself() {
    let rig = Rig::new(fast());
    rig.bench(
        "run",
        &[
            "--concurrency",
            "2",
            "--duration",
            "0.3",
            "--input-len",
            "32",
            "--output-len",
            "4",
        ],
    );
    let run = rig.manifest("run");
    assert!(number(&run, 0, "completed") > 0.0);
    assert_eq!(run.cells[0].spec.duration_s, Some(0.3));
    assert_eq!(run.cells[0].spec.requests, None);
}

#[test]
fn chat_and_its_lengths() {
    let rig = Rig::new(fast());
    let flags = [&SMALL[..], &["--endpoint", "chat"]].concat();
    let ran = rig.bench("run", &flags);
    let run = rig.manifest("run");
    assert_eq!(ran.reasons(&run), [[""; 0]]);
    assert_eq!(number(&run, 0, "total_output_tokens"), 64.0);
}

#[test]
fn replicas_share_the_requests() {
    let (rig, other) = (Rig::new(fast()), Rig::new(fast()));
    let (a, b) = (rig.url(), other.url());
    let mut args = vec![
        "bench",
        "--base-url",
        &a,
        "--base-url",
        &b,
        "--out",
        "run",
        "-q",
    ];
    args.extend(SMALL);
    let ran = rig.run(&args);
    let run = rig.manifest("run");
    assert_eq!(ran.reasons(&run), [[""; 0]]);
    assert!(ran.out.contains(&format!("{a} + {b}")), "{}", ran.out);
    let on = |n: u64| {
        rig.read("run", "requests.jsonl")
            .lines()
            .filter(|l| serde_json::from_str::<Value>(l).unwrap()["replica"] == n)
            .count()
    };
    assert_eq!((on(0), on(1)), (4, 4));
}

#[test]
fn every_thread_count_sends_every_request() {
    let rig = Rig::new(fast());
    let flags = [
        "--concurrency",
        "1,3",
        "--threads",
        "2",
        "--requests",
        "9",
        "--input-len",
        "32",
        "--output-len",
        "4",
    ];
    let ran = rig.bench("run", &flags);
    let run = rig.manifest("run");
    assert_eq!(ran.reasons(&run), [[""; 0], [""; 0]]);
    for cell in 0..2 {
        assert_eq!(number(&run, cell, "completed"), 9.0);
    }
}

#[test]
fn the_built_in_server_needs_no_flag_but_mock() {
    let rig = Rig::bare();
    let ran = rig.run(&["bench", "--mock", "--requests", "2", "--out", "run"]);
    let run = rig.manifest("run");
    assert_eq!(run.cells.len(), 3);
    assert!(run.cells.iter().all(|c| c.results.is_some()), "{}", ran.err);
    let plan = &run.plan["mock"];
    assert_eq!(plan["mode"], "engine");
}

#[test]
fn a_mock_run_from_a_settings_file() {
    let rig = Rig::bare();
    rig.write("mock.toml", "model = \"tiny\"\nttft_ms = 5\nstep_ms = 2\n");
    let mut args = vec![
        "bench",
        "--mock",
        "--mock-config",
        "mock.toml",
        "--out",
        "run",
        "-q",
    ];
    args.extend(SMALL);
    let ran = rig.run(&args);
    let run = rig.manifest("run");
    assert_eq!(ran.reasons(&run), [[""; 0]]);
    assert_eq!(run.servers[0]["models"][0], "tiny");
}

#[test]
fn without_out_the_directory_is_named_after_arm_and_time() {
    let rig = Rig::new(fast());
    let url = rig.url();
    let mut args = vec!["bench", "--base-url", &url, "--arm", "tp 2/pcie", "-q"];
    args.extend(SMALL);
    let ran = rig.run(&args);
    let line = ran.out.lines().last().unwrap();
    let dir = line.strip_prefix("run directory: ").unwrap();
    assert!(dir.starts_with("runs/tp-2-pcie-"), "{dir}");
    rig.manifest(dir);
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let rig = Rig::new(fast());
    let url = rig.url();
    let mut args = rig.bench_args("run", &SMALL, &url);
    args.retain(|a| *a != "--quiet");
    let mut child = rig
        .command(&args)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(!err.contains("rror"), "{err}");
    assert_eq!(output.status.code(), Some(0), "{err}");
}
