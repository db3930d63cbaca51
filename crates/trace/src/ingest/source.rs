//! From the path a user gives to a SQLite file that may be opened: header checks, decompression, `nsys export`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use linktax_records::Note;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, SqliteConnection};
use tempfile::TempPath;

use crate::TraceError;

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const GZIP: &[u8] = &[0x1f, 0x8b];

/// An export that passed the checks, ready to be opened.
#[derive(Debug)]
pub(crate) struct Source {
    /// The path that the user gave: the one that every message names.
    pub(crate) path: PathBuf,
    /// Bytes of the SQLite file.
    pub(crate) bytes: u64,
    /// Oddities of the file itself.
    pub(crate) notes: Vec<Note>,
    database: PathBuf,
    /// A decompressed or exported copy; removed with this.
    _copy: Option<TempPath>,
}

impl Source {
    /// Checks the file, and unpacks or exports it first if it has to be.
    pub(crate) fn prepare(path: &Path) -> Result<Self, TraceError> {
        let head = head(path)?;
        let copy = if head.starts_with(MAGIC) {
            None
        } else if head.starts_with(ZSTD) || head.starts_with(GZIP) {
            Some(decompressed(path, &head)?)
        } else if has_extension(path, "nsys-rep") || has_extension(path, "qdrep") {
            Some(exported(path)?)
        } else if head.is_empty() {
            return Err(TraceError::Empty {
                path: path.to_owned(),
            });
        } else {
            return Err(not_sqlite(path, &head));
        };
        let database = copy.as_deref().unwrap_or(path).to_owned();
        if copy.is_none() {
            refuse_pending(path)?;
        }
        let (bytes, notes) = check_header(path, &database)?;
        Ok(Source {
            path: path.to_owned(),
            bytes,
            notes,
            database,
            _copy: copy,
        })
    }

    /// Opens it read-only and immutable: no lock, no journal, not one byte written.
    pub(crate) async fn open(&self) -> Result<SqliteConnection, TraceError> {
        SqliteConnectOptions::new()
            .filename(&self.database)
            .read_only(true)
            .immutable(true)
            .disable_statement_logging()
            .connect()
            .await
            .map_err(TraceError::sqlite(&self.path, "cannot be opened"))
    }

    /// The SQLite file itself.
    pub(crate) fn database(&self) -> &Path {
        &self.database
    }
}

/// Up to 100 bytes, the length of SQLite's header.
fn head(path: &Path) -> Result<Vec<u8>, TraceError> {
    if path.is_dir() {
        return Err(TraceError::NotAnExport {
            path: path.to_owned(),
            found: "a directory; of the forms of `nsys export` only sqlite is read".to_owned(),
        });
    }
    let mut head = Vec::with_capacity(100);
    File::open(path)
        .and_then(|file| file.take(100).read_to_end(&mut head))
        .map_err(TraceError::io(path, "cannot be read"))?;
    Ok(head)
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension()
        .is_some_and(|e| e.eq_ignore_ascii_case(extension))
}

fn not_sqlite(path: &Path, head: &[u8]) -> TraceError {
    let found = if has_extension(path, "qdstrm") {
        "a raw .qdstrm of a capture that did not end; QdstrmImporter of the same nsys may still turn it into a .nsys-rep"
    } else if head.starts_with(b"PK") {
        "a zip archive"
    } else if head.is_ascii() {
        "text"
    } else {
        "unknown binary data"
    };
    TraceError::NotAnExport {
        path: path.to_owned(),
        found: found.to_owned(),
    }
}

/// A log or journal with content means that the file alone is not the whole truth.
fn refuse_pending(path: &Path) -> Result<(), TraceError> {
    for suffix in ["-wal", "-journal"] {
        let mut sibling = path.as_os_str().to_owned();
        sibling.push(suffix);
        let sibling = PathBuf::from(sibling);
        if sibling.metadata().is_ok_and(|data| data.len() > 0) {
            return Err(TraceError::WalPending {
                path: path.to_owned(),
                sibling,
            });
        }
    }
    Ok(())
}

