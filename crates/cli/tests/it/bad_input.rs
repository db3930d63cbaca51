//! Bad input: one line that says what is wrong and what to do, exit code 2, nothing written.

use std::io::{Read, Write};
use std::net::TcpListener;

use linktax_mockserver::{Fault, FaultKind, MockConfig};

use crate::rig::{Ran, Rig, SMALL, fast};

/// A server that answers everything with this, until the test process ends.
fn canned(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let head = format!("HTTP/1.1 {answer}");
            let _ = stream.write_all(head.as_bytes());
        }
    });
    url
}

fn against(url: &str) -> Ran {
    let rig = Rig::bare();
    let ran = rig.run(&rig.bench_args("run", &SMALL, url));
    assert_eq!(
        rig.files().len(),
        0,
        "nothing is written: {:?}",
        rig.files()
    );
    ran
}

fn at_fault(kind: FaultKind) -> Ran {
    let rig = Rig::new(MockConfig {
        fault: vec![Fault::always(kind)],
        ..fast()
    });
    let ran = rig.bench("run", &SMALL);
    assert_eq!(
        rig.files().len(),
        0,
        "nothing is written: {:?}",
        rig.files()
    );
    ran
}

#[test]
fn a_server_that_is_none() {
    against("http://127.0.0.1:1").refused(&[
        "http://127.0.0.1:1/v1/models",
        "refused",
        "is the server up?",
    ]);
    against("http://no-such-host.invalid:8000")
        .refused(&["no-such-host.invalid", "is the server up?"]);
    against("127.0.0.1:8000").refused(&["127.0.0.1:8000", "http://127.0.0.1:8000"]);
    against("ftp://127.0.0.1").refused(&["ftp://127.0.0.1", "only http:// and https://"]);
    against("http://127.0.0.1:8000/?x=1").refused(&["no query"]);
    let html = canned(
        "200 OK\r\ncontent-type: text/html\r\ncontent-length: 38\r\nconnection: close\r\n\r\n\
         <!DOCTYPE html><html><body>hi</body></",
    );
    against(&html).refused(&["/v1/models", "an HTML page", "check host and port"]);
    let missing = canned("404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    against(&missing).refused(&["HTTP status 404", "without /v1/"]);
    let other = canned("200 OK\r\ncontent-length: 13\r\nconnection: close\r\n\r\n{\"status\":1}\n");
    against(&other).refused(&["expected a list of models"]);
    let secret = canned("401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    against(&secret).refused(&["HTTP status 401", "--api-key-env"]);
    let garbage = canned("2000 what\r\n\r\n");
    against(&garbage).refused(&["/v1/models"]);
    let rig = Rig::bare();
    rig.run(&["bench"]).refused(&["--base-url", "--mock"]);
}

#[test]
fn a_server_that_cannot_be_measured() {
    at_fault(FaultKind::NotStream).refused(&["/v1/completions", "needs a server that streams"]);
    at_fault(FaultKind::Html).refused(&["/v1/completions", "an HTML page"]);
    at_fault(FaultKind::JsonError200).refused(&["/v1/completions"]);
    at_fault(FaultKind::NoOutput).refused(&["without a single token"]);
    at_fault(FaultKind::Reset).refused(&["a probe of four tokens failed", "reset"]);
    at_fault(FaultKind::HttpError).refused(&["HTTP status 500"]);
}

#[test]
fn a_model_that_is_not_there_and_one_too_short() {
    let rig = Rig::new(MockConfig {
        max_model_len: 100,
        ..fast()
    });
    let flags = [&SMALL[..], &["--model", "nope"]].concat();
    rig.bench("run", &flags)
        .refused(&["\"nope\"", "--model must be one of: mock"]);
    assert_eq!(rig.files().len(), 0);
}

#[test]
fn a_place_that_cannot_hold_a_run() {
    let rig = Rig::new(fast());
    rig.write("file", "in the way");
    for (out, words) in [
        ("file", &["file: is not a directory", "--out"][..]),
        ("file/run", &["file/run: is not a directory", "--out"]),
        ("/proc/run", &["/proc/run: is not writable", "--out"]),
    ] {
        rig.bench(out, &SMALL).refused(words);
    }
    assert_eq!(
        std::fs::read_to_string(rig.path("file")).unwrap(),
        "in the way"
    );
    let flags = [&SMALL[..], &["--vllm-json", "no/such/dir.json"]].concat();
    rig.bench("run", &flags)
        .refused(&["--vllm-json no/such/dir.json"]);
    assert_eq!(rig.files().len(), 1);
}

/// Flags (split at spaces), and what the line must say.
const FLAGS: &[(&str, &[&str])] = &[
    ("--concurrency 0", &["--concurrency", "from 1 to 100000"]),
    ("--concurrency -1", &["--concurrency", "from 1 to 100000"]),
    ("--concurrency 1,,2", &["--concurrency", "from 1 to 100000"]),
    ("--concurrency many", &["--concurrency", "from 1 to 100000"]),
    (
        "--concurrency 99999999999",
        &["--concurrency", "from 1 to 100000"],
    ),
    ("--input-len 0", &["--input-len", "from 1 to 100000000"]),
    ("--input-len -5", &["--input-len", "from 1 to 100000000"]),
    (
        "--input-len 99999999999",
        &["--input-len", "from 1 to 100000000"],
    ),
    ("--output-len 0", &["--output-len", "from 1 to 100000000"]),
    ("--output-len 1.5", &["--output-len", "from 1 to 100000000"]),
    ("--requests 0", &["--requests", "from 1 to 1000000000"]),
    ("--requests -1", &["--requests", "from 1 to 1000000000"]),
    (
        "--requests 99999999999999999999",
        &["--requests", "from 1 to 1000000000"],
    ),
    ("--duration 0", &["--duration 0", "more than 0"]),
    ("--duration -1", &["--duration -1", "more than 0"]),
    ("--duration nan", &["--duration NaN", "more than 0"]),
    ("--duration inf", &["--duration inf", "at most 604800"]),
    ("--duration soon", &["--duration", "expected a number"]),
    ("--requests 5 --duration 5", &["--requests", "--duration"]),
    ("--duration 5 --cache warm", &["--cache warm", "--requests"]),
    ("--request-rate 0", &["--request-rate 0", "more than 0"]),
    ("--request-rate -2", &["--request-rate -2", "more than 0"]),
    ("--request-rate nan", &["--request-rate NaN", "more than 0"]),
    (
        "--request-rate inf",
        &["--request-rate inf", "--concurrency"],
    ),
    (
        "--request-rate 2 --concurrency 1,2",
        &["--concurrency", "one number"],
    ),
    (
        "--request-rate 2 --burstiness 0",
        &["--burstiness 0", "more than 0"],
    ),
    (
        "--request-rate 2 --burstiness -1",
        &["--burstiness -1", "more than 0"],
    ),
    (
        "--request-rate 2 --burstiness nan",
        &["--burstiness NaN", "more than 0"],
    ),
    ("--burstiness 2", &["--request-rate"]),
    (
        "--cache hot",
        &["--cache", "`cold`, `warm`, `prefix=SHARE`"],
    ),
    ("--cache prefix=2", &["--cache", "above 0, below 1"]),
    ("--cache prefix=nan", &["--cache", "above 0, below 1"]),
    ("--length-dist zipf:1", &["--length-dist", "`uniform:R`"]),
    ("--length-dist uniform:7", &["--length-dist", "below 1"]),
    (
        "--random-range-ratio -1",
        &["--random-range-ratio -1", "less than 1"],
    ),
    (
        "--random-range-ratio 1",
        &["--random-range-ratio 1", "less than 1"],
    ),
    ("--random-range-ratio nan", &["--random-range-ratio NaN"]),
    (
        "--random-range-ratio 0.1 --length-dist fixed",
        &["--length-dist"],
    ),
    ("--speedup 2", &["--speedup is for traces"]),
    ("--num-warmups -1", &["--num-warmups", "from 0 to"]),
    (
        "--num-warmups 99999999999999",
        &["--num-warmups", "from 0 to"],
    ),
    (
        "--token-id-min 4000",
        &["token_id_min = 4000", "at least 256"],
    ),
    (
        "--token-id-max 4294967296",
        &["--token-id-max", "from 0 to 4294967295"],
    ),
    ("--seed -1", &["--seed", "from 0 to"]),
    ("--nonce xyz", &["--nonce xyz", "hexadecimal"]),
    ("--nonce +1", &["--nonce +1", "hexadecimal"]),
    ("--nonce 0x", &["--nonce 0x", "hexadecimal"]),
    ("--nonce 11112222333344445", &["--nonce", "hexadecimal"]),
    ("--temperature -1", &["--temperature -1", "0 or more"]),
    ("--temperature nan", &["--temperature NaN"]),
    ("--extra-body [1]", &["--extra-body", "a JSON object"]),
    ("--extra-body {", &["--extra-body", "not JSON"]),
    (
        "--extra-body {\"stream\":false}",
        &["--extra-body", "\"stream\""],
    ),
    ("--connect-timeout 0", &["--connect-timeout", "more than 0"]),
    (
        "--connect-timeout nan",
        &["--connect-timeout", "more than 0"],
    ),
    (
        "--first-token-timeout inf",
        &["--first-token-timeout", "at most 86400"],
    ),
    ("--idle-timeout -1", &["--idle-timeout", "more than 0"]),
    ("--stall-gap 200", &["--stall-gap", "200ms", "auto, or off"]),
    ("--stall-gap fast", &["--stall-gap", "auto, or off"]),
    ("--stall-gap -1ms", &["--stall-gap", "positive"]),
    ("--gpus 0", &["--gpus", "from 1 to 65536"]),
    ("--gpus -2", &["--gpus", "from 1 to 65536"]),
    ("--goodput ttft", &["--goodput", "METRIC:MS"]),
    ("--goodput itl:5", &["--goodput", "ttft, tpot, e2el"]),
    ("--goodput ttft:-5", &["--goodput", "positive"]),
    ("--goodput tpot:nan", &["--goodput", "positive"]),
    ("--max-failures -1", &["--max-failures", "from 0 to"]),
    ("--threads 0", &["--threads", "from 1 to 64"]),
    ("--threads 65", &["--threads", "from 1 to 64"]),
    ("--concurrency 1 --threads 2", &["--threads", "2 threads"]),
    (
        "--metrics-interval -1",
        &["--metrics-interval -1", "0 (off)"],
    ),
    ("--metrics-interval nan", &["--metrics-interval NaN"]),
    ("--frobnicate", &["--frobnicate"]),
    ("--concurency 2", &["--concurency", "--concurrency"]),
    ("--endpoint responses", &["--endpoint", "completions, chat"]),
    (
        "--token-count guess",
        &["--token-count", "auto, continuous"],
    ),
    ("--mock", &["--mock", "--base-url"]),
    ("--mock-config m.toml", &["--mock-config"]),
    ("--save-detailed", &["--vllm-json"]),
    ("--dataset-name jsonl", &["--dataset-path"]),
    ("--dataset-path x", &["--dataset-name"]),
    (
        "--dataset-name jsonl --dataset-path missing.jsonl",
        &["missing.jsonl", "No such file"],
    ),
    (
        "--dataset-name alpaca --dataset-path x",
        &["--dataset-name", "jsonl, sharegpt, trace"],
    ),
    ("--workload missing.toml", &["missing.toml", "No such file"]),
    ("--header novalue", &["--header novalue", "Name=Value"]),
    ("--header X:Y=z", &["--header", "not a header name"]),
    (
        "--api-key-env A=B",
        &["--api-key-env A=B", "environment variable"],
    ),
    ("stray", &["stray"]),
];

#[test]
fn flags_that_make_no_sense() {
    let rig = Rig::new(fast());
    for (flags, words) in FLAGS {
        let flags: Vec<&str> = flags.split(' ').collect();
        let ran = rig.bench("run", &flags);
        eprintln!("{flags:?}: {}", ran.err);
        ran.refused(words);
        assert_eq!(rig.files().len(), 0, "{flags:?} wrote {:?}", rig.files());
    }
}

#[test]
fn a_workload_file_is_wrong_at_a_line() {
    let rig = Rig::new(fast());
    for (text, words) in [
        (
            "[run]\nconcurency = [1]\n",
            &["w.toml:2:1", "`concurency`", "`concurrency`"][..],
        ),
        ("[run]\nconcurrency = 4\n", &["w.toml:2:15"]),
        (
            "[run]\nconcurrency = [0]\n",
            &["w.toml:2: concurrency 0", "1 to 100000"],
        ),
        ("[run]\nconcurrency = [-1]\n", &["w.toml:2:16"]),
        ("[run]\ninput_len = [0]\n", &["w.toml:2: input_len 0"]),
        (
            "[run]\nrequests = 0\n",
            &["w.toml:2: requests 0", "at least 1"],
        ),
        (
            "[run]\nduration_s = -1.0\n",
            &["w.toml:2: duration_s -1", "more than 0"],
        ),
        (
            "[run]\nrequest_rate = nan\n",
            &["w.toml:2: request_rate NaN"],
        ),
        (
            "[run]\nstall_gap = \"200\"\n",
            &["w.toml:2: stall_gap: stall gap \"200\""],
        ),
        (
            "[run]\nendpoint = \"responses\"\n",
            &["w.toml:2: endpoint \"responses\"", "completions or chat"],
        ),
        (
            "[run]\ncache = \"hot\"\n",
            &["w.toml:2:9", "`prefix=SHARE`"],
        ),
        (
            "[workload]\nkind = \"shared\"\n",
            &["w.toml:2:8", "`sharegpt`"],
        ),
        (
            "[workload]\nkind = \"jsonl\"\n",
            &["w.toml: path is missing"],
        ),
        (
            "[workload]\nlengths = \"zipf\"\n",
            &["w.toml:2:11", "`uniform:R`"],
        ),
        ("[run\n", &["w.toml:1:"]),
    ] {
        rig.write("w.toml", text);
        let ran = rig.bench("run", &["--workload", "w.toml"]);
        eprintln!("{text:?}: {}", ran.err);
        ran.refused(words);
        assert_eq!(rig.files().len(), 1, "{text:?}");
    }
}

#[test]
fn a_dataset_is_wrong_at_a_line_and_a_field() {
    let rig = Rig::new(fast());
    let trace = "{\"timestamp\":0,\"input_length\":5,\"output_length\":2,\"hash_ids\":[0]}\n";
    let backwards = format!("{}{trace}", trace.replace(":0,", ":9,"));
    for (kind, text, words) in [
        (
            "jsonl",
            "{\"prompt\":\"a\"}\n{\"prompt\":7}\n",
            &["data:2", "`prompt`"][..],
        ),
        (
            "jsonl",
            "{\"prompt\":\"a\"}\n{\"promt\":\"b\"}\n",
            &["data:2", "prompt"],
        ),
        ("jsonl", "{\"prompt\":\"a\"}\n{oops\n", &["data:2:"]),
        (
            "jsonl",
            "{\"prompt\":\"a\",\"output_len\":-1}\n",
            &["data:1", "`output_len`"],
        ),
        ("jsonl", "\n\n", &["data", "no usable request"]),
        ("sharegpt", "[]", &["data", "no usable request"]),
        ("sharegpt", "{}", &["data"]),
        (
            "trace",
            "{\"timestamp\":\"x\"}\n",
            &["data:1", "`timestamp`"],
        ),
        (
            "trace",
            &backwards,
            &["data:2", "`timestamp`", "never go backwards"],
        ),
    ] {
        rig.write("data", text);
        let ran = rig.bench(
            "run",
            &[
                "--dataset-name",
                kind,
                "--dataset-path",
                "data",
                "--concurrency",
                "1",
            ],
        );
        eprintln!("{text:?}: {}", ran.err);
        ran.refused(words);
        assert_eq!(rig.files().len(), 1, "{text:?}");
    }
    rig.write("data", "{\"prompt\":\"a\",\"output_len\":2}\n");
    let flags = [
        "--dataset-name",
        "jsonl",
        "--dataset-path",
        "data",
        "--concurrency",
        "1",
        "--requests",
        "3",
    ];
    rig.bench("run", &flags)
        .refused(&["data holds 1 requests", "wants 3"]);
    let flags = [
        "--dataset-name",
        "jsonl",
        "--dataset-path",
        "data",
        "--input-len",
        "5",
    ];
    rig.bench("run", &flags)
        .refused(&["--input-len is for made-up prompts"]);
}

#[test]
fn a_directory_that_is_no_run() {
    let rig = Rig::bare();
    std::fs::create_dir(rig.path("dir")).unwrap();
    for command in ["summarize", "export"] {
        if command == "export" && cfg!(not(feature = "report")) {
            continue;
        }
        rig.run(&[command, "missing"]).refused(&["missing"]);
        rig.run(&[command, "dir"])
            .refused(&["dir: holds no run.json", "linktax bench"]);
    }
    rig.write("dir/run.json", "{\"schema_version\": 1,\n oops");
    rig.run(&["summarize", "dir"])
        .refused(&["run.json, line 2"]);
    rig.write("dir/run.json", "{\"schema_version\": 99}");
    rig.run(&["summarize", "dir"])
        .refused(&["schema_version is 99"]);
    rig.run(&["summarize"]).refused(&["<DIR>"]);
    for (flags, words) in [
        (["--stall-gap", "-5ms"], &["stall gap"][..]),
        (["--gpus", "0"], &["--gpus", "1 to 65536"]),
    ] {
        let rig = Rig::new(fast());
        rig.bench("run", &SMALL);
        rig.run(&[&["summarize", "run"][..], &flags].concat())
            .refused(words);
    }
}

#[test]
fn a_damaged_record_is_named_with_its_line() {
    let rig = Rig::new(fast());
    rig.bench("run", &SMALL);
    let text = rig.read("run", "requests.jsonl");
    let mut lines: Vec<&str> = text.lines().collect();
    lines[2] = "{\"cell\":0,\"attempt\":0}";
    rig.write("run/requests.jsonl", &(lines.join("\n") + "\n"));
    rig.run(&["summarize", "run"])
        .refused(&["requests.jsonl, line 3"]);
}
