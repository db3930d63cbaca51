use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use linktax_records::{CellEntry, CellStatus, Note, RequestRecord, RunManifest, RunStatus};
use serde_json::Value;

use crate::StoreError;
use crate::index::{RecordIndex, Tail};
use crate::layout::{REQUESTS_FILE, RUN_FILE, SERVER_FILE, TORN_FILE, write_json_atomic};
use crate::lock::RunLock;
use crate::reader::{read_manifest, read_server};

/// A run directory, open for writing by this process alone.
#[derive(Debug)]
pub struct RunWriter {
    dir: PathBuf,
    manifest: RunManifest,
    requests: File,
    /// Bytes of whole lines in `requests`.
    len: u64,
    line: Vec<u8>,
    _lock: RunLock,
}

impl RunWriter {
    /// Makes the directory (and its parents) and writes `run.json`.
    ///
    /// # Errors
    ///
    /// When the path is something other than a directory, holds a run already, cannot be written to, or
    /// is being written by another process.
    pub fn create(dir: &Path, manifest: RunManifest) -> Result<RunWriter, StoreError> {
        make_dir(dir)?;
        refuse_existing_run(dir)?;
        let lock = RunLock::acquire(dir)?;
        // Another process may have come and gone between the first look and the lock.
        refuse_existing_run(dir)?;
        write_json_atomic(dir, RUN_FILE, &manifest)?;
        let (requests, len) = open_requests(dir)?;
        Ok(RunWriter {
            dir: dir.to_owned(),
            manifest,
            requests,
            len,
            line: Vec::new(),
            _lock: lock,
        })
    }

    /// Goes on with a run that was stopped or killed.
    ///
    /// Complete cells are kept. A cell that had begun is to be run again: it becomes pending with the next
    /// attempt number, so that its earlier records stay in the file but no longer count. A torn last line
    /// moves to `requests.jsonl.torn`. `run.json` is saved before this returns.
    ///
    /// # Errors
    ///
    /// When the directory holds no readable run, a line other than the last is malformed, or another
    /// process is writing the run.
    pub fn resume(dir: &Path) -> Result<RunWriter, StoreError> {
        // Before the lock, which would leave its file in a directory that is no run.
        read_manifest(dir)?;
        let lock = RunLock::acquire(dir)?;
        let mut manifest = read_manifest(dir)?;
        let path = dir.join(REQUESTS_FILE);
        let index = RecordIndex::build(&path)?;
        if let Some(tail) = index.tail {
            mend_tail(dir, &path, tail)?;
            if !tail.whole {
                manifest.notes.push(Note::new(
                    "torn_record",
                    format!(
                        "line {} of {REQUESTS_FILE} was cut off after {} bytes when the run was killed; a \
                         resume moved them to {TORN_FILE}",
                        tail.line, tail.len
                    ),
                ));
            }
        }
        for cell in &mut manifest.cells {
            start_over_unless_complete(cell, &index);
        }
        if manifest
            .cells
            .iter()
            .any(|c| c.status != CellStatus::Complete)
        {
            manifest.status = RunStatus::Incomplete;
            manifest.finished_unix_ns = None;
        }
        let (requests, len) = open_requests(dir)?;
        let writer = RunWriter {
            dir: dir.to_owned(),
            manifest,
            requests,
            len,
            line: Vec::new(),
            _lock: lock,
        };
        writer.save()?;
        Ok(writer)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The manifest as it will be saved.
    pub fn manifest(&self) -> &RunManifest {
        &self.manifest
    }

    /// The manifest, to change it; nothing reaches the disk before [`Self::save`].
    pub fn manifest_mut(&mut self) -> &mut RunManifest {
        &mut self.manifest
    }

    /// Replaces `run.json`, after the records appended so far have reached the disk: a cell that is
    /// complete in `run.json` has its records even after a power cut.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn save(&self) -> Result<(), StoreError> {
        self.requests.sync_data().map_err(StoreError::io(
            "write the file",
            &self.dir.join(REQUESTS_FILE),
        ))?;
        write_json_atomic(&self.dir, RUN_FILE, &self.manifest)
    }

