//! The file of `--vllm-json`: one JSON line a cell, with the keys of `vllm bench serve --save-result`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use linktax_interop::vllm_bench::vllm_bench_result;
use linktax_records::{CellStatus, RunManifest};
use linktax_store::{CellRecords, RunReader, RunWriter};
use serde_json::Value;

/// The open file. Until [`VllmJson::begin`] it is as it was found: a run that does not start changes nothing.
pub(crate) struct VllmJson {
    path: PathBuf,
    file: File,
    /// Made by us and still empty.
    fresh: bool,
}

impl VllmJson {
    /// Opens the file before the run, so that a bad path fails early.
    pub(crate) fn open(path: &Path) -> anyhow::Result<VllmJson> {
        let fresh = !path.exists();
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .with_context(|| format!("--vllm-json {}: cannot be written", path.display()))?;
        Ok(VllmJson {
            path: path.to_owned(),
            file,
            fresh,
        })
    }

    /// Empties the file and writes the cells that a resumed run has already.
    pub(crate) fn begin(&mut self, writer: &RunWriter, detailed: bool) -> anyhow::Result<()> {
        self.fresh = false;
        self.file
            .set_len(0)
            .with_context(|| format!("--vllm-json {}", self.path.display()))?;
        let manifest = writer.manifest();
        let reader = RunReader::open(writer.dir())?;
        for (index, cell) in manifest.cells.iter().enumerate() {
            if cell.status == CellStatus::Complete {
                let records = reader.cell_records(cell.spec.index);
                self.append(manifest, index, &records, detailed)?;
            }
        }
        Ok(())
    }

    /// Adds a cell.
    pub(crate) fn append(
        &mut self,
        manifest: &RunManifest,
        cell: usize,
        records: &CellRecords,
        detailed: bool,
    ) -> anyhow::Result<()> {
        let result = vllm_bench_result(&manifest.cells[cell], manifest, records, detailed)?;
        let mut line = Value::Object(result).to_string();
        line.push('\n');
        self.file
            .write_all(line.as_bytes())
            .with_context(|| format!("--vllm-json {}", self.path.display()))
    }
}

impl Drop for VllmJson {
    fn drop(&mut self) {
        if self.fresh {
            // Best effort: an empty file is no harm, only litter.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
