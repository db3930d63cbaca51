//! An open export while it is read.

use std::path::Path;

use linktax_records::Note;
use sqlx::SqliteConnection;

use super::schema::{Schema, Table};
use super::{OnProgress, Progress};
use crate::TraceError;

/// An open export and what reading it brought up.
pub(crate) struct Connected<'a> {
    pub(crate) connection: &'a mut SqliteConnection,
    pub(crate) schema: &'a Schema,
    pub(crate) path: &'a Path,
    pub(crate) notes: Vec<Note>,
    pub(crate) schema_version: Option<String>,
    pub(crate) progress: Option<OnProgress>,
}

impl<'a> Connected<'a> {
    pub(crate) fn new(
        connection: &'a mut SqliteConnection,
        schema: &'a Schema,
        path: &'a Path,
    ) -> Self {
        Connected {
            connection,
            schema,
            path,
            notes: Vec::new(),
            schema_version: None,
            progress: None,
        }
    }

    pub(crate) fn note(&mut self, code: &str, message: impl Into<String>) {
        self.notes.push(Note::new(code, message));
    }

    /// A table that is of use but not needed lacks columns.
    pub(crate) fn lacks(&mut self, table: &str, columns: &[String], without: &str) {
        self.note(
            "missing_columns",
            format!("table {table} lacks {}: no {without}", columns.join(", ")),
        );
    }

    /// A table that is needed must have these columns.
    pub(crate) fn require(
        &self,
        table: &'static str,
        found: Table<'_>,
        columns: &[&str],
    ) -> Result<(), TraceError> {
        let missing = found.missing(columns);
        if missing.is_empty() {
            return Ok(());
        }
        Err(TraceError::MissingColumns {
            path: self.path.to_owned(),
            schema: self
                .schema_version
                .clone()
                .unwrap_or_else(|| "unknown".to_owned()),
            table,
            columns: missing,
        })
    }
}

/// Counts rows and reports them now and then.
pub(crate) struct Tick<'a> {
    rows: u64,
    table: &'static str,
    path: &'a Path,
    progress: Option<OnProgress>,
}

impl<'a> Tick<'a> {
    pub(crate) fn new(from: &Connected<'a>, table: &'static str) -> Self {
        Tick {
            rows: 0,
            table,
            path: from.path,
            progress: from.progress.clone(),
        }
    }

    #[inline]
    pub(crate) fn row(&mut self) {
        self.rows += 1;
        if self.rows & 0x3_ffff == 0
            && let Some(progress) = &self.progress
        {
            progress(Progress {
                path: self.path,
                table: self.table,
                rows: self.rows,
            });
        }
    }
}
