use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{CellSpec, ClientStats, ServerDelta, Verdict};

/// Version of the layout of `run.json` and `requests.jsonl`.
pub const SCHEMA_VERSION: u32 = 1;

/// Which program wrote a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolInfo {
    /// `linktax`.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// How many GPUs serve the endpoint, and who said so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuCount {
    /// Number of GPUs behind all `--base-url`s together; `None` if unknown.
    pub count: Option<u32>,
    /// `flag`, `server`, or `unknown`.
    pub source: String,
}

/// State of a run directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Still running, stopped or killed: some cells are missing.
    Incomplete,
    /// Every cell was run.
    Complete,
}

/// State of one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellStatus {
    /// Not begun.
    Pending,
    /// Begun; its records may be partial.
    Running,
    /// Stopped before its end; what was measured is kept.
    Incomplete,
    /// Ran to its end.
    Complete,
}

/// One cell of a run: what was asked, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellEntry {
    /// What was asked for.
    #[serde(flatten)]
    pub spec: CellSpec,
    /// How far it got.
    pub status: CellStatus,
    /// The try whose records count (see [`crate::RequestRecord::attempt`]).
    #[serde(default)]
    pub attempt: u32,
    /// Wall-clock time of the cell's clock origin, nanoseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_unix_ns: Option<u64>,
    /// The numbers, with the keys of `vllm bench serve` where it has them; see `docs/metrics.md`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Map<String, Value>>,
    /// What the server's counters said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerDelta>,
    /// What the client observed of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientStats>,
    /// Whether the numbers may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// `run.json`: everything needed to read `requests.jsonl` and to run the same thing again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunManifest {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The writer.
    pub tool: ToolInfo,
    /// Whether all cells were run.
    pub status: RunStatus,
    /// The command line, secrets removed.
    pub command: Vec<String>,
    /// Label of the configuration under test.
    pub arm: String,
    /// Wall-clock time of the start, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// Wall-clock time of the end.
    #[serde(default)]
    pub finished_unix_ns: Option<u64>,
    /// Seed of lengths and contents.
    pub seed: u64,
    /// Nonce that makes this run's prompts distinct from any other run's, in hexadecimal.
    pub nonce: String,
    /// GPUs that the per-GPU numbers divide by.
    pub gpus: GpuCount,
    /// The validated plan that ran.
    pub plan: Value,
    /// The machine the client ran on, and the limits it ran under.
    pub environment: Map<String, Value>,
    /// What `/version` and `/v1/models` said, by base URL.
    pub servers: Vec<Value>,
    /// How percentiles are computed.
    pub percentile_method: String,
    /// The cells.
    pub cells: Vec<CellEntry>,
    /// Remarks on the run as a whole.
    #[serde(default)]
    pub notes: Vec<crate::Note>,
}
