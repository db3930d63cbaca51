//! `linktax trace`, end to end: recorded captures, synthetic ones, hand-made ones.

mod cases;
mod comm;
mod files;
mod golden;
mod graphs;
mod guide;
mod json;
mod kernels;
mod made;
mod nothing_leaks;
mod truth;
mod views;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::rig::{Ran, Rig, repository};

const DECODE_C16: &str = "vllm-qwen3-4b-decode-c16";
const MIXED: &str = "vllm-qwen3-4b-mixed-prefill";
const NGRAM: &str = "vllm-qwen3-4b-ngram-c1";
const GDN: &str = "vllm-qwen3-next-gdn-decode-c16";
const TP2: &str = "vllm-qwen3-4b-tp2-two-ranks-one-gpu";
const GRAPH_LEVEL: &str = "vllm-qwen3-4b-decode-c16-graph-level";
const INVISIBLE: &str = "torch-graph-level-nsys2023.4";
const BEFORE: &str = "nsys-ai-mfu_2gpu_before";
const AFTER: &str = "nsys-ai-mfu_2gpu_after";

/// Where the recorded captures are.
fn captures() -> PathBuf {
    repository().join("crates/trace/tests/data/nsys")
}

/// A scratch directory with this recorded capture under its own name.
fn with_capture(name: &str) -> (Rig, String) {
    let rig = Rig::bare();
    let file = take_capture(&rig, name);
    (rig, file)
}

fn take_capture(rig: &Rig, name: &str) -> String {
    let file = format!("{name}.sqlite.zst");
    std::fs::copy(captures().join(&file), rig.path(&file)).unwrap();
    file
}

/// A scratch directory with the export of one of the committed specifications.
fn with_spec(name: &str) -> (Rig, String) {
    let rig = Rig::bare();
    let spec = spec(name);
    let out = format!("{name}.sqlite");
    let ran = trace(&rig, &["synth", spec.to_str().unwrap(), &out]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    (rig, out)
}

fn spec(name: &str) -> PathBuf {
    let specs: &Path = &repository().join("crates/trace/specs");
    specs.join(format!("{name}.toml"))
}

fn truth(rig: &Rig, file: &str) -> Value {
    let text = std::fs::read_to_string(rig.path(&format!("{file}.truth.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// `linktax trace` with these words. Without progress: a busy machine takes longer, and says so.
fn trace(rig: &Rig, words: &[&str]) -> Ran {
    rig.run(&[&["trace", "--quiet"], words].concat())
}

/// What `linktax trace … --json` prints, of a run that is clean.
#[track_caller]
fn json(rig: &Rig, words: &[&str]) -> Value {
    let ran = trace(rig, &[words, &["--json"]].concat());
    assert_eq!(ran.code, Some(0), "{words:?}: {}", ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

/// The elements of an array.
#[track_caller]
fn items(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

#[track_caller]
fn ns(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// A number within a distance.
#[track_caller]
fn near(found: f64, wanted: f64, within: f64) {
    assert!((found - wanted).abs() <= within, "{found} is not {wanted}");
}

/// Text without what changes with every release and every new rule.
fn stable(text: &str) -> String {
    let mut out = text.replace(
        &format!("linktax {} trace", env!("CARGO_PKG_VERSION")),
        "linktax VERSION trace",
    );
    const HASH: usize = 16;
    let mark = "; rules ";
    if let Some(at) = out.find(mark) {
        let from = at + mark.len();
        out.replace_range(from..from + HASH, "HASH");
    }
    out
}
