//! The public interface on recorded and synthetic data.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as the tests do"
)]

mod analysis;
mod classify;
mod doctor;
mod exports;
mod ingest;
mod scrub;
mod synth;
#[cfg(test)]
mod synth_file;
#[cfg(test)]
mod synth_forms;
mod synth_truth;
mod synth_verdicts;
mod views;
