//! Numbers of whole cells: field reports, the study's case, laws, the JSON and its documentation.

mod cells;
mod documentation;
mod field_reports;
mod laws;
mod snapshot;
mod study;
mod verdicts;
mod windows;
