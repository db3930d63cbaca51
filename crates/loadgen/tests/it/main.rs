//! The engine as its users see it: `Run` against the mock server, or against a scripted socket where the bytes
//! must be exact.
//!
//! No test asserts how long anything took. Where time matters, the schedule is compared, or a lower bound that
//! follows from the server's own schedule.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking, as the tests do"
)]

mod bodies;
mod cache;
mod cancel;
mod closed_loop;
mod faults;
mod framing;
mod harness;
mod open_loop;
mod plan;
mod preflight;
mod profile;
mod proxies;
mod replay;
mod scale;
mod scripted;
mod timeouts;
mod tls;
