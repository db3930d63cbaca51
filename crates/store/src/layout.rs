use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::StoreError;

/// The manifest: everything but the records.
pub const RUN_FILE: &str = "run.json";
/// The records, one line a request.
pub const REQUESTS_FILE: &str = "requests.jsonl";
/// What the servers said before and after each cell.
pub const SERVER_FILE: &str = "server.json";
/// Where a resume puts the bytes of a line that a crash cut off.
pub const TORN_FILE: &str = "requests.jsonl.torn";
/// Held by the process that writes the run.
pub(crate) const LOCK_FILE: &str = ".lock";

/// Replaces `dir/name` by `value`, so that a reader (or a crash) sees the old file or the new one, never a part.
pub(crate) fn write_json_atomic<T: Serialize + ?Sized>(
    dir: &Path,
    name: &str,
    value: &T,
) -> Result<(), StoreError> {
    let path = dir.join(name);
    let temp: PathBuf = dir.join(format!(".{name}.tmp"));
    let file = File::create(&temp).map_err(StoreError::io("create the file", &temp))?;
    let mut out = BufWriter::new(file);
    serde_json::to_writer_pretty(&mut out, value).map_err(|source| StoreError::Encode {
        path: path.clone(),
        source,
    })?;
    out.write_all(b"\n")
        .and_then(|()| out.flush())
        // Without this a power cut may leave the new name on an empty file.
        .and_then(|()| out.get_ref().sync_all())
        .map_err(StoreError::io("write the file", &temp))?;
    fs::rename(&temp, &path).map_err(StoreError::io("replace the file", &path))
}
