//! The commands of the guide, run in their order; every line of output that it shows must come.

use std::os::unix::fs::symlink;

use super::stable;
use crate::rig::{Rig, repository};

/// A command of a guide with the output lines that stand below it.
struct Shown<'a> {
    words: Vec<&'a str>,
    code: i32,
    lines: Vec<&'a str>,
}

fn shown(text: &str) -> Vec<Shown<'_>> {
    let blocks = text.split("```").skip(1).step_by(2);
    let mut all: Vec<Shown<'_>> = Vec::new();
    for block in blocks.filter_map(|b| b.strip_prefix("console\n")) {
        for line in block.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                all.push(Shown {
                    words: command.split_whitespace().collect(),
                    code: 0,
                    lines: Vec::new(),
                });
            } else if let Some(last) = all.last_mut() {
                match line.strip_prefix("? ") {
                    Some(code) => last.code = code.parse().unwrap(),
                    None if line == "..." || line.is_empty() => {}
                    None => last.lines.push(line),
                }
            }
        }
    }
    all
}

/// Each line comes, and they come in this order. A line may end in `…`, for one that is too long to show.
#[track_caller]
fn holds(out: &str, lines: &[&str], command: &str) {
    let mut rest = out.lines();
    for line in lines {
        let same = |real: &str| match line.strip_suffix('…') {
            Some(start) => real.starts_with(start),
            None => real == *line,
        };
        assert!(rest.any(same), "{command}: no line\n{line}\nin\n{out}");
    }
}

fn run_guide(path: &str, at_least: usize) {
    let rig = Rig::bare();
    symlink(repository().join("crates"), rig.path("crates")).unwrap();
    let text = std::fs::read_to_string(repository().join(path)).unwrap();
    let all = shown(&text);
    assert!(all.len() >= at_least, "{path}: {}", all.len());
    for one in all {
        let command = one.words.join(" ");
        assert_eq!(one.words[0], "linktax", "{command}");
        let words = match one.words[1..] {
            ["trace", ..] => [&["trace", "--quiet"], &one.words[2..]].concat(),
            _ => one.words[1..].to_vec(),
        };
        let ran = rig.run(&words);
        assert_eq!(ran.code, Some(one.code), "{command}: {}", ran.err);
        holds(&stable(&(ran.out + &ran.err)), &one.lines, &command);
    }
}

#[test]
fn the_commands_of_the_trace_guide_say_what_it_shows() {
    run_guide("docs/guide/trace.md", 10);
}

#[test]
fn the_trace_section_of_the_readme_says_what_it_shows() {
    run_guide("README.md", 1);
}
