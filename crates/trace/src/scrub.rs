//! An export that may be handed on: kernels, calls, marks and times as they are; no environment, paths, command lines,
//! host or user names, logs, uuids.
//!
//! The output is built anew from what is known to be harmless, so a table or column that this tool has never heard of
//! stays behind, and no freed page of the input can come along.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, SqliteConnection};

use crate::TraceError;
use crate::ingest::{Schema, Source, Strings, on_own_runtime, quoted, without_paths};
use crate::steps;

mod policy;

use policy::{Keep, NAMES};

/// What was left out of a scrubbed export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Scrubbed {
    /// Tables and how many of their rows were left out, in the order of their names.
    pub rows: Vec<Removed>,
    /// Columns that were emptied, as `table.column`.
    pub columns: Vec<String>,
    /// Bytes of the output.
    pub bytes: u64,
}

/// Rows of one table that were left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// The table.
    pub table: String,
    /// Rows in the input.
    pub before: u64,
    /// Rows in the output.
    pub after: u64,
    /// Why.
    pub why: String,
}

/// Writes the harmless part of `input` to `output`, which must not exist.
///
/// # Errors
///
/// When the input cannot be read, or the output exists or cannot be written.
pub fn scrub(input: &Path, output: &Path) -> Result<Scrubbed, TraceError> {
    let io = |what: &'static str| TraceError::io(output, what);
    if output.exists() {
        let exists = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        return Err(io("not overwritten")(exists));
    }
    let source = Source::prepare(input)?;
    let directory = match output.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let unfinished = tempfile::Builder::new()
        .prefix(".linktax-scrub-")
        .tempfile_in(directory)
        .map_err(io("cannot be written"))?
        .into_temp_path();
    let mut scrubbed = on_own_runtime(async || {
        let schema = {
            let mut connection = source.open().await?;
            Schema::probe(&mut connection, input).await?
        };
        let mut work = Work::begin(&source, &schema, &unfinished).await?;
        for table in schema.names() {
            work.table(table).await?;
        }
        work.strings().await?;
        work.finish().await
    })?;
    unfinished
        .persist_noclobber(output)
        .map_err(|error| io("cannot be written")(error.error))?;
    scrubbed.bytes = output.metadata().map_err(io("cannot be read back"))?.len();
    Ok(scrubbed)
}

struct Work<'a> {
    source: &'a Source,
    schema: &'a Schema,
    to: SqliteConnection,
    done: Scrubbed,
    /// `SELECT`s of ids that the kept tables refer to.
    references: Vec<String>,
}

impl<'a> Work<'a> {
    async fn begin(
        source: &'a Source,
        schema: &'a Schema,
        output: &Path,
    ) -> Result<Self, TraceError> {
        let failed = || TraceError::sqlite(&source.path, "the scrubbed copy cannot be begun");
        let mut to = SqliteConnectOptions::new()
            .filename(output)
            .foreign_keys(false)
            .journal_mode(SqliteJournalMode::Off)
            .synchronous(SqliteSynchronous::Off)
            .pragma("temp_store", "MEMORY")
            .disable_statement_logging()
            .connect()
            .await
            .map_err(failed())?;
        sqlx::query("ATTACH DATABASE ? AS source")
            .bind(read_only_uri(source.database()))
            .execute(&mut to)
            .await
            .map_err(failed())?;
        to.execute("BEGIN; CREATE TEMP TABLE harmless (text TEXT PRIMARY KEY);")
            .await
            .map_err(failed())?;
        Ok(Work {
            source,
            schema,
            to,
            done: Scrubbed::default(),
            references: Vec::new(),
        })
    }

    async fn run(&mut self, table: &str, sql: String) -> Result<(), TraceError> {
        self.to
            .execute(AssertSqlSafe(sql))
            .await
            .map_err(TraceError::sqlite(
                &self.source.path,
                format!("table {table}"),
            ))?;
        Ok(())
    }

    async fn count(&mut self, place: &str, table: &str) -> Result<u64, TraceError> {
        let sql = format!("SELECT count(*) FROM {place}.{}", quoted(table));
        let count: i64 = sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_one(&mut self.to)
            .await
            .map_err(TraceError::sqlite(
                &self.source.path,
                format!("table {table}"),
            ))?;
        Ok(count.unsigned_abs())
    }

    /// Copies what the policy keeps of one table.
    async fn table(&mut self, table: &str) -> Result<(), TraceError> {
        if table == "StringIds" || table.starts_with("sqlite_") {
            return Ok(());
        }
        let before = self.count("source", table).await?;
        let keep = policy::of(table);
        let Some(keep) = keep else {
            self.removed(table, before, 0, "not needed, may identify");
            return Ok(());
        };
        if matches!(keep, Keep::Marks) {
            self.allow_marks(table).await?;
        }
        self.copy(table, &keep).await?;
        if matches!(keep, Keep::Diagnostics) {
            self.clean_diagnostics(table).await?;
        }
        let after = self.count("main", table).await?;
        if after < before {
            self.removed(table, before, after, keep.why());
        }
        Ok(())
    }

    fn removed(&mut self, table: &str, before: u64, after: u64, why: &str) {
        if before > after {
            self.done.rows.push(Removed {
                table: table.to_owned(),
                before,
                after,
                why: why.to_owned(),
            });
        }
    }

