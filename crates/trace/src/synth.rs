//! Synthetic exports with a known truth: the ruler that the analysis is held against.
//!
//! A [`Spec`] says how a server ran (model, ranks, steps, time a bucket, skew, overlap, clocks) and how the profiler
//! recorded it (graph mode, marks, schema version, broken rows). [`write()`] makes the export and returns the
//! [`Truth`]: for every rank and step the exact nanoseconds of each class, and for every collective its service time
//! and who waited how long. The truth is computed by unions of intervals, not by the sweep of the analysis.
//!
//! ```
//! use linktax_trace::synth::{self, Spec};
//!
//! let text = "phase = [{ steps = 3, concurrency = 2, time_ns = { comm = 400_000 } }]";
//! let spec = Spec::from_toml(text, "spec.toml".as_ref())?;
//! let dir = tempfile::tempdir()?;
//! let truth = synth::write(&spec, &dir.path().join("out.sqlite"))?;
//!
//! assert_eq!(truth.lanes.len(), 2, "two ranks unless said otherwise");
//! assert!(truth.lanes[0].steps.iter().all(|step| step.service_ns == 400_000));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod catalog;
mod export;
mod host;
mod program;
mod record;
mod rows;
mod schedule;
mod schema;
mod spec;
mod truth;
mod write;

use std::path::{Path, PathBuf};

use rand::seq::SliceRandom as _;

pub use schema::Flavour;
pub use spec::{
    Arch, Bucket, ClockSpec, CommKind, FaultSpec, FileSpec, GapSpec, GraphMode, GraphSpec,
    HostSpec, MissingCollective, ModelSpec, NvtxForm, NvtxStyle, OverlapKind, OverlapSpec,
    ParallelSpec, PhaseKind, PhaseSpec, SkewKind, SkewSpec, Spec,
};
pub use truth::{BatchTruth, CollectiveTruth, LaneTruth, StepTruth, Truth, TruthVerdict};

use self::record::{Kind, Recorded};
use self::rows::Strings;
use self::write::Repeat;
use crate::TraceError;

/// Streams of random numbers, by purpose.
const DURATIONS: u64 = 1;
const LATENESS: u64 = 2;
const SHUFFLE_IDS: u64 = 10;

/// Writes the export that `spec` describes to `out` and returns its truth. Any older file is replaced.
///
/// The same specification gives the same rows and the same truth, always.
///
/// # Errors
/// Totals that the steps cannot hold, and files that cannot be written.
pub fn write(spec: &Spec, out: &Path) -> Result<Truth, TraceError> {
    let steps =
        program::steps(spec, &mut schedule::stream(spec.seed, DURATIONS)).map_err(|what| {
            TraceError::Spec {
                path: out.to_owned(),
                what,
            }
        })?;
    let schedule = schedule::place(spec, &steps, &mut schedule::stream(spec.seed, LATENESS));
    let recorded = record::record(spec, &steps, &schedule);
    let repeat = repeat(spec, &recorded);
    let truth = answer::truth(
        spec,
        &steps,
        schedule,
        &recorded,
        (repeat.times, repeat.period_ns),
    );
    let strings = strings(spec, &recorded);
    let sheets = export::sheets(spec, &recorded, &strings);
    write::write(out, spec, &sheets, &strings, repeat)?;
    Ok(truth)
}

/// The place of the truth beside an export: `OUT.truth.json`.
pub fn truth_path(out: &Path) -> PathBuf {
    let mut name = out.as_os_str().to_owned();
    name.push(".truth.json");
    PathBuf::from(name)
}

/// Writes the truth beside the export and returns where.
///
/// # Errors
/// A file that cannot be written.
pub fn write_truth(truth: &Truth, out: &Path) -> Result<PathBuf, TraceError> {
    let path = truth_path(out);
    let file = std::fs::File::create(&path).map_err(TraceError::io(&path, "cannot create"))?;
    serde_json::to_writer(std::io::BufWriter::new(file), truth)
        .map_err(|e| TraceError::io(&path, "cannot write")(e.into()))?;
    Ok(path)
}

fn strings(spec: &Spec, recorded: &[Recorded]) -> Strings {
    let used = export::strings_used(spec, recorded);
    let mut places: Vec<usize> = (0..used.len()).collect();
    if spec.file.shuffle_ids {
        places.shuffle(&mut schedule::stream(spec.seed, SHUFFLE_IDS));
    }
    Strings::new(used, |i| places.get(i).copied().unwrap_or(i))
}

/// How often the steps are written so that the file has the kernel rows asked for.
fn repeat(spec: &Spec, recorded: &[Recorded]) -> Repeat {
    let recs = || recorded.iter().flat_map(|lane| &lane.recs);
    let kernels = recs().filter(|r| matches!(r.kind, Kind::Kernel(_))).count() as u64;
    let first = recs().map(|r| r.start).min().unwrap_or_default();
    let last = recs().map(|r| r.end).max().unwrap_or_default();
    let calls = || recorded.iter().flat_map(|lane| &lane.calls);
    Repeat {
        times: spec.file.kernel_rows.div_ceil(kernels.max(1)).max(1),
        period_ns: first.abs_diff(last) + spec.gaps.step_ns,
        ids: calls().map(|c| u64::from(c.corr)).max().unwrap_or(0),
    }
}
