//! What is printed for recorded captures, to the letter.

use snapbox::{assert_data_eq, file};

use super::{
    AFTER, BEFORE, DECODE_C16, GDN, GRAPH_LEVEL, INVISIBLE, MIXED, NGRAM, TP2, stable, trace,
    with_capture,
};

/// Runs a command on a capture; the exit code stands above the text.
fn shown(command: &str, capture: &str, flags: &[&str]) -> String {
    let (rig, file) = with_capture(capture);
    let ran = trace(&rig, &[&[command, file.as_str()], flags].concat());
    let text = stable(&ran.out);
    format!("exit code {}\n{text}{}", ran.code.unwrap(), ran.err)
}

#[test]
fn split_of_decode_c16() {
    let text = shown("split", DECODE_C16, &[]);
    assert_data_eq!(text, file!["../../data/trace/split-decode-c16.txt"].raw());
}

#[test]
fn split_of_mixed_prefill() {
    let text = shown("split", MIXED, &["--top", "5"]);
    assert_data_eq!(
        text,
        file!["../../data/trace/split-mixed-prefill.txt"].raw()
    );
}

#[test]
fn split_of_ngram() {
    let text = shown("split", NGRAM, &["--top", "5"]);
    assert_data_eq!(text, file!["../../data/trace/split-ngram.txt"].raw());
}

#[test]
fn split_of_a_hybrid_model() {
    let text = shown("split", GDN, &["--steady", "1"]);
    assert_data_eq!(text, file!["../../data/trace/split-gdn.txt"].raw());
}

#[test]
fn split_of_two_ranks() {
    let text = shown("split", TP2, &["--steps", "decode", "--top", "5"]);
    assert_data_eq!(text, file!["../../data/trace/split-tp2.txt"].raw());
}

#[test]
fn steps_of_mixed_prefill() {
    let text = shown("steps", MIXED, &["--steps", "mixed"]);
    assert_data_eq!(text, file!["../../data/trace/steps-mixed.txt"].raw());
}

#[test]
fn doctor_on_what_can_be_split() {
    let text = shown("doctor", DECODE_C16, &[]);
    assert_data_eq!(text, file!["../../data/trace/doctor-decode-c16.txt"].raw());
}

#[test]
fn fr_14_doctor_on_opaque_graphs() {
    let text = shown("doctor", GRAPH_LEVEL, &[]);
    assert_data_eq!(text, file!["../../data/trace/doctor-graph-level.txt"].raw());
}

#[test]
fn fr_14_split_of_opaque_graphs() {
    let text = shown("split", GRAPH_LEVEL, &[]);
    assert_data_eq!(text, file!["../../data/trace/split-graph-level.txt"].raw());
}

#[test]
fn split_of_graphs_without_rows() {
    let text = shown("split", INVISIBLE, &[]);
    assert_data_eq!(text, file!["../../data/trace/split-invisible.txt"].raw());
}

#[test]
fn comm_of_two_gpus() {
    let text = shown("comm", BEFORE, &[]);
    assert_data_eq!(text, file!["../../data/trace/comm-before.txt"].raw());
    let text = shown("comm", AFTER, &[]);
    assert_data_eq!(text, file!["../../data/trace/comm-after.txt"].raw());
}

#[test]
fn whatif_of_two_gpus() {
    let text = shown("whatif", BEFORE, &[]);
    assert_data_eq!(text, file!["../../data/trace/whatif-before.txt"].raw());
    let text = shown("whatif", AFTER, &[]);
    assert_data_eq!(text, file!["../../data/trace/whatif-after.txt"].raw());
}

#[test]
fn whatif_of_two_ranks_that_take_turns() {
    let text = shown("whatif", TP2, &[]);
    assert_data_eq!(text, file!["../../data/trace/whatif-tp2.txt"].raw());
}

#[test]
fn kernels_of_a_hybrid_model() {
    let text = shown("kernels", GDN, &[]);
    assert_data_eq!(text, file!["../../data/trace/kernels-gdn.txt"].raw());
}
