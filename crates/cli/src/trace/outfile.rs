//! A file that a command makes: opened before the work, named when it is whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// A file under a temporary name, removed again unless it is finished.
pub(crate) struct OutFile {
    file: Option<BufWriter<File>>,
    temp: PathBuf,
    path: PathBuf,
}

impl OutFile {
    /// Opens it, so that a place that cannot be written to is told before minutes of reading. `inputs` must not be
    /// overwritten.
    pub(crate) fn create(path: &Path, inputs: &[PathBuf]) -> anyhow::Result<OutFile> {
        let same = |input: &PathBuf| match (fs::canonicalize(input), fs::canonicalize(path)) {
            (Ok(input), Ok(out)) => input == out,
            _ => false,
        };
        if inputs.iter().any(same) {
            anyhow::bail!("{}: is the input; choose another --out", path.display());
        }
        let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
            anyhow::bail!("{}: is not the name of a file", path.display());
        };
        let temp = path.with_file_name(format!(".{}.tmp", name.to_string_lossy()));
        let file =
            File::create(&temp).with_context(|| format!("{}: cannot create", path.display()))?;
        Ok(OutFile {
            file: Some(BufWriter::new(file)),
            temp,
            path: path.to_owned(),
        })
    }

    /// Writes all of it and gives it its name.
    pub(crate) fn finish(
        mut self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<PathBuf> {
        let place = || format!("{}: cannot write", self.path.display());
        if let Some(mut file) = self.file.take() {
            write(&mut file)
                .and_then(|()| file.flush())
                .with_context(place)?;
        }
        fs::rename(&self.temp, &self.path).with_context(place)?;
        Ok(std::mem::take(&mut self.path))
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        // After a rename there is nothing left of that name.
        let _ = fs::remove_file(&self.temp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<String> = entries
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.json");
        let out = OutFile::create(&path, &[]).unwrap();
        assert!(!path.exists());
        let done = out.finish(|w| w.write_all(b"{}")).unwrap();
        assert_eq!(
            (done, fs::read_to_string(&path).unwrap()),
            (path, "{}".to_owned())
        );
        assert_eq!(names(dir.path()), ["out.json"]);
    }

    #[test]
    fn what_fails_leaves_the_old_file_and_no_rest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out.json");
        fs::write(&path, "old").unwrap();
        drop(OutFile::create(&path, &[]).unwrap());
        let failed = OutFile::create(&path, &[]).unwrap();
        assert!(failed.finish(|_| Err(io::Error::other("full"))).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(dir.path()), ["out.json"]);
    }

    #[test]
    fn the_input_is_never_the_output() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sqlite");
        fs::write(&path, "x").unwrap();
        let other = dir.path().join(".").join("a.sqlite");
        let error = OutFile::create(&other, &[path]).err().unwrap();
        assert!(error.to_string().contains("is the input"), "{error}");
        assert!(OutFile::create(dir.path(), &[]).is_err());
    }
}
