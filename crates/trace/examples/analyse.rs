//! Reads an export and splits its steps; prints seconds a stage and peak memory: `analyse FILE…`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use linktax_trace::{
    Classes, ReadOptions, Rules, StepOptions, find_steps, pair_collectives, read, split,
};

fn main() -> ExitCode {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if files.is_empty() {
        eprintln!("usage: analyse FILE...");
        return ExitCode::from(2);
    }
    match run(&files) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("analyse: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(files: &[PathBuf]) -> Result<(), Box<dyn std::error::Error>> {
    let began = Instant::now();
    let mut before = 0.0;
    let mut stage = |name: &str| {
        let now = began.elapsed().as_secs_f64();
        let peak = peak_kib().unwrap_or(0) / 1024;
        println!("{name} {:.3} s, peak so far {peak} MiB", now - before);
        before = now;
    };
    let trace = read(files, &ReadOptions::default())?;
    stage("read");
    let classes = Classes::of(&trace.names, &Rules::embedded());
    stage("classify");
    let steps = find_steps(&trace, &classes, &StepOptions::default())?;
    stage("steps");
    let collectives = pair_collectives(&trace, &classes, &steps)?;
    stage("collectives");
    let mut split_steps = 0;
    for lane in &steps {
        split_steps += split(&trace, &classes, lane, Some(&collectives))?
            .steps
            .len();
    }
    stage("split");
    let rows: usize = trace.lanes.iter().map(|lane| lane.ops.len()).sum();
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "total {seconds:.3} s, {rows} GPU rows, {split_steps} steps, {:.2} M rows/s, peak {} MiB",
        rows as f64 / seconds / 1e6,
        peak_kib().unwrap_or(0) / 1024,
    );
    Ok(())
}

/// The kernel's own figure for the most memory this process ever held.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
