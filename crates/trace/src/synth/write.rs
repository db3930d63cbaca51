//! Writing: one fresh SQLite file without index, rows in multi-row inserts, repetitions made inside SQLite.

use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use super::export::{Rows, Sheet};
use super::rows::{Strings, Value};
use super::schema::{Storage, Table};
use super::spec::Spec;
use crate::TraceError;

/// SQLite's limit on parameters of a statement.
const PARAMETERS: usize = 32_766;
/// Rows of one statement at most.
const ROWS: usize = 512;

/// How often the event tables are repeated, and how far apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeat {
    pub(crate) times: u64,
    pub(crate) period_ns: u64,
    /// Correlation ids used by one repetition.
    pub(crate) ids: u64,
}

/// Writes all tables into a new file.
pub(crate) fn write(
    path: &Path,
    spec: &Spec,
    sheets: &[Sheet<'_>],
    strings: &Strings,
    repeat: Repeat,
) -> Result<(), TraceError> {
    // Fails before any work if the place is not writable, and leaves no rows of an older file.
    std::fs::File::create(path).map_err(TraceError::io(path, "cannot create"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(TraceError::io(path, "cannot start the writer"))?;
    runtime
        .block_on(write_all(path, spec, sheets, strings, repeat))
        .map_err(TraceError::sqlite(path, "cannot write"))?;
    if let Some(share) = spec.file.truncate_to {
        truncate(path, share)?;
    }
    Ok(())
}

async fn write_all(
    path: &Path,
    spec: &Spec,
    sheets: &[Sheet<'_>],
    strings: &Strings,
    repeat: Repeat,
) -> Result<(), sqlx::Error> {
    let mut db = SqliteConnectOptions::new()
        .filename(path)
        .page_size(4096)
        .journal_mode(SqliteJournalMode::Off)
        .synchronous(SqliteSynchronous::Off)
        .pragma("temp_store", "MEMORY")
        .disable_statement_logging()
        .connect()
        .await?;
    run(&mut db, "BEGIN".to_owned()).await?;
    for sheet in sheets {
        run(&mut db, sheet.table.create_sql()).await?;
    }
    for sheet in sheets {
        let rest = sheet.table.name.as_str();
        if repeat.times > 1 && matches!(sheet.rows, Rows::Events(_)) {
            let block = Table {
                name: "block".to_owned(),
                columns: sheet.table.columns.clone(),
            };
            let create = block.create_sql().replacen("CREATE", "CREATE TEMP", 1);
            run(&mut db, create).await?;
            insert(&mut db, "temp.block", sheet, spec, strings).await?;
            run(&mut db, repeat_sql(&sheet.table, repeat)).await?;
            run(&mut db, "DROP TABLE temp.block".to_owned()).await?;
        } else {
            insert(&mut db, &format!("\"{rest}\""), sheet, spec, strings).await?;
        }
    }
    run(&mut db, "COMMIT".to_owned()).await?;
    db.close().await
}

async fn run(db: &mut SqliteConnection, sql: String) -> Result<(), sqlx::Error> {
    sqlx::query(AssertSqlSafe(sql))
        .persistent(false)
        .execute(db)
        .await
        .map(drop)
}

async fn insert(
    db: &mut SqliteConnection,
    table: &str,
    sheet: &Sheet<'_>,
    spec: &Spec,
    strings: &Strings,
) -> Result<(), sqlx::Error> {
    let width = sheet.table.columns.len();
    let chunk = (PARAMETERS / width.max(1)).clamp(1, ROWS);
    let total = sheet.rows.len();
    for from in (0..total).step_by(chunk) {
        let to = total.min(from + chunk);
        let sql = insert_sql(table, width, to - from);
        // The text of all full chunks is the same, so it is compiled once.
        let mut query = sqlx::query(AssertSqlSafe(sql)).persistent(to - from == chunk);
        for row in from..to {
            for at in 0..width {
                query = match cell(sheet, row, at, spec, strings) {
                    Value::Null => query.bind(None::<i64>),
                    Value::Int(value) => query.bind(value),
                    Value::Text(value) => query.bind(value),
                };
            }
        }
        query.execute(&mut *db).await?;
    }
    Ok(())
}

/// The value of a cell; where the version forbids NULL, its word for "unknown".
fn cell(sheet: &Sheet<'_>, row: usize, at: usize, spec: &Spec, strings: &Strings) -> Value {
    let column = &sheet.table.columns[at];
    let value = match &sheet.rows {
        Rows::Events(rows) => rows[row].cell(&column.name, spec, strings),
        Rows::Plain(rows) => rows[row]
            .get(sheet.order[at])
            .cloned()
            .unwrap_or(Value::Null),
    };
    match (value, column.storage) {
        (Value::Null, Storage::Integer) if column.not_null => Value::Int(0),
        (Value::Null, Storage::Text) if column.not_null => Value::Text(String::new()),
        (value, _) => value,
    }
}

fn insert_sql(table: &str, width: usize, rows: usize) -> String {
    let row = format!("({})", vec!["?"; width].join(","));
    format!("INSERT INTO {table} VALUES {}", vec![row; rows].join(","))
}

/// Copies the block so many times, later and with other correlation ids each time.
fn repeat_sql(table: &Table, repeat: Repeat) -> String {
    let Repeat {
        times,
        period_ns,
        ids,
    } = repeat;
    let columns: Vec<String> = table
        .columns
        .iter()
        .map(|column| match column.name.as_str() {
            "start" | "end" => format!("b.\"{0}\" + r.n * {period_ns}", column.name),
            "correlationId" => format!("b.correlationId + r.n * {ids}"),
            // A primary key must stay unique.
            "eventId" => "NULL".to_owned(),
            name => format!("b.\"{name}\""),
        })
        .collect();
    format!(
        "INSERT INTO \"{}\" WITH RECURSIVE r(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM r WHERE n + 1 < {times}) \
         SELECT {} FROM r CROSS JOIN temp.block b",
        table.name,
        columns.join(", ")
    )
}

/// Keeps the first part of the file, as when the disk was full.
fn truncate(path: &Path, share: f64) -> Result<(), TraceError> {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(path)
        .map_err(TraceError::io(path, "cannot open"))?;
    let size = file
        .metadata()
        .map_err(TraceError::io(path, "cannot look at"))?
        .len();
    file.set_len((size as f64 * share) as u64)
        .map_err(TraceError::io(path, "cannot cut"))
}
