//! Drives an OpenAI-compatible endpoint and emits a record of every read.

mod prometheus;
pub mod workload;
