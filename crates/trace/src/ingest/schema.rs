//! Which tables and columns an export has: they come and go with the version, and a table without rows is absent.

use std::collections::BTreeMap;
use std::path::Path;

use sqlx::SqliteConnection;

use crate::TraceError;

/// The tables that tell an export from any other SQLite file.
const KNOWN: [&str; 6] = [
    "StringIds",
    "META_DATA_EXPORT",
    "META_DATA_CAPTURE",
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "TARGET_INFO_SESSION_START_TIME",
];

/// Tables and columns of one export.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schema {
    tables: BTreeMap<String, Vec<Column>>,
}

#[derive(Clone, Debug)]
struct Column {
    name: String,
    declared: String,
}

/// One table of the export.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    /// The name in the file.
    pub(crate) name: &'a str,
    columns: &'a [Column],
}

impl Schema {
    /// Asks the file.
    pub(crate) async fn probe(
        connection: &mut SqliteConnection,
        path: &Path,
    ) -> Result<Self, TraceError> {
        let rows: Vec<(String, String, String)> = sqlx::query_as(
            "SELECT m.name, p.name, p.type FROM sqlite_master m, pragma_table_info(m.name) p \
             WHERE m.type IN ('table', 'view') ORDER BY m.name, p.cid",
        )
        .fetch_all(connection)
        .await
        .map_err(|error| unreadable(path, error))?;
        let mut tables: BTreeMap<String, Vec<Column>> = BTreeMap::new();
        for (table, name, declared) in rows {
            tables
                .entry(table)
                .or_default()
                .push(Column { name, declared });
        }
        if !KNOWN.iter().any(|known| tables.contains_key(*known)) {
            return Err(TraceError::NotAnExport {
                path: path.to_owned(),
                found: "a SQLite database without any table of an export".to_owned(),
            });
        }
        Ok(Schema { tables })
    }

    /// The table of this name, or its newest `_V2`, `_V3` form.
    pub(crate) fn table(&self, base: &str) -> Option<Table<'_>> {
        let versioned = |name: &&String| {
            name.strip_prefix(base)
                .and_then(|rest| rest.strip_prefix("_V"))
                .is_some_and(|version| version.parse::<u32>().is_ok())
        };
        let name = self
            .tables
            .keys()
            .find(|name| *name == base)
            .or_else(|| self.tables.keys().rfind(versioned))?;
        Some(Table {
            name,
            columns: self.tables.get(name)?,
        })
    }

    /// Names of all tables.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.tables.keys().map(String::as_str)
    }
}

/// An error while the catalogue is read means that the file is not what it seems.
fn unreadable(path: &Path, error: sqlx::Error) -> TraceError {
    let not_a_database = error
        .as_database_error()
        .and_then(|e| e.code())
        .is_some_and(|code| code == "26" || code == "11");
    if not_a_database {
        return TraceError::NotAnExport {
            path: path.to_owned(),
            found: format!("SQLite says: {error}"),
        };
    }
    TraceError::sqlite(path, "the list of tables")(error)
}

impl Table<'_> {
    /// Names of all columns.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    /// Whether the column exists.
    pub(crate) fn has(&self, column: &str) -> bool {
        self.column(column).is_some()
    }

    /// Whether the column is declared to hold text.
    pub(crate) fn is_text(&self, column: &str) -> bool {
        self.column(column).is_some_and(|c| {
            let declared = c.declared.to_ascii_uppercase();
            ["CHAR", "CLOB", "TEXT"]
                .iter()
                .any(|t| declared.contains(t))
        })
    }

    /// The first of these columns that exists, else the last one.
    pub(crate) fn first_of<'c>(&self, columns: &[&'c str]) -> &'c str {
        let known = columns.iter().find(|column| self.has(column));
        known.or(columns.last()).copied().unwrap_or_default()
    }

    /// Those of `required` that are not there.
    pub(crate) fn missing(&self, required: &[&str]) -> Vec<String> {
        let absent = required.iter().filter(|column| !self.has(column));
        absent.map(|column| (*column).to_owned()).collect()
    }

    /// `SELECT` of these columns in rowid order; a column that is not there reads as NULL. Every name is quoted, as
    /// one of them is `end`.
    pub(crate) fn select(&self, columns: &[&str]) -> String {
        let picked: Vec<String> = columns
            .iter()
            .map(|column| match self.column(column) {
                Some(column) => quoted(&column.name),
                None => "NULL".to_owned(),
            })
            .collect();
        format!("SELECT {} FROM {}", picked.join(", "), quoted(self.name))
    }

    fn column(&self, name: &str) -> Option<&Column> {
        self.columns
            .iter()
            .find(|column| column.name.eq_ignore_ascii_case(name))
    }
}

/// An SQL identifier.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(tables: &[(&str, &[(&str, &str)])]) -> Schema {
        let column = |&(name, declared): &(&str, &str)| Column {
            name: name.to_owned(),
            declared: declared.to_owned(),
        };
        Schema {
            tables: tables
                .iter()
                .map(|(table, columns)| ((*table).to_owned(), columns.iter().map(column).collect()))
                .collect(),
        }
    }

    #[test]
    fn fr_18_versioned_names_and_quoted_columns() {
        let schema = schema(&[
            (
                "NVTX_EVENTS_V2",
                &[("start", "INTEGER"), ("END", "INTEGER")],
            ),
            (
                "NVTX_EVENTS_V3",
                &[("start", "INTEGER"), ("end", "INT NOT NULL")],
            ),
            ("NVTX_EVENTS_VIEW", &[("start", "INTEGER")]),
        ]);
        let table = schema.table("NVTX_EVENTS").unwrap();
        assert_eq!(
            table.select(&["start", "end", "textId"]),
            r#"SELECT "start", "end", NULL FROM "NVTX_EVENTS_V3""#
        );
        assert_eq!(table.missing(&["end", "text"]), ["text"]);
        assert!(schema.table("NVTX").is_none());
    }

    #[test]
    fn a_declared_text_type_is_seen_in_any_spelling() {
        let schema = schema(&[("T", &[("a", "varchar(20)"), ("b", "INT"), ("c", "TEXT")])]);
        let table = schema.table("T").unwrap();
        assert_eq!(
            ["a", "b", "c", "d"].map(|c| table.is_text(c)),
            [true, false, true, false]
        );
    }
}
