//! Foreign files against what their own tools wrote.
#![allow(
    clippy::unwrap_used,
    reason = "a test's helpers may stop it, like the test itself"
)]

mod samples;
mod vllm_bench;
