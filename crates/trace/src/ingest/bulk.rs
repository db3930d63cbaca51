//! Whole tables, streamed through SQLite's own row interface on the connection that sqlx opened.
//!
//! sqlx copies every value of every row into an allocation of its own and sends it to another thread: half a million
//! rows a second. The same statement stepped here reads several million. Nothing else in the crate is unsafe, and
//! a test compares every column of real tables with what plain sqlx rows say. See `docs/adr/0003-bulk-sqlite.md`.
#![allow(
    unsafe_code,
    reason = "ten million rows must not be copied one value at a time; confined to this file"
)]

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::{self, NonNull};

use libsqlite3_sys as ffi;
use sqlx::SqliteConnection;

use crate::TraceError;

/// The current row of a scan.
pub(crate) struct Row<'a> {
    statement: NonNull<ffi::sqlite3_stmt>,
    columns: c_int,
    /// The row is borrowed from the statement, whose next step ends it.
    of: PhantomData<&'a Statement>,
}

impl Row<'_> {
    /// Column `at` as an integer; NULL, and a column that is not there, are 0.
    #[inline]
    pub(crate) fn int(&self, at: c_int) -> i64 {
        if at >= self.columns {
            return 0;
        }
        // SAFETY: the statement is live and stands on a row (`scan` makes rows only after SQLITE_ROW and the borrow
        // ends before the next step), and `at` is below its column count.
        unsafe { ffi::sqlite3_column_int64(self.statement.as_ptr(), at) }
    }

    /// Column `at` as text; `None` for anything that is not stored as text or is not UTF-8.
    pub(crate) fn text(&self, at: c_int) -> Option<&str> {
        let statement = self.statement.as_ptr();
        // SAFETY: as in `int`. The pointer stays good until the next step or a conversion of the column: there is no
        // step while `self` is borrowed, and a value that is text already is never converted by the calls here.
        let bytes = unsafe {
            if at >= self.columns || ffi::sqlite3_column_type(statement, at) != ffi::SQLITE_TEXT {
                return None;
            }
            let start = ffi::sqlite3_column_text(statement, at);
            let length = usize::try_from(ffi::sqlite3_column_bytes(statement, at)).ok()?;
            if start.is_null() {
                return None;
            }
            std::slice::from_raw_parts(start, length)
        };
        std::str::from_utf8(bytes).ok()
    }
}

/// A prepared statement that is finalised when it goes.
struct Statement(NonNull<ffi::sqlite3_stmt>);

impl Drop for Statement {
    fn drop(&mut self) {
        // SAFETY: made by sqlite3_prepare_v2, finalised only here. The result repeats the error of the last step.
        unsafe { ffi::sqlite3_finalize(self.0.as_ptr()) };
    }
}

