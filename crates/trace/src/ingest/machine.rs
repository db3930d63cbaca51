//! The small tables: versions, export parameters, GPUs, processes, diagnostics. Only named keys are ever asked for:
//! the same tables hold the environment of the traced program.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::rows::PROCESS;
use super::schema::Table;
use super::{Connected, bulk};
use crate::TraceError;
use crate::timeline::Gpu;

/// Keys of `META_DATA_EXPORT` that are read.
const EXPORT: [&str; 6] = [
    "EXPORT_PRODUCT_VERSION",
    "EXPORT_SCHEMA_VERSION",
    "EXPORT_PARAM_LAZY",
    "EXPORT_PARAM_TABLES_TO_EXPORT",
    "EXPORT_PARAM_TIMES_TO_EXPORT",
    "EXPORT_PARAM_TIME_SHIFT",
];

/// What the export says about its own making.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExportInfo {
    /// Version of nsys that exported.
    pub tool_version: Option<String>,
    /// Schema version (`3.25.0`).
    pub schema_version: Option<String>,
    /// Tables that the export was limited to.
    pub only_tables: Option<String>,
    /// Times that the export was limited to.
    pub only_times: Option<String>,
    /// Whether times were shifted, and by how much.
    pub time_shift: Option<String>,
    /// Whether there is any metadata; without it the export died or was made by hand.
    pub has_metadata: bool,
    /// The graph mode that the capture was asked for (`Graph`, `Node`), which says nothing about what came of it.
    pub graph_mode_asked: Option<String>,
}

impl ExportInfo {
    pub(crate) async fn read(from: &mut Connected<'_>) -> Result<Self, TraceError> {
        let exported = from.values("META_DATA_EXPORT", &EXPORT).await?;
        let value = |key: &str| exported.get(key).filter(|v| !v.is_empty()).cloned();
        Ok(ExportInfo {
            tool_version: value("EXPORT_PRODUCT_VERSION"),
            schema_version: value("EXPORT_SCHEMA_VERSION"),
            only_tables: value("EXPORT_PARAM_TABLES_TO_EXPORT"),
            only_times: value("EXPORT_PARAM_TIMES_TO_EXPORT"),
            time_shift: value("EXPORT_PARAM_TIME_SHIFT").filter(|shift| shift != "0"),
            has_metadata: !exported.is_empty(),
            graph_mode_asked: graph_mode(from).await?,
        })
    }

    /// The major number of the schema, if it is one that this tool was not written for.
    pub(crate) fn unknown_schema(&self) -> Option<&str> {
        let version = self.schema_version.as_deref()?;
        let major = version.split('.').next()?;
        (major != "3").then_some(version)
    }
}

async fn graph_mode(from: &mut Connected<'_>) -> Result<Option<String>, TraceError> {
    let Some(table) = from.schema.table("META_DATA_CAPTURE") else {
        return Ok(None);
    };
    if !table.missing(&["name", "value"]).is_empty() {
        return Ok(None);
    }
    let sql = format!(
        "{} WHERE name LIKE '%CUDA_GRAPH_TRACE_OPTIONS:MODE' ORDER BY name LIMIT 1",
        table.select(&["value"])
    );
    let mut mode = None;
    bulk::scan(from.connection, (from.path, table.name), &sql, |row| {
        mode = row.text(0).map(str::to_owned);
    })
    .await?;
    Ok(mode)
}

impl Connected<'_> {
    /// The values of these keys in a table of names and values.
    async fn values(
        &mut self,
        table: &str,
        keys: &[&str],
    ) -> Result<BTreeMap<String, String>, TraceError> {
        let mut values = BTreeMap::new();
        let Some(table) = self.schema.table(table) else {
            return Ok(values);
        };
        if !table.missing(&["name", "value"]).is_empty() {
            return Ok(values);
        }
        let sql = table.select(&["name", "value"]);
        bulk::scan(self.connection, (self.path, table.name), &sql, |row| {
            if let (Some(name), Some(value)) = (row.text(0), row.text(1))
                && keys.contains(&name)
            {
                values.insert(name.to_owned(), value.to_owned());
            }
        })
        .await?;
        Ok(values)
    }
}

/// GPUs and how processes number them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gpus {
    /// By `TARGET_INFO_GPU.id`.
    pub(crate) physical: BTreeMap<i64, Gpu>,
    /// (pid, CUDA ordinal) to physical id.
    ordinals: HashMap<(i64, i64), i64>,
}

