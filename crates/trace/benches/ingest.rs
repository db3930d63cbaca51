//! Rows per second and peak memory of reading an export: `cargo bench -p linktax-trace --bench ingest -- FILE`.

fn main() {}