    async fn copy(&mut self, table: &str, keep: &Keep) -> Result<(), TraceError> {
        let Some(found) = self.schema.table(table) else {
            return Ok(());
        };
        let (mut declared, mut copied) = (Vec::new(), Vec::new());
        for column in found.columns() {
            let name = quoted(column);
            let text = found.is_text(column);
            let kind = if text { "TEXT" } else { "INTEGER" };
            declared.push(format!("{name} {kind}"));
            copied.push(match keep.text(column) {
                Some(expression) => expression,
                None => {
                    if text {
                        self.done.columns.push(format!("{table}.{column}"));
                    }
                    // A column holds whatever was put in, so what is no number does not pass.
                    format!("iif(typeof({name}) IN ('integer', 'real'), {name}, NULL)")
                }
            });
            if NAMES.contains(&column) || column == "nameId" {
                self.references
                    .push(format!("SELECT {name} AS id FROM main.{}", quoted(table)));
            }
        }
        let target = quoted(table);
        let sql = format!(
            "CREATE TABLE main.{target} ({}); INSERT INTO main.{target} SELECT {} FROM source.{target} {}",
            declared.join(", "),
            copied.join(", "),
            keep.filter(),
        );
        self.run(table, sql).await
    }

    /// Notes which NVTX texts of this table, and which strings, are marks of steps: only those are kept.
    async fn allow_marks(&mut self, table: &str) -> Result<(), TraceError> {
        let Some(found) = self.schema.table(table).filter(|found| found.has("text")) else {
            return Ok(());
        };
        let mut texts = BTreeSet::new();
        let sql = found.select(&["text"]);
        let mut connection = self.source.open().await?;
        crate::ingest::scan(&mut connection, (&self.source.path, table), &sql, |row| {
            if let Some(text) = row.text(0)
                && !texts.contains(text)
                && steps::is_step_mark(text)
            {
                texts.insert(text.to_owned());
            }
        })
        .await?;
        for text in texts {
            sqlx::query("INSERT OR IGNORE INTO temp.harmless VALUES (?)")
                .bind(text)
                .execute(&mut self.to)
                .await
                .map_err(TraceError::sqlite(&self.source.path, "step marks"))?;
        }
        Ok(())
    }

    async fn clean_diagnostics(&mut self, table: &str) -> Result<(), TraceError> {
        let failed = || TraceError::sqlite(&self.source.path, "table DIAGNOSTIC_EVENT");
        let sql = format!("SELECT rowid, text FROM source.{}", quoted(table));
        let rows: Vec<(i64, Option<String>)> = sqlx::query_as(AssertSqlSafe(sql))
            .fetch_all(&mut self.to)
            .await
            .map_err(failed())?;
        for (row, text) in rows {
            let sql = format!("UPDATE main.{} SET text = ? WHERE rowid = ?", quoted(table));
            let known = text.filter(|text| policy::known_diagnostic(text));
            sqlx::query(AssertSqlSafe(sql))
                .bind(known.map_or_else(|| "…".to_owned(), |text| without_paths(&text)))
                .bind(row)
                .execute(&mut self.to)
                .await
                .map_err(failed())?;
        }
        Ok(())
    }

    /// Copies the strings that are kernel names, API calls or step marks; `textId` of NVTX may point at any other.
    async fn strings(&mut self) -> Result<(), TraceError> {
        let Some(table) = self.schema.table("StringIds") else {
            return Ok(());
        };
        if !table.missing(&["id", "value"]).is_empty() {
            return Ok(());
        }
        let before = self.count("source", "StringIds").await?;
        let mut connection = self.source.open().await?;
        let strings =
            Strings::read(&mut connection, &self.source.path, self.schema, |_| false).await?;
        let mut ids: Vec<String> = strings.marks.keys().map(i64::to_string).collect();
        ids.sort_unstable();
        let mut referred = std::mem::take(&mut self.references);
        referred.push("SELECT NULL WHERE 0".to_owned());
        let sql = format!(
            "CREATE TABLE main.StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
             INSERT INTO main.StringIds SELECT id, value FROM source.StringIds
             WHERE typeof(id) = 'integer' AND typeof(value) = 'text' AND (id IN ({}) OR id IN ({}))",
            referred.join(" UNION "),
            ids.join(", "),
        );
        self.run("StringIds", sql).await?;
        for table in self.schema.names().filter(|t| policy::is_nvtx(t)) {
            if self.schema.table(table).is_some_and(|t| t.has("textId")) {
                let sql = format!(
                    "UPDATE main.{} SET textId = NULL WHERE textId NOT IN (SELECT id FROM main.StringIds)",
                    quoted(table),
                );
                self.run(table, sql).await?;
            }
        }
        let after = self.count("main", "StringIds").await?;
        let why = "no kernel, call or step mark";
        self.removed("StringIds", before, after, why);
        Ok(())
    }

    async fn finish(mut self) -> Result<Scrubbed, TraceError> {
        let failed = || TraceError::sqlite(&self.source.path, "the scrubbed copy cannot be ended");
        self.to
            .execute("COMMIT; DETACH DATABASE source;")
            .await
            .map_err(failed())?;
        self.to.close().await.map_err(failed())?;
        Ok(self.done)
    }
}

/// A URI that SQLite opens read-only, for `ATTACH`.
fn read_only_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(*byte));
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri.push_str("?mode=ro&immutable=1");
    uri
}
