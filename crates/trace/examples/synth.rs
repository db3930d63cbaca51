//! Writes a synthetic export and its truth: `synth SPEC.toml OUT.sqlite [KERNEL_ROWS]`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use linktax_trace::synth::{self, Spec};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (spec, out, rows) = match args.as_slice() {
        [spec, out] => (spec, out, None),
        [spec, out, rows] => (spec, out, rows.parse().ok()),
        _ => {
            eprintln!("usage: synth SPEC.toml OUT.sqlite [KERNEL_ROWS]");
            return ExitCode::from(2);
        }
    };
    match run(Path::new(spec), Path::new(out), rows) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("synth: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(path: &Path, out: &Path, rows: Option<u64>) -> Result<(), Box<dyn std::error::Error>> {
    let mut spec = Spec::from_toml(&std::fs::read_to_string(path)?, path)?;
    if let Some(rows) = rows {
        spec.file.kernel_rows = rows;
    }
    let began = Instant::now();
    let truth = synth::write(&spec, out)?;
    let seconds = began.elapsed().as_secs_f64();
    let place = synth::write_truth(&truth, out)?;
    eprintln!(
        "{} kernel rows in {seconds:.1} s ({:.2} M rows/s); truth in {}",
        truth.kernel_rows,
        truth.kernel_rows as f64 / seconds / 1e6,
        place.display()
    );
    Ok(())
}
