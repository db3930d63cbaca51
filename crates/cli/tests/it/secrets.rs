//! Keys and header values reach no file and no stream, whatever happens.

use linktax_mockserver::{Fault, FaultKind, MockConfig};

use crate::rig::{Ran, Rig, SMALL, fast};

const KEY: &str = "sk-SECRET-key-4711";

fn guarded() -> MockConfig {
    MockConfig {
        api_key: Some(KEY.to_owned()),
        ..fast()
    }
}

fn with_key(rig: &Rig, key: &str, flags: &[&str]) -> Ran {
    let url = rig.url();
    let args = [&rig.bench_args("run", &SMALL, &url)[..], flags].concat();
    let mut command = rig.command(&args);
    command.env("TEST_LLM_KEY", key);
    command.output().unwrap().into()
}

#[track_caller]
fn nowhere(rig: &Rig, ran: &Ran) {
    for text in [&ran.out, &ran.err] {
        assert!(!text.contains("SECRET"), "{text}");
    }
    for file in rig.files() {
        let path = rig.path(file.to_str().unwrap());
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(6).any(|w| w == b"SECRET");
            assert!(!found, "in {}", file.display());
        }
    }
}

#[test]
fn the_key_and_header_values_are_used_but_never_kept() {
    let rig = Rig::new(guarded());
    for headers in [
        &[
            "--header",
            "X-Team=SECRET-team",
            "--header",
            "X-Other=SECRET=2",
        ][..],
        &["--header=X-Team=SECRET-team"],
    ] {
        let flags = [
            &[
                "--api-key-env",
                "TEST_LLM_KEY",
                "--save-detailed",
                "--vllm-json",
                "v.json",
            ],
            headers,
        ]
        .concat();
        let ran = with_key(&rig, KEY, &flags);
        let run = rig.manifest("run");
        assert_eq!(ran.reasons(&run), [[""; 0]]);
        nowhere(&rig, &ran);
        let command = run.command.join(" ");
        assert!(command.contains("X-Team=REMOVED"), "{command}");
        std::fs::remove_dir_all(rig.path("run")).unwrap();
    }
}

#[test]
fn a_refused_key_is_not_repeated() {
    let rig = Rig::new(guarded());
    let ran = with_key(&rig, "sk-SECRET-wrong", &["--api-key-env", "TEST_LLM_KEY"]);
    ran.refused(&["HTTP status 401", "--api-key-env"]);
    nowhere(&rig, &ran);
    let ran = with_key(&rig, KEY, &[]);
    ran.refused(&["HTTP status 401", "--api-key-env"]);
    let ran = with_key(&rig, "", &["--api-key-env", "TEST_LLM_KEY"]);
    ran.refused(&["--api-key-env TEST_LLM_KEY", "empty"]);
    let ran = with_key(&rig, KEY, &["--api-key-env", "NO_SUCH_VARIABLE"]);
    ran.refused(&["--api-key-env NO_SUCH_VARIABLE"]);
    assert_eq!(rig.files().len(), 0);
}

#[test]
fn a_server_that_repeats_the_key_does_not_get_it_written() {
    for skip_first in [0, 1] {
        let rig = Rig::new(MockConfig {
            fault: vec![Fault {
                status: 401,
                skip_first,
                body: Some(format!(
                    "{{\"error\":{{\"message\":\"Incorrect API key: {KEY}\"}}}}"
                )),
                ..Fault::always(FaultKind::HttpError)
            }],
            ..guarded()
        });
        let ran = with_key(&rig, KEY, &["--api-key-env", "TEST_LLM_KEY"]);
        // Refused at the probe, or in every measured request.
        assert_eq!(ran.code, Some(2 - skip_first as i32), "{}", ran.err);
        nowhere(&rig, &ran);
    }
}

#[test]
fn credentials_in_a_url_and_a_malformed_header_are_refused_without_quoting_them() {
    let rig = Rig::bare();
    for flags in [
        &["--base-url", "http://user:SECRET@127.0.0.1:9"][..],
        &[
            "--base-url",
            "http://127.0.0.1:9",
            "--header",
            "Authorization: Bearer SECRET",
        ],
        &[
            "--base-url",
            "http://127.0.0.1:9",
            "--header",
            "X-Team=SECRET\nvalue",
        ],
    ] {
        let ran = rig.run(&[&["bench"], flags].concat());
        ran.refused(&[]);
        nowhere(&rig, &ran);
    }
}
