//! Hand-made exports: SQL text into a SQLite file.

use std::fmt::Write as _;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};

use crate::rig::Rig;

/// Names by id: a product, attention, an all-reduce, calls.
const STRINGS: [&str; 6] = [
    "nvjet_tst_64x8",
    "flash_fwd_splitkv_kernel<x>",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
    "cudaLaunchKernel_v7000",
    "cudaGraphLaunch_v10000",
    "cudaGetDeviceCount_v3020",
];
pub(crate) const LINEAR: usize = 1;
pub(crate) const ATTENTION: usize = 2;
pub(crate) const ALL_REDUCE: usize = 3;
const LAUNCH: usize = 4;
const GRAPH_LAUNCH: usize = 5;
pub(crate) const DEVICE_COUNT: usize = 6;

/// Statements of an export in the making.
pub(crate) struct Made {
    sql: String,
    strings: usize,
}

/// The `globalPid` of a process id.
fn global(pid: i64) -> i64 {
    1 << 48 | pid << 24
}

impl Made {
    /// Metadata and names.
    pub(crate) fn new() -> Made {
        let mut made = Made {
            sql: "BEGIN;
                CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
                CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);"
                .to_owned(),
            strings: 0,
        };
        made.metadata("EXPORT_PRODUCT_VERSION", "2025.3.2.0");
        made.metadata("EXPORT_SCHEMA_VERSION", "3.20.3");
        for text in STRINGS {
            made.string(text);
        }
        made
    }

    /// One kernel of 1 ms by each of these names, one after the other.
    pub(crate) fn with_names(names: &[&str]) -> Rig {
        let mut made = Made::new().kernels();
        for (at, name) in (0i64..).zip(names) {
            let id = made.string(name);
            made.kernel(
                (at * 1_000_000, (at + 1) * 1_000_000),
                (101, at + 1),
                7,
                id,
                0,
            );
        }
        made.write()
    }

    pub(crate) fn sql(&mut self, statements: &str) {
        self.sql.push_str(statements);
    }

    pub(crate) fn metadata(&mut self, name: &str, value: &str) {
        let _ = write!(
            self.sql,
            "DELETE FROM META_DATA_EXPORT WHERE name = '{name}';
             INSERT INTO META_DATA_EXPORT VALUES ('{name}', '{value}');"
        );
    }

    fn string(&mut self, text: &str) -> usize {
        self.strings += 1;
        let _ = write!(
            self.sql,
            "INSERT INTO StringIds VALUES ({}, '{text}');",
            self.strings
        );
        self.strings
    }

    /// The table of kernels.
    pub(crate) fn kernels(mut self) -> Made {
        self.sql(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
                deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
                correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
                shortName INTEGER NOT NULL, graphNodeId INTEGER);",
        );
        self
    }

    /// A kernel of (process, correlation id) on a stream; node 0 outside a graph.
    pub(crate) fn kernel(
        &mut self,
        time: (i64, i64),
        (pid, corr): (i64, i64),
        stream: u32,
        name: usize,
        node: u32,
    ) {
        let (start, end) = time;
        let pid = global(pid);
        let _ = write!(
            self.sql,
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES
                ({start}, {end}, 0, 1, {stream}, {corr}, {pid}, {name}, {name}, NULLIF({node}, 0));"
        );
    }

    /// The table of calls.
    pub(crate) fn calls(mut self) -> Made {
        self.sql(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
                eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER,
                nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);",
        );
        self
    }

    pub(crate) fn call(&mut self, time: (i64, i64), (pid, corr): (i64, i64), name: usize) {
        let (start, end) = time;
        let thread = global(pid) + 5;
        let _ = write!(
            self.sql,
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES
                ({start}, {end}, 0, {thread}, {corr}, {name}, 0);"
        );
    }

    pub(crate) fn launch(&mut self, time: (i64, i64), of: (i64, i64)) {
        self.call(time, of, LAUNCH);
    }

    pub(crate) fn graph_launch(&mut self, time: (i64, i64), of: (i64, i64)) {
        self.call(time, of, GRAPH_LAUNCH);
    }

    /// The table of ranges, under this name.
    pub(crate) fn marks(mut self, table: &str) -> Made {
        self.sql(&format!(
            "CREATE TABLE {table} (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
                text TEXT, globalTid INTEGER, textId INTEGER);"
        ));
        self
    }

    pub(crate) fn mark(&mut self, table: &str, time: (i64, i64), pid: i64, text: &str) {
        let (start, end) = time;
        let thread = global(pid) + 5;
        let _ = write!(
            self.sql,
            "INSERT INTO {table} VALUES ({start}, {end}, 59, '{text}', {thread}, NULL);"
        );
    }

    /// `made.sqlite` in a scratch directory.
    pub(crate) fn write(self) -> Rig {
        let rig = Rig::bare();
        let path = rig.path("made.sqlite");
        let sql = self.sql + "COMMIT;";
        let run = async {
            let options = SqliteConnectOptions::new()
                .filename(&path)
                .create_if_missing(true);
            let mut connection = options.connect().await.unwrap();
            connection.execute(AssertSqlSafe(sql)).await.unwrap();
            connection.close().await.unwrap();
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(run);
        rig
    }
}

/// Milliseconds.
pub(crate) const MS: i64 = 1_000_000;
