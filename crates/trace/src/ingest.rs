//! From exports to a [`Trace`]: one pass over each big table, no index, no join, no `ORDER BY`, and never a write.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use linktax_records::Note;
use sqlx::{Connection, SqliteConnection};

use crate::TraceError;
use crate::timeline::{Lane, LaneId, Mark, NameId, Ops, Process, Span, Trace};

mod bulk;
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

pub(crate) use bulk::scan;
pub(crate) use coverage::collectives;
pub(crate) use launches::Joined;
pub(crate) use machine::without_paths;
pub(crate) use names::Strings;
pub(crate) use runtime::on_own_runtime;
pub(crate) use schema::{Schema, quoted};
pub(crate) use source::Source;

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
    if paths.is_empty() {
        return Err(TraceError::Internal {
            what: "no file to read".to_owned(),
        });
    }
    on_own_runtime(async || {
        let mut parts = Vec::new();
        for (file, path) in paths.iter().enumerate() {
            let facts = Facts::read(path, file as u32, options).await?;
            parts.push(facts.into_part(path, file as u32));
        }
        assemble(paths, parts, options)
    })
}

/// An open export and what reading it brought up.
pub(crate) struct Connected<'a> {
    pub(crate) connection: &'a mut SqliteConnection,
    pub(crate) schema: &'a Schema,
    pub(crate) path: &'a Path,
    pub(crate) notes: Vec<Note>,
    schema_version: Option<String>,
    progress: Option<OnProgress>,
}

impl<'a> Connected<'a> {
    pub(crate) fn new(
        connection: &'a mut SqliteConnection,
        schema: &'a Schema,
        path: &'a Path,
    ) -> Self {
        Connected {
            connection,
            schema,
            path,
            notes: Vec::new(),
            schema_version: None,
            progress: None,
        }
    }

    pub(crate) fn note(&mut self, code: &str, message: impl Into<String>) {
        self.notes.push(Note::new(code, message));
    }

    /// A table that is of use but not needed lacks columns.
    fn lacks(&mut self, table: &str, columns: &[String], without: &str) {
        self.note(
            "missing_columns",
            format!("table {table} lacks {}: no {without}", columns.join(", ")),
        );
    }

    /// A table that is needed must have these columns.
    fn require(
        &self,
        table: &'static str,
        found: schema::Table<'_>,
        columns: &[&str],
    ) -> Result<(), TraceError> {
        let missing = found.missing(columns);
        if missing.is_empty() {
            return Ok(());
        }
        Err(TraceError::MissingColumns {
            path: self.path.to_owned(),
            schema: self
                .schema_version
                .clone()
                .unwrap_or_else(|| "unknown".to_owned()),
            table,
            columns: missing,
        })
    }
}

/// Counts rows and reports them now and then.
struct Tick<'a> {
    rows: u64,
    table: &'static str,
    path: &'a Path,
    progress: Option<OnProgress>,
}

impl<'a> Tick<'a> {
    fn new(from: &Connected<'a>, table: &'static str) -> Self {
        Tick {
            rows: 0,
            table,
            path: from.path,
            progress: from.progress.clone(),
        }
    }

