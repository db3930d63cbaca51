//! No broken export makes reading, the doctor, the analysis or the scrub panic: each answers or says what is wrong.
//!
//! `cargo +nightly fuzz run exports` in `crates/trace`. An input is taken as a list of changes (three bytes of
//! offset, one of value) to a small sound export, so that most of them get past the header; one that begins with
//! `SQLite` is taken as a file of its own.

#![no_main]

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use linktax_trace::synth::{self, Spec};
use linktax_trace::{
    Classes, ReadOptions, Rules, StepOptions, find_steps, inspect, pair_collectives, read, scrub, split,
};

/// Small, so that a change hits something that matters.
const SPEC: &str = "
phase = [{ steps = 3, concurrency = 2 }]
[parallel]
tensor = 2
[model]
attention_layers = 1
";

static RULES: LazyLock<Rules> = LazyLock::new(Rules::embedded);

/// A sound export to damage.
static SOUND: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("sound.sqlite");
    let spec = Spec::from_toml(SPEC, "small.toml".as_ref()).expect("the specification is sound");
    synth::write(&spec, &path).expect("the export can be written");
    fs::read(&path).expect("the export can be read")
});

fn damaged(input: &[u8]) -> Vec<u8> {
    if input.starts_with(b"SQLite") {
        return input.to_vec();
    }
    let mut file = SOUND.clone();
    for change in input.chunks_exact(4) {
        let offset = usize::from(change[0]) << 16 | usize::from(change[1]) << 8 | usize::from(change[2]);
        let at = offset % file.len();
        file[at] = change[3];
    }
    file
}

/// All that a user can ask of a file. Errors are answers; only a panic is a finding.
fn ask(path: &Path, out: &Path) {
    let _ = inspect(path);
    let _ = scrub(path, out);
    let Ok(trace) = read(&[path.to_owned()], &ReadOptions::default()) else {
        return;
    };
    let classes = Classes::of(&trace.names, &RULES);
    let Ok(steps) = find_steps(&trace, &classes, &StepOptions::default()) else {
        return;
    };
    let paired = pair_collectives(&trace, &classes, &steps).ok();
    for lane in &steps {
        let _ = split(&trace, &classes, lane, paired.as_ref());
    }
}

fuzz_target!(|input: &[u8]| {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("damaged.sqlite");
    fs::write(&path, damaged(input)).expect("the file can be written");
    ask(&path, &dir.path().join("scrubbed.sqlite"));
});
