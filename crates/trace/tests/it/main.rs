//! The public interface on recorded and synthetic data.

mod classify;
mod exports;
mod ingest;
#[cfg(test)]
mod synth;