/// Runs `sql` and calls `each` for every row. Returns the number of rows.
///
/// `path` and `table` are for the error, which also says how many rows came before it.
pub(crate) async fn scan(
    connection: &mut SqliteConnection,
    (path, table): (&Path, &str),
    sql: &str,
    mut each: impl FnMut(&Row<'_>),
) -> Result<u64, TraceError> {
    let mut handle = connection
        .lock_handle()
        .await
        .map_err(TraceError::sqlite(path, format!("table {table}")))?;
    let database = handle.as_raw_handle();
    let failed = |row: u64| TraceError::Bulk {
        path: path.to_owned(),
        table: table.to_owned(),
        row,
        message: message(database),
    };
    let length = c_int::try_from(sql.len()).map_err(|_| failed(0))?;
    let mut raw = ptr::null_mut();
    // SAFETY: the guard keeps sqlx's own thread off the connection for as long as `handle` lives, that is to the end
    // of this function; `sql` is readable for `length` bytes; `raw` is a place for one pointer.
    let code = unsafe {
        ffi::sqlite3_prepare_v2(
            database.as_ptr(),
            sql.as_ptr().cast(),
            length,
            &mut raw,
            ptr::null_mut(),
        )
    };
    let statement = match NonNull::new(raw) {
        Some(statement) if code == ffi::SQLITE_OK => Statement(statement),
        _ => return Err(failed(0)),
    };
    // SAFETY: the statement is live.
    let columns = unsafe { ffi::sqlite3_column_count(statement.0.as_ptr()) };
    let mut rows = 0;
    loop {
        // SAFETY: the statement is live and no row is borrowed any more.
        match unsafe { ffi::sqlite3_step(statement.0.as_ptr()) } {
            ffi::SQLITE_ROW => each(&Row {
                statement: statement.0,
                columns,
                of: PhantomData,
            }),
            ffi::SQLITE_DONE => return Ok(rows),
            _ => return Err(failed(rows)),
        }
        rows += 1;
    }
}

/// SQLite's words for the last error on this connection.
fn message(database: NonNull<ffi::sqlite3>) -> String {
    // SAFETY: the connection is live and locked by the caller; the text is copied before anything else uses it.
    unsafe {
        let text = ffi::sqlite3_errmsg(database.as_ptr());
        if text.is_null() {
            return "unknown error".to_owned();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{Row as _, TypeInfo as _, ValueRef as _};

    use super::*;
    use crate::ingest::{Schema, Source, on_own_runtime, quoted};

    /// A value as both ways must see it.
    #[derive(Debug, PartialEq)]
    enum Value {
        Null,
        Int(i64),
        Text(String),
        Real,
    }

    fn plain(row: &sqlx::sqlite::SqliteRow, at: usize) -> Value {
        let value = row.try_get_raw(at).unwrap();
        if value.is_null() {
            return Value::Null;
        }
        match value.type_info().name() {
            "TEXT" => Value::Text(row.get_unchecked(at)),
            "REAL" => Value::Real,
            _ => Value::Int(row.get_unchecked(at)),
        }
    }

    /// Compares a whole table and returns how many values that were.
    async fn same(source: &Source, table: &str) -> usize {
        let mut connection = source.open().await.unwrap();
        let sql = format!("SELECT * FROM {}", quoted(table));
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql.clone()))
            .fetch_all(&mut connection)
            .await
            .unwrap();
        let (mut at, mut values) = (0, 0);
        let place = (source.path.as_path(), table);
        let count = scan(&mut connection, place, &sql, |row| {
            for column in 0..rows[at].len() {
                values += 1;
                let index = column as c_int;
                match plain(&rows[at], column) {
                    Value::Null => assert_eq!((row.int(index), row.text(index)), (0, None)),
                    Value::Int(value) => {
                        assert_eq!((row.int(index), row.text(index)), (value, None));
                    }
                    Value::Text(text) => assert_eq!(row.text(index), Some(text.as_str())),
                    Value::Real => assert_eq!(row.text(index), None),
                }
            }
            let beyond = rows[at].len() as c_int;
            assert_eq!((row.int(beyond), row.text(beyond)), (0, None));
            at += 1;
        })
        .await
        .unwrap();
        assert_eq!(count, rows.len() as u64, "{table}");
        values
    }

    #[test]
    fn every_value_of_real_exports_is_what_plain_rows_say() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nsys");
        for name in ["torch-graph-node-nsys2023.4", "nsys-ai-mfu_2gpu_before"] {
            let source = Source::prepare(&data.join(format!("{name}.sqlite.zst"))).unwrap();
            let compared = on_own_runtime(async || {
                let mut connection = source.open().await?;
                let schema = Schema::probe(&mut connection, &source.path).await?;
                let mut compared = 0;
                for table in schema.names() {
                    compared += same(&source, table).await;
                }
                Ok(compared)
            })
            .unwrap();
            assert!(compared > 50_000, "{name}: {compared}");
        }
    }

    #[test]
    fn a_statement_that_cannot_run_names_the_table() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nsys");
        let path = data.join("torch-graph-node-nsys2023.4.sqlite.zst");
        let source = Source::prepare(&path).unwrap();
        let error = on_own_runtime(async || {
            let mut connection = source.open().await?;
            scan(
                &mut connection,
                (&path, "ABSENT"),
                "SELECT a FROM ABSENT",
                |_| (),
            )
            .await
        })
        .unwrap_err()
        .to_string();
        assert!(
            error.ends_with("table ABSENT, after 0 rows: no such table: ABSENT"),
            "{error}"
        );
    }
}
