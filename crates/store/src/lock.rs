use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::Path;

use crate::StoreError;
use crate::layout::LOCK_FILE;

/// An exclusive lock on a run directory, released by the system when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct RunLock {
    // Never read: the lock lives as long as the open file. The file itself stays behind, because to delete
    // it would let a second process lock the deleted file and a third one a new file of that name.
    _file: File,
}

impl RunLock {
    pub(crate) fn acquire(dir: &Path) -> Result<RunLock, StoreError> {
        let path = dir.join(LOCK_FILE);
        let mut file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .open(&path)
            .map_err(|source| StoreError::NotWritable {
                path: dir.to_owned(),
                source,
            })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = fs::read_to_string(&path)
                    .ok()
                    .and_then(|text| text.trim().parse().ok());
                return Err(StoreError::Locked { path, pid });
            }
            Err(TryLockError::Error(source)) => {
                return Err(StoreError::io("lock the file", &path)(source));
            }
        }
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(StoreError::io("write the file", &path))?;
        Ok(RunLock { _file: file })
    }
}
