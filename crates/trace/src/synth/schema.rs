//! Tables and columns of the versions of the export that are known, as `CREATE TABLE` makes them.
//!
//! `schema-3.20.3.txt` is what `PRAGMA table_info` says of real exports of that version; the others are written as
//! differences from it. `!` is NOT NULL, `*` the primary key, `:T` text, `:R` real, everything else an integer.

use serde::{Deserialize, Serialize};

const BASE: &str = include_str!("schema-3.20.3.txt");

/// Which version of nsys seems to have written the export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flavour {
    /// 2021.5: all columns NOT NULL, 0 for what is unknown, no graph nodes.
    #[serde(rename = "2021.5")]
    V2021,
    /// 2024.6.
    #[serde(rename = "3.16.1")]
    V3_16_1,
    /// 2025.3.
    #[default]
    #[serde(rename = "3.20.3")]
    V3_20_3,
    /// 2026.1.
    #[serde(rename = "3.24.14")]
    V3_24_14,
    /// 2026.2.
    #[serde(rename = "3.25.0")]
    V3_25_0,
    /// 2026.4.
    #[serde(rename = "3.28.1")]
    V3_28_1,
}

impl Flavour {
    /// All of them, oldest first.
    pub const ALL: [Flavour; 6] = [
        Flavour::V2021,
        Flavour::V3_16_1,
        Flavour::V3_20_3,
        Flavour::V3_24_14,
        Flavour::V3_25_0,
        Flavour::V3_28_1,
    ];

    /// Schema version, where the export states one.
    pub fn schema_version(self) -> Option<&'static str> {
        match self {
            Flavour::V2021 => None,
            Flavour::V3_16_1 => Some("3.16.1"),
            Flavour::V3_20_3 => Some("3.20.3"),
            Flavour::V3_24_14 => Some("3.24.14"),
            Flavour::V3_25_0 => Some("3.25.0"),
            Flavour::V3_28_1 => Some("3.28.1"),
        }
    }

    /// Version of the product.
    pub fn product_version(self) -> &'static str {
        match self {
            Flavour::V2021 => "2021.5.1.118",
            Flavour::V3_16_1 => "2024.6.2.225",
            Flavour::V3_20_3 => "2025.3.2.0",
            Flavour::V3_24_14 => "2026.1.1.204",
            Flavour::V3_25_0 => "2026.2.1.210",
            Flavour::V3_28_1 => "2026.4.1.191",
        }
    }
}

/// SQLite's storage class of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    Integer,
    Text,
    Real,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) storage: Storage,
    pub(crate) not_null: bool,
    pub(crate) key: bool,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
}

impl Column {
    fn parse(word: &str) -> Column {
        let (word, storage) = match word.split_once(':') {
            Some((name, "T")) => (name, Storage::Text),
            Some((name, _)) => (name, Storage::Real),
            None => (word, Storage::Integer),
        };
        let key = word.ends_with('*');
        let word = word.trim_end_matches('*');
        Column {
            name: word.trim_end_matches('!').to_owned(),
            storage,
            not_null: word.ends_with('!'),
            key,
        }
    }
}

impl Table {
    fn parse(line: &str) -> Option<Table> {
        let mut words = line.split_whitespace();
        Some(Table {
            name: words.next()?.to_owned(),
            columns: words.map(Column::parse).collect(),
        })
    }

    fn drop(&mut self, names: &[&str]) {
        self.columns.retain(|c| !names.contains(&c.name.as_str()));
    }

    fn add(&mut self, words: &str) {
        self.columns
            .extend(words.split_whitespace().map(Column::parse));
    }

    /// The statement that makes it; names are quoted because `end` is a keyword.
    pub(crate) fn create_sql(&self) -> String {
        let columns: Vec<String> = self
            .columns
            .iter()
            .map(|c| {
                let storage = match c.storage {
                    Storage::Integer => "INTEGER",
                    Storage::Text => "TEXT",
                    Storage::Real => "REAL",
                };
                let not_null = if c.not_null { " NOT NULL" } else { "" };
                let key = if c.key { " PRIMARY KEY" } else { "" };
                format!("\"{}\" {storage}{not_null}{key}", c.name)
            })
            .collect();
        format!("CREATE TABLE \"{}\" ({})", self.name, columns.join(", "))
    }
}

