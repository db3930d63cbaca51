//! The `linktax` binary.

fn main() {}
