//! Environments, command lines, paths and logs of an export reach no output.

use super::{captures, spec, trace, with_spec};
use crate::rig::Rig;

/// The secrets that the specification plants.
pub(super) fn planted() -> Vec<String> {
    let text = std::fs::read_to_string(spec("secrets")).unwrap();
    let line = text.lines().find(|l| l.starts_with("secrets")).unwrap();
    line.split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

const COMMANDS: [&[&str]; 7] = [
    &["doctor"],
    &["split"],
    &["steps"],
    &["comm"],
    &["whatif"],
    &["kernels"],
    &["kernels", "--unknown"],
];

#[test]
fn no_planted_secret_reaches_an_output() {
    let (rig, file) = with_spec("secrets");
    let whole = std::fs::read(rig.path(&file)).unwrap();
    let within = |bytes: &[u8], secret: &str| {
        bytes
            .windows(secret.len())
            .any(|window| window == secret.as_bytes())
    };
    let planted = planted();
    assert!(planted.len() >= 2, "{planted:?}");
    for secret in &planted {
        assert!(within(&whole, secret), "it was there to be found");
    }
    let scrub = trace(&rig, &["scrub", &file, "scrubbed.sqlite"]);
    assert_eq!(scrub.code, Some(0), "{}", scrub.err);
    let scrubbed = std::fs::read(rig.path("scrubbed.sqlite")).unwrap();
    for secret in &planted {
        assert!(
            !within(&scrubbed, secret),
            "{secret} is in the scrubbed export"
        );
        assert!(!scrub.out.contains(secret), "{}", scrub.out);
    }
    for words in COMMANDS {
        let same: Vec<String> = ["", "--json"]
            .into_iter()
            .map(|json| {
                let flags: Vec<&str> = [json].into_iter().filter(|f| !f.is_empty()).collect();
                let args = [&words[..1], &[file.as_str()], &words[1..], &flags].concat();
                let ran = trace(&rig, &args);
                for secret in &planted {
                    let clean = !ran.out.contains(secret) && !ran.err.contains(secret);
                    assert!(clean, "{words:?} {json}: {secret}");
                }
                // What can be handed on says the same.
                let again: Vec<&str> = args
                    .iter()
                    .map(|&word| {
                        if word == file {
                            "scrubbed.sqlite"
                        } else {
                            word
                        }
                    })
                    .collect();
                let again = trace(&rig, &again);
                assert_eq!(again.code, ran.code, "{words:?}: {}", again.err);
                ran.out
            })
            .collect();
        assert!(same.iter().all(|out| !out.is_empty()), "{words:?}");
    }
}

/// What stands in the environment and the paths of the machines that recorded the captures.
#[test]
fn nothing_of_the_recording_machines_reaches_an_output() {
    let rig = Rig::bare();
    for entry in std::fs::read_dir(captures()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "zst") {
            continue;
        }
        std::fs::copy(&path, rig.path("x.sqlite.zst")).unwrap();
        for words in COMMANDS {
            let args = [&words[..1], &["x.sqlite.zst"], &words[1..], &["--json"]].concat();
            let ran = trace(&rig, &args);
            for word in [
                "/root", "/tmp/", "/home", "modal", "torchrun", "HOME=", "Hostname",
            ] {
                let said = format!("{}{}", ran.out, ran.err);
                assert!(
                    !said.contains(word),
                    "{words:?} on {}: {word}",
                    path.display()
                );
            }
        }
    }
}
