//! The public interface on recorded and synthetic data.

mod analysis;
mod classify;
mod doctor;
mod exports;
mod ingest;
mod scrub;
#[cfg(test)]
mod synth;
#[cfg(test)]
mod synth_truth;
#[cfg(test)]
mod synth_verdicts;
