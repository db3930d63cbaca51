use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use linktax_records::{Note, RecordSource, RequestRecord, RunManifest, RunStatus, SCHEMA_VERSION};
use serde::Deserialize;
use serde_json::Value;

use crate::StoreError;
use crate::index::{READ_BUFFER, RecordIndex, Span};
use crate::layout::{REQUESTS_FILE, RUN_FILE, SERVER_FILE};

/// A run directory, opened for reading: complete, still growing, or left by a crash.
#[derive(Debug)]
pub struct RunReader {
    dir: PathBuf,
    manifest: RunManifest,
    index: RecordIndex,
    notes: Vec<Note>,
}

impl RunReader {
    /// Reads `run.json` and finds out where each cell's records lie.
    ///
    /// # Errors
    ///
    /// When the directory holds no run, `run.json` is invalid or of a newer layout, or a line of
    /// `requests.jsonl` other than a torn last one does not say which cell it belongs to.
    pub fn open(dir: &Path) -> Result<RunReader, StoreError> {
        let manifest = read_manifest(dir)?;
        let path = dir.join(REQUESTS_FILE);
        let index = RecordIndex::build(&path)?;
        let notes = notes_on(&manifest, &index, &path);
        Ok(RunReader {
            dir: dir.to_owned(),
            manifest,
            index,
            notes,
        })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What `run.json` says.
    pub fn manifest(&self) -> &RunManifest {
        &self.manifest
    }

    /// Whether some cells are missing: the run goes on, was stopped, or was killed.
    pub fn is_incomplete(&self) -> bool {
        self.manifest.status != RunStatus::Complete
    }

    /// Remarks on the files, such as a torn last line that was left out.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The records of the attempt that counts at this cell; none for a cell that the run does not have.
    pub fn cell_records(&self, cell: u32) -> CellRecords {
        let entry = self.manifest.cells.iter().find(|e| e.spec.index == cell);
        CellRecords {
            path: self.dir.join(REQUESTS_FILE),
            spans: entry.map_or_else(Vec::new, |e| self.index.spans(cell, e.attempt).to_vec()),
        }
    }

    /// What `server.json` says, if the run has one.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or is not JSON.
    pub fn server(&self) -> Result<Option<Value>, StoreError> {
        read_server(&self.dir)
    }
}

/// The records of one cell, read from disk anew on each scan, one at a time.
#[derive(Clone, Debug)]
pub struct CellRecords {
    path: PathBuf,
    spans: Vec<Span>,
}

impl CellRecords {
    /// Bytes of the file that a scan reads.
    pub fn bytes(&self) -> u64 {
        self.spans.iter().map(|s| s.end - s.start).sum()
    }
}

impl RecordSource for CellRecords {
    type Error = StoreError;

    /// Visits the records in the order in which they were appended.
    ///
    /// Fails with [`StoreError::Record`] at the first line that is not a record or whose `reads` arrays
    /// have different lengths.
    fn scan(&self, visit: &mut dyn FnMut(&RequestRecord)) -> Result<(), StoreError> {
        if self.spans.is_empty() {
            return Ok(());
        }
        let file = File::open(&self.path).map_err(StoreError::io("open the file", &self.path))?;
        let mut input = BufReader::with_capacity(READ_BUFFER, file);
        let mut line = Vec::new();
        for span in &self.spans {
            self.scan_span(&mut input, span, &mut line, visit)?;
        }
        Ok(())
    }
}

impl CellRecords {
    fn scan_span(
        &self,
        input: &mut BufReader<File>,
        span: &Span,
        line: &mut Vec<u8>,
        visit: &mut dyn FnMut(&RequestRecord),
    ) -> Result<(), StoreError> {
        let failed = |e| StoreError::io("read the file", &self.path)(e);
        input.seek(SeekFrom::Start(span.start)).map_err(failed)?;
        let (mut at, mut number) = (span.start, span.first_line);
        while at < span.end {
            line.clear();
            let read = input.read_until(b'\n', line).map_err(failed)?;
            if read == 0 {
                // Somebody cut the file since it was opened.
                return Err(failed(io::ErrorKind::UnexpectedEof.into()));
            }
            visit(&decode(line, &self.path, number)?);
            at += read as u64;
            number += 1;
        }
        Ok(())
    }
}

/// One line of `requests.jsonl`.
fn decode(line: &[u8], path: &Path, number: u64) -> Result<RequestRecord, StoreError> {
    let record: RequestRecord =
        serde_json::from_slice(line).map_err(|e| StoreError::record(path, number, &e))?;
    if record.reads.is_consistent() {
        return Ok(record);
    }
    let reads = &record.reads;
    let key: &[u8] = b"\"reads\"";
    Err(StoreError::Record {
        path: path.to_owned(),
        line: number,
        column: 1 + line.windows(key.len()).position(|w| w == key).unwrap_or(0),
        problem: format!(
            "the arrays of reads differ in length (t_ns {}, tokens {}, class {}, bytes {}, events {})",
            reads.t_ns.len(),
            reads.tokens.len(),
            reads.class.len(),
            reads.bytes.len(),
            reads.events.len()
        ),
    })
}

pub(crate) fn read_manifest(dir: &Path) -> Result<RunManifest, StoreError> {
    #[derive(Deserialize)]
    struct Version {
        schema_version: u64,
    }
    let path = dir.join(RUN_FILE);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Err(StoreError::NotARun {
                path: dir.to_owned(),
            });
        }
        Err(e) => return Err(StoreError::io("read the file", &path)(e)),
    };
    // The version first: a newer layout may lack or rename any other field.
    let version: Version =
        serde_json::from_slice(&text).map_err(|e| StoreError::document(&path, &e))?;
    if version.schema_version != u64::from(SCHEMA_VERSION) {
        return Err(StoreError::SchemaVersion {
            path,
            found: version.schema_version,
            known: SCHEMA_VERSION,
        });
    }
    serde_json::from_slice(&text).map_err(|e| StoreError::document(&path, &e))
}

pub(crate) fn read_server(dir: &Path) -> Result<Option<Value>, StoreError> {
    let path = dir.join(SERVER_FILE);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|e| StoreError::document(&path, &e)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(StoreError::io("read the file", &path)(e)),
    }
}

fn notes_on(manifest: &RunManifest, index: &RecordIndex, path: &Path) -> Vec<Note> {
    let mut notes = Vec::new();
    if let Some(tail) = index.tail.filter(|t| !t.whole) {
        notes.push(Note::new(
            "torn_record",
            format!(
                "{}, line {}: the last record was cut off after {} bytes (the run was killed, or is still \
                 writing) and is left out",
                path.display(),
                tail.line,
                tail.len
            ),
        ));
    }
    for cell in index.cells() {
        if !manifest.cells.iter().any(|e| e.spec.index == cell) {
            notes.push(Note::new(
                "unknown_cell",
                format!(
                    "{}: holds records of cell {cell}, which run.json does not list; they are left out",
                    path.display()
                ),
            ));
        }
    }
    notes
}
