//! Numbers of whole cells: field reports, the study's case, laws, the JSON and its documentation.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows them in tests, but does not see that the functions the tests share are tests too"
)]

mod cells;
mod documentation;
mod field_reports;
mod laws;
mod snapshot;
mod study;
mod verdicts;
mod vllm_agreement;
mod windows;