impl Gpus {
    pub(crate) async fn read(from: &mut Connected<'_>) -> Result<Self, TraceError> {
        let mut gpus = Gpus::default();
        if let Some(table) = usable(from, "TARGET_INFO_GPU", &["id"]) {
            let sql = table.select(&["id", "name", "memoryBandwidth", "smCount"]);
            bulk::scan(from.connection, (from.path, table.name), &sql, |row| {
                let known = |value: i64| (value > 0).then_some(value.unsigned_abs());
                let gpu = Gpu {
                    name: row.text(1).map(str::to_owned),
                    index: u32::try_from(row.int(0)).ok(),
                    memory_bandwidth: known(row.int(2)),
                    sm_count: known(row.int(3)).and_then(|count| u32::try_from(count).ok()),
                };
                gpus.physical.insert(row.int(0), gpu);
            })
            .await?;
        }
        let needed = ["gpuId", "cudaId", "pid"];
        if let Some(table) = usable(from, "TARGET_INFO_CUDA_DEVICE", &needed) {
            let sql = table.select(&needed);
            bulk::scan(from.connection, (from.path, table.name), &sql, |row| {
                gpus.ordinals.insert((row.int(2), row.int(1)), row.int(0));
            })
            .await?;
        }
        Ok(gpus)
    }

    /// The GPU behind a process's device, as far as the export tells.
    pub(crate) fn of(&self, pid: u32, device: u32) -> Gpu {
        let mapped = self.ordinals.get(&(i64::from(pid), i64::from(device)));
        // Without a map only a machine with one GPU leaves no doubt.
        let only = (self.physical.len() == 1).then(|| self.physical.keys().next());
        let id = mapped.or(only.flatten());
        id.and_then(|id| self.physical.get(id))
            .cloned()
            .unwrap_or_default()
    }
}

fn usable<'t>(from: &Connected<'t>, table: &str, needed: &[&str]) -> Option<Table<'t>> {
    from.schema
        .table(table)
        .filter(|table| table.missing(needed).is_empty())
}

/// Names of processes by `globalPid`.
pub(crate) async fn processes(
    from: &mut Connected<'_>,
) -> Result<BTreeMap<i64, Option<String>>, TraceError> {
    let mut processes = BTreeMap::new();
    if let Some(table) = usable(from, "PROCESSES", &["globalPid"]) {
        let sql = table.select(&["globalPid", "name"]);
        bulk::scan(from.connection, (from.path, table.name), &sql, |row| {
            // A command line may stand in for the name: the program alone is kept.
            let name = row.text(1).and_then(|name| {
                let program = name.split_whitespace().next()?;
                Some(program.rsplit('/').next().unwrap_or(program).to_owned())
            });
            processes.insert(row.int(0) & PROCESS, name);
        })
        .await?;
    }
    Ok(processes)
}

/// Diagnostics that mean lost events, and warnings besides, each with its number of times.
pub(crate) async fn diagnostics(
    from: &mut Connected<'_>,
) -> Result<BTreeMap<Diagnostic, u64>, TraceError> {
    let mut found = BTreeMap::new();
    if let Some(table) = usable(from, "DIAGNOSTIC_EVENT", &["severity", "text"]) {
        let sql = table.select(&["severity", "text"]);
        bulk::scan(from.connection, (from.path, table.name), &sql, |row| {
            let Some(text) = row.text(1) else { return };
            let lost = is_loss(text);
            // 2 = warning, 3 = error.
            if lost || [2, 3].contains(&row.int(0)) {
                let text = without_paths(text);
                *found.entry(Diagnostic { lost, text }).or_insert(0) += 1;
            }
        })
        .await?;
    }
    Ok(found)
}

/// A message of the profiler.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Diagnostic {
    /// Whether it says that events are missing.
    pub(crate) lost: bool,
    /// The message, without paths.
    pub(crate) text: String,
}

fn is_loss(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["dropped", "lost ", "were lost", "overflow", "discarded"]
        .iter()
        .any(|word| text.contains(word))
}

/// A message without words that could be paths or settings, cut to 200 characters.
pub(crate) fn without_paths(text: &str) -> String {
    let word = |word: &str| match word.contains('/') || word.contains('\\') || word.contains('=') {
        true => "…".to_owned(),
        false => word.to_owned(),
    };
    let words: Vec<String> = text.split_whitespace().map(word).collect();
    let mut text = words.join(" ");
    if let Some((end, _)) = text.char_indices().nth(200) {
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagnostics_lose_their_paths() {
        assert_eq!(
            without_paths("cannot open /home/me/x.log with TOKEN=abc twice"),
            "cannot open … with … twice"
        );
        assert!(is_loss("12 CUPTI events were dropped"));
        assert!(!is_loss("Not all NVTX events might have been collected."));
    }

    #[test]
    fn fr_18_the_schema_major_decides() {
        let info = |version: &str| ExportInfo {
            schema_version: Some(version.to_owned()),
            ..ExportInfo::default()
        };
        assert_eq!(info("3.30.1").unknown_schema(), None);
        assert_eq!(info("99.0").unknown_schema(), Some("99.0"));
        assert_eq!(ExportInfo::default().unknown_schema(), None);
    }
}
