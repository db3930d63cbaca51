//! Rows a second and peak memory of reading an export: `cargo bench -p linktax-trace --bench ingest -- FILE [RUNS]`.
//!
//! Prints a line a run: rows on the GPU, seconds, million rows a second, peak resident memory of the process so far and
//! what that is a row above the memory before the first run. Without a file it reads the largest recorded capture.

use std::path::{Path, PathBuf};
use std::time::Instant;

use linktax_trace::{ReadOptions, read};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Cargo adds `--bench` to what the user gives.
    let mut arguments = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with("--"));
    let path = arguments.next().map_or_else(recorded, PathBuf::from);
    let runs: u32 = arguments.next().map_or(Ok(3), |runs| runs.parse())?;
    let before = peak_bytes()?;
    println!("{}", path.display());
    for run in 1..=runs {
        let start = Instant::now();
        let trace = read(std::slice::from_ref(&path), &ReadOptions::default())?;
        let seconds = start.elapsed().as_secs_f64();
        let rows: usize = trace.lanes.iter().map(|lane| lane.ops.len()).sum();
        let launches: usize = trace.processes.iter().map(|p| p.launches.len()).sum();
        let peak = peak_bytes()?;
        println!(
            "run {run}: {rows} GPU rows, {launches} launches in {seconds:.2} s = {:.2} M GPU rows/s; peak {} MiB, {:.1} B a GPU row",
            rows as f64 / 1e6 / seconds,
            peak >> 20,
            peak.saturating_sub(before) as f64 / rows as f64,
        );
    }
    Ok(())
}

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nsys/vllm-qwen3-4b-ngram-c1.sqlite.zst")
}

/// The most memory that was ever resident in this process (`VmHWM`).
fn peak_bytes() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(kib.ok_or("no VmHWM")?.parse::<u64>()? * 1024)
}
