//! A run directory as its users see it: written, killed, resumed, read back, exported.
#![allow(
    clippy::unwrap_used,
    reason = "a test's helpers may stop it, like the test itself"
)]

#[cfg(feature = "parquet")]
mod export;
mod read;
mod samples;
mod schema;
#[cfg(feature = "parquet")]
mod tables;
mod write;
