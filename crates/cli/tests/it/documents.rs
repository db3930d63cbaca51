//! The README's commands, run. (That every command in the documents parses is a unit test of the command line.)

use crate::rig::{Rig, SMALL, engine, repository};

fn readme() -> String {
    std::fs::read_to_string(repository().join("README.md")).unwrap()
}

#[test]
fn the_commands_of_what_you_get_run_in_their_order() {
    let rig = Rig::bare();
    let text = readme();
    let commands: Vec<&str> = text
        .lines()
        .filter(|l| l.starts_with("linktax ") && l.contains("runs/nvlink"))
        .collect();
    assert!(commands.len() >= 4, "{commands:?}");
    assert!(commands[0].starts_with("linktax bench --mock "));
    for line in commands {
        let command = line.split(" #").next().unwrap();
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        let ran = rig.run(&words);
        match words[0] {
            "export" if cfg!(not(feature = "report")) => ran.refused(&["lean build", "report"]),
            "export" => {
                assert_eq!(ran.code, Some(0), "{command}: {}", ran.err);
                for file in ["requests.parquet", "events.parquet"] {
                    assert!(line.contains(file), "{line}");
                    assert!(rig.path("runs/nvlink").join(file).exists());
                }
            }
            _ => {
                let reasons = ran.reasons(&rig.manifest("runs/nvlink"));
                assert_eq!(reasons, [[""; 0]; 3], "{command}");
            }
        }
    }
}

#[test]
fn the_table_in_the_readme_has_the_columns_of_the_real_one() {
    let rig = Rig::new(engine());
    let ran = rig.bench("run", &SMALL);
    let columns = |text: &str| -> Vec<Vec<String>> {
        text.lines()
            .filter(|l| l.starts_with("|") && l.contains(" out |"))
            .map(|l| l.split('|').map(|c| c.trim().to_owned()).collect())
            .collect()
    };
    let (shown, real) = (columns(&readme()), columns(&ran.out));
    assert_eq!(shown.len(), 2, "throughput, and decode and stalls");
    for (shown, real) in shown.iter().zip(&real) {
        for column in shown {
            assert!(real.contains(column), "{column} is no column of {real:?}");
        }
    }
}

#[test]
fn the_readme_knows_every_command() {
    let rig = Rig::bare();
    let help = rig.run(&["--help"]);
    assert_eq!(help.code, Some(0));
    let readme = readme();
    let commands = ["bench", "summarize", "export", "calibrate", "mock", "trace"];
    let listed = |l: &&str| l.starts_with("  ") && !l.starts_with("   ") && !l.starts_with("  -");
    for line in help.out.lines().filter(listed) {
        let name = line.split_whitespace().next().unwrap();
        if name != "help" {
            assert!(commands.contains(&name), "{name}");
            assert!(readme.contains(&format!("| `linktax {name}` |")), "{name}");
        }
    }
}

#[test]
fn help_goes_to_stdout_and_no_command_is_bad_usage() {
    let rig = Rig::bare();
    for command in ["bench", "summarize", "export", "calibrate", "mock", "trace"] {
        let ran = rig.run(&[command, "--help"]);
        assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{command}");
        assert!(ran.out.contains("Examples:\n  linktax "), "{command}");
    }
    let ran = rig.run(&["--version"]);
    assert_eq!(ran.out, format!("linktax {}\n", env!("CARGO_PKG_VERSION")));
    let ran = rig.run(&[]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
    assert!(ran.err.contains("Usage: linktax"), "{}", ran.err);
}
