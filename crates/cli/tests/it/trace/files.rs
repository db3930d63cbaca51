//! What happens to the files: nothing, even where nothing can be written.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{DECODE_C16, TP2, captures, json, take_capture, trace, with_spec};
use crate::rig::Rig;

/// Everything in a directory with its bytes.
fn content(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(directory).unwrap();
    let mut all: Vec<_> = entries
        .map(|e| {
            let path = e.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read(path).unwrap())
        })
        .collect();
    all.sort();
    all
}

#[test]
fn fr_21_the_source_stays_as_it_was_in_a_read_only_directory() {
    let (from, file) = with_spec("plain");
    let rig = Rig::bare();
    let kept = rig.path("kept");
    fs::create_dir(&kept).unwrap();
    let source = kept.join("run.sqlite");
    fs::copy(from.path(&file), &source).unwrap();
    fs::copy(
        captures().join(format!("{TP2}.sqlite.zst")),
        kept.join("run.sqlite.zst"),
    )
    .unwrap();
    for entry in fs::read_dir(&kept).unwrap() {
        fs::set_permissions(entry.unwrap().path(), Permissions::from_mode(0o444)).unwrap();
    }
    fs::set_permissions(&kept, Permissions::from_mode(0o555)).unwrap();
    let before = content(&kept);
    for name in ["kept/run.sqlite", "kept/run.sqlite.zst"] {
        for command in ["doctor", "split", "steps", "comm", "kernels"] {
            let ran = trace(&rig, &[command, name]);
            assert_eq!(ran.code, Some(0), "{command} {name}: {}", ran.err);
        }
    }
    let ran = trace(&rig, &["scrub", "kept/run.sqlite", "out.sqlite"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(content(&kept) == before, "a file changed or was added");
    fs::set_permissions(&kept, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn several_files_are_the_ranks_of_one_run() {
    let rig = Rig::bare();
    let first = take_capture(&rig, DECODE_C16);
    fs::copy(rig.path(&first), rig.path("second.sqlite.zst")).unwrap();
    let split = json(
        &rig,
        &["split", &first, "second.sqlite.zst", "--expect-gpus", "2"],
    );
    assert_eq!(split.as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&split[0]["gpus"], &split[0]["processes"]),
        (&2.into(), &2.into())
    );
    assert_eq!(split[1]["file"], "second.sqlite.zst");
    assert_eq!(split[0]["linear"], split[1]["linear"]);
}

#[test]
fn truncated_and_unfinished_exports_are_unreadable() {
    let (rig, file) = with_spec("plain");
    let whole = fs::read(rig.path(&file)).unwrap();
    fs::write(rig.path("cut.sqlite"), &whole[..whole.len() / 2]).unwrap();
    trace(&rig, &["split", "cut.sqlite"]).refused(&["truncated", "the header says"]);
    rig.write("plain.sqlite-wal", "x");
    trace(&rig, &["split", &file]).refused(&["plain.sqlite-wal", "half-written"]);
    let doctor = trace(&rig, &["doctor", "cut.sqlite", &file]);
    assert_eq!(doctor.code, Some(2));
    for said in ["! PROBLEM: truncated", "! PROBLEM: wal_pending"] {
        assert!(doctor.out.contains(said), "{}", doctor.out);
    }
}

#[test]
fn a_report_without_nsys_says_the_command() {
    let rig = Rig::bare();
    rig.write("run.nsys-rep", "a report");
    let mut command = rig.command(&["trace", "--quiet", "split", "run.nsys-rep"]);
    let ran = crate::rig::Ran::from(command.env("PATH", "").output().unwrap());
    ran.refused(&["run.nsys-rep", "nsys export --type sqlite"]);
}

#[test]
fn scrub_does_not_overwrite() {
    let (rig, file) = with_spec("plain");
    rig.write("there.sqlite", "precious");
    trace(&rig, &["scrub", &file, "there.sqlite"]).refused(&["there.sqlite", "not overwritten"]);
    assert_eq!(fs::read(rig.path("there.sqlite")).unwrap(), b"precious");
}

#[test]
fn a_specification_that_is_wrong_is_named() {
    let rig = Rig::bare();
    rig.write("spec.toml", "phase = [{ steps = 4, concurency = 8 }]\n");
    let ran = trace(&rig, &["synth", "spec.toml", "out.sqlite"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.starts_with("error: spec.toml"), "{}", ran.err);
    assert!(ran.err.contains("concurency"), "{}", ran.err);
    trace(&rig, &["synth", "absent.toml", "out.sqlite"]).refused(&["absent.toml"]);
    assert!(!rig.path("out.sqlite").exists());
}
