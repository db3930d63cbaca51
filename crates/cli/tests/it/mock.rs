//! `linktax mock` on its own, and the examples of its guide.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use linktax_mockserver::MockConfig;
use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{Guarded, Rig, repository};

#[test]
fn it_prints_its_address_serves_and_ends_with_ctrl_c() {
    let rig = Rig::bare();
    rig.write("mock.toml", "model = \"from-file\"\nttft_ms = 1\n");
    let args = [
        "mock",
        "--port",
        "0",
        "--config",
        "mock.toml",
        "--step-ms",
        "1",
        "--tokens-per-chunk",
        "3,4,4,2",
    ];
    let mut child = Guarded(rig.command(&args).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(child.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line.trim().strip_prefix("listening on http://").unwrap();

    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET /v1/models HTTP/1.1\r\nhost: mock\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("\"from-file\""), "{answer}");

    kill_process(Pid::from_child(&child.0), Signal::INT).unwrap();
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_port_in_use_and_bad_settings_are_refused() {
    let rig = Rig::new(MockConfig::default());
    let url = rig.url();
    let port = url.rsplit(':').next().unwrap();
    rig.run(&["mock", "--port", port])
        .refused(&["cannot listen on", port]);
    rig.write("bad.toml", "model = \"m\"\n\nttft = 3\n");
    rig.run(&["mock", "--config", "bad.toml"])
        .refused(&["bad.toml:3: unknown field `ttft`", "`ttft_ms`"]);
    rig.write(
        "bad.toml",
        "step_ms = 1\n[[fault]]\nkind = \"explode\"\nevery = 1\n",
    );
    rig.run(&["mock", "--config", "bad.toml"])
        .refused(&["bad.toml:3: unknown variant `explode`", "`reset`"]);
    rig.run(&["mock", "--config", "missing.toml"])
        .refused(&["missing.toml"]);
    for (flag, value) in [
        ("--ttft-ms", "-1"),
        ("--ttft-ms", "nan"),
        ("--step-ms", "inf"),
        ("--prefill-us-per-token", "-3"),
        ("--max-num-seqs", "0"),
        ("--tokens-per-chunk", "0"),
        ("--tokens-per-chunk", "3,,4"),
        ("--port", "70000"),
        ("--host", "nowhere"),
        ("--model", ""),
        ("--mode", "warp"),
        ("--cpu", "99999"),
    ] {
        let name = flag.trim_start_matches('-').replace('-', "_");
        let ran = rig.run(&["mock", "--port", "0", flag, value]);
        ran.refused(&[]);
        let named = ran.err.contains(flag) || ran.err.contains(&name) || ran.err.contains("CPU");
        assert!(named, "{flag} {value}: {}", ran.err);
    }
}

/// The text of every fenced TOML block.
fn toml_blocks(text: &str) -> Vec<String> {
    let fenced = text.split("```");
    fenced
        .skip(1)
        .step_by(2)
        .filter_map(|b| b.strip_prefix("toml\n"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn every_example_of_the_guide_loads() {
    let text = std::fs::read_to_string(repository().join("docs/guide/mock-server.md")).unwrap();
    let blocks = toml_blocks(&text);
    assert!(blocks.len() >= 5, "{}", blocks.len());
    for block in blocks {
        MockConfig::from_toml(&block, Path::new("guide.toml"))
            .unwrap_or_else(|e| panic!("{e}\n{block}"));
    }
}

#[test]
fn the_guide_names_every_knob_with_its_default() {
    let text = std::fs::read_to_string(repository().join("docs/guide/mock-server.md")).unwrap();
    let config = MockConfig {
        api_key: Some("key".to_owned()),
        eos_after: Some(1),
        ..MockConfig::default()
    };
    let written = serde_json::to_value(config).unwrap();
    for (knob, default) in written.as_object().unwrap() {
        let row = text
            .lines()
            .find(|l| l.starts_with(&format!("| `{knob}` |")));
        let row = row.unwrap_or_else(|| panic!("no row for {knob}"));
        let default = match knob.as_str() {
            "api_key" | "eos_after" | "fault" => "none".to_owned(),
            _ => format!("`{}`", default.to_string().trim_end_matches(".0")),
        };
        assert!(
            row.contains(&format!("| {default} |")),
            "{row}: expected {default}"
        );
    }
    for knob in ["stall", "fault"] {
        assert!(text.contains(&format!("| `{knob}` |")), "{knob}");
    }
}