    /// Appends one record as one line, handed to the system in one write: a killed process leaves whole
    /// lines. When the disk fills up in the middle, the part is taken back.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn append(&mut self, record: &RequestRecord) -> Result<(), StoreError> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, record).map_err(|source| StoreError::Encode {
            path: self.dir.join(REQUESTS_FILE),
            source,
        })?;
        self.line.push(b'\n');
        if let Err(e) = self.requests.write_all(&self.line) {
            // Best effort: if this fails too, the reader still copes with a torn last line.
            let _ = self.requests.set_len(self.len);
            return Err(StoreError::io(
                "append a record",
                &self.dir.join(REQUESTS_FILE),
            )(e));
        }
        self.len += self.line.len() as u64;
        Ok(())
    }

    /// Replaces `server.json`.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub fn write_server(&self, value: &Value) -> Result<(), StoreError> {
        write_json_atomic(&self.dir, SERVER_FILE, value)
    }

    /// What `server.json` says so far, for a resumed run to add to.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or is not JSON.
    pub fn server(&self) -> Result<Option<Value>, StoreError> {
        read_server(&self.dir)
    }
}

fn make_dir(dir: &Path) -> Result<(), StoreError> {
    let Err(source) = fs::create_dir_all(dir) else {
        return Ok(());
    };
    let path = dir.to_owned();
    match source.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            Err(StoreError::NotADirectory { path })
        }
        _ => Err(StoreError::NotWritable { path, source }),
    }
}

fn refuse_existing_run(dir: &Path) -> Result<(), StoreError> {
    for name in [RUN_FILE, REQUESTS_FILE] {
        let path = dir.join(name);
        if path
            .try_exists()
            .map_err(StoreError::io("look at the file", &path))?
        {
            return Err(StoreError::AlreadyARun {
                path: dir.to_owned(),
            });
        }
    }
    Ok(())
}

fn open_requests(dir: &Path) -> Result<(File, u64), StoreError> {
    let path = dir.join(REQUESTS_FILE);
    let open = || {
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let len = file.metadata()?.len();
        Ok((file, len))
    };
    open().map_err(StoreError::io("open the file for appending", &path))
}

/// Gives a last line without a newline its newline back, or moves it out of the way.
fn mend_tail(dir: &Path, path: &Path, tail: Tail) -> Result<(), StoreError> {
    let failed = |e| StoreError::io("mend the last line", path)(e);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(failed)?;
    if tail.whole {
        file.seek(SeekFrom::End(0)).map_err(failed)?;
        return file.write_all(b"\n").map_err(failed);
    }
    let mut torn = Vec::new();
    file.seek(SeekFrom::Start(tail.start)).map_err(failed)?;
    file.read_to_end(&mut torn).map_err(failed)?;
    torn.push(b'\n');
    let torn_path = dir.join(TORN_FILE);
    let keep = || {
        let mut out = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&torn_path)?;
        out.write_all(&torn)?;
        out.sync_all()
    };
    keep().map_err(StoreError::io("keep the torn line", &torn_path))?;
    // Only now that the bytes are safe elsewhere.
    file.set_len(tail.start).map_err(failed)
}

fn start_over_unless_complete(cell: &mut CellEntry, index: &RecordIndex) {
    if cell.status == CellStatus::Complete {
        return;
    }
    let begun = cell.status != CellStatus::Pending;
    // A pending cell with records: killed before the save that would have called it running.
    let used = index.last_attempt(cell.spec.index);
    if begun || used.is_some_and(|last| last >= cell.attempt) {
        cell.attempt = cell.attempt.max(used.unwrap_or(0)) + 1;
    }
    cell.status = CellStatus::Pending;
    cell.started_unix_ns = None;
    cell.results = None;
    cell.server = None;
    cell.client = None;
    cell.verdict = None;
}
