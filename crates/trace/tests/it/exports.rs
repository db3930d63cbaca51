//! Hand-made exports: SQL text into a SQLite file, and the recorded captures.

use std::path::{Path, PathBuf};

use linktax_trace::{ReadOptions, Trace, TraceError, read};
use sqlx::{ConnectOptions, Executor, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

/// A recorded capture, compressed as it is kept.
pub(crate) fn capture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/nsys")
        .join(format!("{name}.sqlite.zst"))
}

/// A recorded capture, unpacked into a directory that goes with the first of the pair.
pub(crate) fn unpacked(name: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(format!("{name}.sqlite"));
    let packed = std::fs::File::open(capture(name)).unwrap();
    zstd::stream::copy_decode(packed, std::fs::File::create(&path).unwrap()).unwrap();
    (dir, path)
}

/// Runs SQL on a file, which is made if it is not there.
pub(crate) fn sql(path: &Path, statements: &str) {
    let run = async {
        let mut connection = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .connect()
            .await
            .unwrap();
        connection
            .execute(sqlx::AssertSqlSafe(statements.to_owned()))
            .await
            .unwrap();
        sqlx::Connection::close(connection).await.unwrap();
    };
    runtime().block_on(run);
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

/// A hand-made export from SQL, in a directory that goes with it.
pub(crate) struct Made {
    dir: TempDir,
    pub(crate) path: PathBuf,
}

impl Made {
    pub(crate) fn new(statements: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("made.sqlite");
        sql(&path, statements);
        Made { dir, path }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn read(&self) -> Result<Trace, TraceError> {
        self.read_with(&ReadOptions::default())
    }

    pub(crate) fn read_with(&self, options: &ReadOptions) -> Result<Trace, TraceError> {
        read(std::slice::from_ref(&self.path), options)
    }
}

/// Metadata and strings that every sound export has; kernel names are 1 and 2, `cudaLaunchKernel` 3,
/// `cudaGraphLaunch` 4, an all-reduce 5.
pub(crate) const BASE: &str = "
    CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
    INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2025.3.2.0'), ('EXPORT_SCHEMA_VERSION', '3.20.3');
    CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
    INSERT INTO StringIds VALUES (1, 'void gemm<float>(float *)'), (2, 'gemm'), (3, 'cudaLaunchKernel_v7000'),
        (4, 'cudaGraphLaunch_v10000'), (5, 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)'),
        (6, 'cuLaunchKernel'), (7, 'cudaGetDeviceCount_v3020');
";

pub(crate) const KERNEL: &str = "
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
        globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, graphNodeId INTEGER);
";

pub(crate) const RUNTIME: &str = "
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
        globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
";

/// The `globalPid` of this process id.
pub(crate) fn global(pid: i64) -> i64 {
    1 << 48 | pid << 24
}

/// One kernel row in the columns of [`KERNEL`].
pub(crate) fn kernel(start: i64, end: i64, pid: i64, corr: i64, node: &str) -> String {
    format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({start}, {end}, 0, 1, 0, 7, {corr}, {}, 1, 2, {node});",
        global(pid)
    )
}

/// One API call in the columns of [`RUNTIME`].
pub(crate) fn call(start: i64, end: i64, pid: i64, corr: i64, name: i64) -> String {
    format!(
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES ({start}, {end}, 0, {}, {corr}, {name}, 0);",
        global(pid) + 5
    )
}

/// The codes of a trace's notes.
pub(crate) fn codes(trace: &Trace) -> Vec<&str> {
    trace.notes.iter().map(|note| note.code.as_str()).collect()
}
