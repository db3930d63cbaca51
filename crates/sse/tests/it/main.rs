//! Tests of the crate as its users see it.

mod field_reports;
mod recordings;
mod robustness;
mod rules;
mod splits;
mod wire;
