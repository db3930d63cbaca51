//! The built binary, end to end, against the mock server.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as the tests do"
)]

mod bad_input;
mod bench;
mod calibrate;
mod cases;
mod documents;
#[cfg(feature = "report")]
mod export;
mod golden;
mod mock;
mod resume;
mod rig;
mod secrets;
#[cfg(feature = "trace")]
mod trace;
#[cfg(not(feature = "trace"))]
mod trace_lean;
mod unclean;
mod vllm_json;