/// Compares what SQLite's header promises with the file. Returns its size.
fn check_header(path: &Path, database: &Path) -> Result<(u64, Vec<Note>), TraceError> {
    let head = head(database)?;
    let actual = database
        .metadata()
        .map_err(TraceError::io(path, "cannot be read"))?
        .len();
    if head.is_empty() {
        return Err(TraceError::Empty {
            path: path.to_owned(),
        });
    }
    if !head.starts_with(MAGIC) {
        return Err(not_sqlite(path, &head));
    }
    let mut notes = Vec::new();
    let Some(header) = Header::parse(&head) else {
        return Err(TraceError::Truncated {
            path: path.to_owned(),
            expected: 512,
            actual,
        });
    };
    match header.bytes() {
        Some(expected) if expected != actual => {
            return Err(TraceError::Truncated {
                path: path.to_owned(),
                expected,
                actual,
            });
        }
        // An old writer leaves no page count; then whole pages are all that can be asked for.
        None if actual % u64::from(header.page) != 0 => {
            return Err(TraceError::Truncated {
                path: path.to_owned(),
                expected: actual.next_multiple_of(u64::from(header.page)),
                actual,
            });
        }
        _ => {}
    }
    if header.wal {
        notes.push(Note::new(
            "wal_mode_header",
            "the file is in write-ahead-log mode and no log lies beside it; if it was copied while it was written, the newest rows are missing",
        ));
    }
    Ok((actual, notes))
}

/// The parts of SQLite's header that are of use here (sqlite.org/fileformat.html, section 1.3).
struct Header {
    page: u32,
    pages: Option<u32>,
    wal: bool,
}

impl Header {
    fn parse(head: &[u8]) -> Option<Self> {
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_be_bytes(head.get(at..at + 4)?.try_into().ok()?))
        };
        let page = match u16::from_be_bytes(head.get(16..18)?.try_into().ok()?) {
            1 => 65_536,
            page => u32::from(page),
        };
        // The page count holds only if the last writer also set the version beside it.
        let counted = word(24)? == word(92)? && word(28)? > 0;
        Some(Header {
            page: page.max(512),
            pages: if counted { word(28) } else { None },
            wal: head.get(18..20)?.contains(&2),
        })
    }

    fn bytes(&self) -> Option<u64> {
        Some(u64::from(self.pages?) * u64::from(self.page))
    }
}

/// Unpacks into a temporary file (in `TMPDIR`), chosen by content and not by name.
fn decompressed(path: &Path, head: &[u8]) -> Result<TempPath, TraceError> {
    let failed = |what: &'static str| TraceError::io(path, what);
    let file = File::open(path).map_err(failed("cannot be read"))?;
    let mut unpacked = tempfile::Builder::new()
        .prefix("linktax-")
        .suffix(".sqlite")
        .tempfile()
        .map_err(failed("no temporary file to decompress into"))?;
    let copied = if head.starts_with(ZSTD) {
        zstd::Decoder::new(file).and_then(|mut packed| copy(&mut packed, unpacked.as_file_mut()))
    } else {
        copy(
            &mut flate2::read::MultiGzDecoder::new(io::BufReader::new(file)),
            unpacked.as_file_mut(),
        )
    };
    copied.map_err(failed("cannot be decompressed"))?;
    Ok(unpacked.into_temp_path())
}

fn copy(from: &mut dyn Read, to: &mut File) -> io::Result<()> {
    let mut to = io::BufWriter::with_capacity(1 << 18, to);
    io::copy(from, &mut to)?;
    to.flush()
}

/// Runs `nsys export` into a temporary file.
fn exported(path: &Path) -> Result<TempPath, TraceError> {
    let target = path.with_extension("sqlite");
    let needs = |why: String| TraceError::NeedsExport {
        path: path.to_owned(),
        why,
        command: format!(
            "nsys export --type sqlite --output '{}' '{}'",
            target.display(),
            path.display()
        ),
    };
    let place = tempfile::Builder::new()
        .prefix("linktax-")
        .suffix(".sqlite")
        .tempfile()
        .map_err(TraceError::io(path, "no temporary file to export into"))?
        .into_temp_path();
    let run = Command::new("nsys")
        .args(["export", "--type", "sqlite", "--force-overwrite", "true"])
        .arg("--output")
        .arg(&*place)
        .arg(path)
        .stdin(Stdio::null())
        .output();
    match run {
        Ok(run) if run.status.success() => Ok(place),
        Ok(run) => {
            let said = String::from_utf8_lossy(&run.stderr);
            let last = said.lines().rfind(|line| !line.trim().is_empty());
            Err(needs(format!(
                "`nsys export` failed ({}): {}",
                run.status,
                last.unwrap_or("no message").trim()
            )))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(needs("nsys is not on the PATH".to_owned()))
        }
        Err(error) => Err(needs(format!("nsys cannot be run: {error}"))),
    }
}
