//! From exports to a [`Trace`]: one pass over each big table, no index, no join, no `ORDER BY`, and never a write.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use linktax_records::Note;
use sqlx::Connection;

use crate::TraceError;
use crate::timeline::{Lane, LaneId, Mark, Ops, Span, Trace};

mod assemble;
mod bulk;
mod connected;
mod coverage;
mod launches;
mod machine;
mod names;
mod remarks;
mod rows;
mod runtime;
mod schema;
mod source;

pub use coverage::coverage_notes;
pub use machine::ExportInfo;

pub(crate) use assemble::{Part, assemble};
pub(crate) use bulk::scan;
pub(crate) use coverage::collectives;
pub(crate) use launches::Joined;
pub(crate) use machine::without_paths;
pub(crate) use names::Strings;
pub(crate) use runtime::on_own_runtime;
pub(crate) use schema::{Schema, quoted};
pub(crate) use source::Source;

use connected::{Connected, Tick};
use launches::Calls;
use machine::{Diagnostic, Gpus, diagnostics, processes};
use rows::GpuRows;

/// Called while rows are read.
pub type OnProgress = Arc<dyn Fn(Progress<'_>) + Send + Sync>;

/// How to read.
#[derive(Clone, Default)]
pub struct ReadOptions {
    /// Only operations between these times (nanoseconds on the export's clock), clipped to them.
    pub window: Option<(i64, i64)>,
    /// How many GPUs there must be; fewer is an error.
    pub expect_gpus: Option<u32>,
    /// Called every 262,144 rows, from another thread.
    pub progress: Option<OnProgress>,
}

impl std::fmt::Debug for ReadOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadOptions")
            .field("window", &self.window)
            .field("expect_gpus", &self.expect_gpus)
            .finish_non_exhaustive()
    }
}

/// How far reading has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// The file.
    pub path: &'a Path,
    /// The table.
    pub table: &'static str,
    /// Rows of this table read so far.
    pub rows: u64,
}

/// Reads the exports of one run: one file, or one a node or rank.
///
/// `.sqlite` files are opened read-only and immutable; `.zst` and `.gz` are unpacked into `TMPDIR` first, and a
/// `.nsys-rep` is exported there if `nsys` is on the `PATH`.
///
/// # Errors
///
/// Anything that is not a whole export with GPU rows; see [`TraceError`].
pub fn read(paths: &[PathBuf], options: &ReadOptions) -> Result<Trace, TraceError> {
    read_with_info(paths, options).map(|(trace, _)| trace)
}

/// [`read`], and what each export says about its own making, in the order of `paths`.
///
/// # Errors
///
/// As [`read`].
pub fn read_with_info(
    paths: &[PathBuf],
    options: &ReadOptions,
) -> Result<(Trace, Vec<ExportInfo>), TraceError> {
    if paths.is_empty() {
        return Err(TraceError::Internal {
            what: "no file to read".to_owned(),
        });
    }
    on_own_runtime(async || {
        let (mut parts, mut infos) = (Vec::new(), Vec::new());
        for (file, path) in paths.iter().enumerate() {
            let facts = Facts::read(path, file as u32, options).await?;
            infos.push(facts.info.clone());
            parts.push(facts.into_part(path, file as u32));
        }
        Ok((assemble(paths, parts, options)?, infos))
    })
}

/// All that one file holds.
pub(crate) struct Facts {
    pub(crate) info: ExportInfo,
    pub(crate) schema: Schema,
    pub(crate) bytes: u64,
    pub(crate) rows: GpuRows,
    pub(crate) strings: Strings,
    pub(crate) calls: Calls,
    pub(crate) joined: Joined,
    pub(crate) marks: Vec<Mark>,
    pub(crate) nvtx_rows: u64,
    pub(crate) overhead: Vec<Span>,
    pub(crate) gpus: Gpus,
    pub(crate) process_names: BTreeMap<i64, Option<String>>,
    pub(crate) diagnostics: BTreeMap<Diagnostic, u64>,
    pub(crate) notes: Vec<Note>,
}

impl Facts {
    /// Reads everything of one file.
    pub(crate) async fn read(
        path: &Path,
        file: u32,
        options: &ReadOptions,
    ) -> Result<Self, TraceError> {
        let source = Source::prepare(path)?;
        let mut connection = source.open().await?;
        let schema = Schema::probe(&mut connection, path).await?;
        let mut from = Connected::new(&mut connection, &schema, path);
        from.notes.extend(source.notes.iter().cloned());
        from.progress.clone_from(&options.progress);
        let info = ExportInfo::read(&mut from).await?;
        from.schema_version.clone_from(&info.schema_version);

        let rows = GpuRows::read(&mut from, options.window).await?;
        let wanted = rows.names.wanted();
        let strings =
            Strings::read(from.connection, path, &schema, |id| wanted.contains(&id)).await?;
        let calls = Calls::read(&mut from, &strings).await?;
        let (marks, nvtx_rows) = launches::marks(&mut from, &strings, file).await?;
        let overhead = launches::overhead(&mut from).await?;
        let gpus = Gpus::read(&mut from).await?;
        let process_names = processes(&mut from).await?;
        let diagnostics = diagnostics(&mut from).await?;
        let joined = Joined::of(&rows.lanes, &calls);
        let mut notes = from.notes;
        notes.extend(remarks::of_origin(&info));
        notes.extend(rows.notes());
        notes.extend(remarks::of_losses(&diagnostics));
        notes.extend(remarks::of_joins(&joined, options.window.is_some()));
        connection
            .close()
            .await
            .map_err(TraceError::sqlite(path, "cannot be closed"))?;
        Ok(Facts {
            info,
            schema,
            bytes: source.bytes,
            rows,
            strings,
            calls,
            joined,
            marks,
            nvtx_rows,
            overhead,
            gpus,
            process_names,
            diagnostics,
            notes,
        })
    }

    /// The part of it that goes into a trace.
    pub(crate) fn into_part(mut self, path: &Path, file: u32) -> Part {
        let no_gpu_rows =
            (!self.rows.has_kernels_or_graphs()).then(|| coverage::no_gpu_rows(path, &self));
        let (names, unknown) = self.rows.names.resolve(&self.strings);
        if unknown > 0 {
            self.notes.push(Note::new(
                "names_missing",
                format!("{unknown} kernel names are not in StringIds"),
            ));
        }
        Part {
            lanes: lanes(file, self.rows.lanes, &self.gpus),
            names,
            calls: self.calls,
            process_names: self.process_names,
            marks: self.marks,
            overhead: self.overhead,
            range: self.rows.range,
            notes: self.notes,
            no_gpu_rows,
        }
    }
}

fn lanes(file: u32, rows: impl IntoIterator<Item = ((i64, u32), Ops)>, gpus: &Gpus) -> Vec<Lane> {
    rows.into_iter()
        .map(|((global_pid, device), ops)| {
            let pid = pid_of(global_pid);
            Lane {
                id: LaneId {
                    file,
                    global_pid,
                    device,
                },
                pid,
                gpu: gpus.of(pid, device),
                ops,
            }
        })
        .collect()
}

/// The operating system's process id within a global id (`<HW 8><VM 8><PID 24><TID 24>`).
pub(crate) fn pid_of(global: i64) -> u32 {
    (global >> 24) as u32 & 0xff_ffff
}
