//! Tests of the crate as its users see it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as the tests do"
)]

mod field_reports;
mod recordings;
mod robustness;
mod rules;
mod splits;
mod wire;