/// All tables of a version.
pub(crate) fn tables(flavour: Flavour) -> Vec<Table> {
    let mut tables: Vec<Table> = BASE.lines().filter_map(Table::parse).collect();
    for table in &mut tables {
        match flavour {
            Flavour::V2021 => as_2021(table),
            Flavour::V3_16_1 => {
                if table.name == "CUPTI_ACTIVITY_KIND_MEMCPY" {
                    table.drop(&["copyCount"]);
                }
            }
            Flavour::V3_20_3 => {}
            Flavour::V3_24_14 => as_2026(table),
            Flavour::V3_25_0 => as_2026_2(table),
            Flavour::V3_28_1 => as_2026_4(table),
        }
    }
    tables
}

fn as_2021(table: &mut Table) {
    table.drop(&[
        "greenContextId",
        "graphNodeId",
        "virtualAddress",
        "copyCount",
        "sharedMemoryLimitConfig",
        "binaryData",
    ]);
    let events = table.name.starts_with("CUPTI_ACTIVITY_KIND_");
    for column in table.columns.iter_mut().filter(|_| events) {
        column.not_null = true;
    }
}

fn as_2026(table: &mut Table) {
    match table.name.as_str() {
        "CUPTI_ACTIVITY_KIND_KERNEL" => table.add(
            "qmdBulkReleaseDone qmdPreexitDone qmdLastCtaDone graphId clusterX clusterY clusterZ \
             clusterSchedulingPolicy maxPotentialClusterSize maxActiveClusters \
             sharedMemoryRequestedPercentage",
        ),
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT" => {
            table.columns.insert(0, Column::parse("timestamp"));
        }
        "PROFILER_OVERHEAD" => {
            table.drop(&["returnValue"]);
            table.add("overheadType!");
        }
        "TARGET_INFO_SESSION_START_TIME" => table.add("systemClockNs"),
        "TARGET_INFO_CUDA_CONTEXT_INFO" => table.add("numMultiprocessors"),
        "TARGET_INFO_CUDA_DEVICE" => table.add("uuid:T numMultiprocessors"),
        _ => {}
    }
}

fn as_2026_2(table: &mut Table) {
    as_2026(table);
    if table.name == "CUPTI_ACTIVITY_KIND_KERNEL" {
        table.add("tensorSizeMinusOneElements!:T");
    }
}

fn as_2026_4(table: &mut Table) {
    as_2026_2(table);
    match table.name.as_str() {
        "NVTX_EVENTS" => table.columns.insert(0, Column::parse("eventId!*")),
        "TARGET_INFO_SESSION_START_TIME" => table.add("sessionStartCntVctNs"),
        "TARGET_INFO_GPU" => table.add("numaNodeId"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel_columns(flavour: Flavour) -> Vec<String> {
        tables(flavour)
            .into_iter()
            .find(|t| t.name == "CUPTI_ACTIVITY_KIND_KERNEL")
            .unwrap()
            .columns
            .into_iter()
            .map(|c| c.name)
            .collect()
    }

    #[test]
    fn the_kernel_table_ends_where_each_version_ends_it() {
        let last = |flavour| kernel_columns(flavour).pop().unwrap();
        assert_eq!(last(Flavour::V3_16_1), "sharedMemoryLimitConfig");
        assert_eq!(last(Flavour::V3_20_3), "sharedMemoryLimitConfig");
        assert_eq!(last(Flavour::V3_24_14), "sharedMemoryRequestedPercentage");
        assert_eq!(last(Flavour::V3_25_0), "tensorSizeMinusOneElements");
        assert!(!kernel_columns(Flavour::V2021).contains(&"graphNodeId".to_owned()));
    }

    #[test]
    fn words_of_the_schema_file_become_columns() {
        let table = Table::parse("T id!* value!:T x:R plain").unwrap();
        assert_eq!(
            table.create_sql(),
            "CREATE TABLE \"T\" (\"id\" INTEGER NOT NULL PRIMARY KEY, \"value\" TEXT NOT NULL, \"x\" REAL, \
             \"plain\" INTEGER)"
        );
    }
}