    #[inline]
    fn row(&mut self) {
        self.rows += 1;
        if self.rows & 0x3_ffff == 0
            && let Some(progress) = &self.progress
        {
            progress(Progress {
                path: self.path,
                table: self.table,
                rows: self.rows,
            });
        }
    }
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

/// What one file gave; names are its own until all files are there.
pub(crate) struct Part {
    lanes: Vec<Lane>,
    names: Vec<(String, String)>,
    calls: Calls,
    process_names: BTreeMap<i64, Option<String>>,
    marks: Vec<Mark>,
    overhead: Vec<Span>,
    range: Option<(i64, i64)>,
    notes: Vec<Note>,
    no_gpu_rows: Option<TraceError>,
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

/// Puts the files together.
pub(crate) fn assemble(
    paths: &[PathBuf],
    mut parts: Vec<Part>,
    options: &ReadOptions,
) -> Result<Trace, TraceError> {
    let several = parts.len() > 1;
    if parts.iter().all(|part| part.no_gpu_rows.is_some())
        && let Some(error) = parts.iter_mut().find_map(|part| part.no_gpu_rows.take())
    {
        return Err(error);
    }
    let mut trace = Trace {
        files: paths.to_vec(),
        ..Trace::default()
    };
    trace.window = window(&parts, options, &mut trace.notes)?;
    let own: Vec<_> = parts
        .iter_mut()
        .map(|p| std::mem::take(&mut p.names))
        .collect();
    let (names, maps) = names::merge(&own);
    trace.names = names;
    for (file, mut part) in parts.into_iter().enumerate() {
        if let Some(error) = part.no_gpu_rows.take() {
            part.notes.push(Note::new("no_gpu_rows", error.to_string()));
        }
        canonical(&mut part.lanes, &maps[file]);
        if let Some(window) = trace.window {
            launches::trim(&mut part.calls, &mut part.marks, &part.lanes, window);
            part.overhead
                .retain(|span| span.start < window.end && span.end > window.start);
        }
        trace.processes.extend(host_side(file as u32, &mut part));
        trace.lanes.extend(part.lanes);
        trace.marks.extend(part.marks);
        trace.overhead.extend(part.overhead);
        let named = part.notes.into_iter().map(|note| match several {
            true => Note::new(
                &note.code,
                format!("{}: {}", paths[file].display(), note.message),
            ),
            false => note,
        });
        trace.notes.extend(named);
    }
    if several {
        trace.notes.push(Note::new(
            "separate_clocks",
            format!(
                "{} files, each with a clock of its own: durations compare across files, instants do not",
                paths.len()
            ),
        ));
    }
    trace.lanes.retain(|lane| !lane.ops.is_empty());
    trace.lanes.sort_by_key(|lane| lane.id);
    trace.marks.sort_by_key(|mark| (mark.start, mark.file));
    trace
        .overhead
        .sort_unstable_by_key(|span| (span.start, span.end));
    coverage::expect_gpus(&trace, options.expect_gpus)?;
    Ok(trace)
}

fn canonical(lanes: &mut [Lane], names: &[NameId]) {
    for lane in lanes {
        lane.ops.rename(names);
        lane.ops.sort();
    }
}

fn host_side(file: u32, part: &mut Part) -> Vec<Process> {
    let mut all: BTreeSet<i64> = part.process_names.keys().copied().collect();
    all.extend(part.calls.by_process.keys());
    all.extend(part.lanes.iter().map(|lane| lane.id.global_pid));
    all.into_iter()
        .map(|global_pid| Process {
            file,
            global_pid,
            name: part.process_names.get(&global_pid).cloned().flatten(),
            launches: part
                .calls
                .by_process
                .remove(&global_pid)
                .unwrap_or_default(),
        })
        .collect()
}

/// The asked window cut to the capture.
fn window(
    parts: &[Part],
    options: &ReadOptions,
    notes: &mut Vec<Note>,
) -> Result<Option<Span>, TraceError> {
    let ranges = parts.iter().filter_map(|part| part.range);
    let whole = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let (Some((from, to)), Some((first, last))) = (options.window, whole) else {
        return Ok(None);
    };
    if from >= to || to <= first || from >= last {
        return Err(TraceError::WindowOutside {
            from,
            to,
            first,
            last,
        });
    }
    let cut = Span {
        start: from.max(first),
        end: to.min(last),
    };
    if (cut.start, cut.end) != (from, to) {
        let seconds = |ns: i64| ns as f64 / 1e9;
        notes.push(Note::new(
            "window_cut",
            format!(
                "the window {:.6}-{:.6} s reaches past the capture and is cut to {:.6}-{:.6} s ({:.6} s)",
                seconds(from),
                seconds(to),
                seconds(cut.start),
                seconds(cut.end),
                seconds(cut.end.saturating_sub(cut.start)),
            ),
        ));
    }
    Ok(Some(cut))
}
