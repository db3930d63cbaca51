//! Files of other tools, in and out. One module a format.
//!
//! [`vllm_bench`] writes a cell as the result file of `vllm bench serve`, so that what already reads such
//! files (plots, dashboards, CI scripts) reads ours.
//!
//! ```
//! use linktax_interop::vllm_bench::{console, vllm_bench_result};
//! # use linktax_records::{
//! #     CacheMode, CellEntry, CellSpec, CellStatus, GpuCount, Load, RequestRecord, RunManifest, RunStatus, ToolInfo,
//! # };
//! # let cell = CellEntry {
//! #     spec: CellSpec {
//! #         index: 0, workload: "random".into(), input_len: Some(8), output_len: Some(2),
//! #         load: Load::Concurrency(1), requests: Some(1), duration_s: None, cache: CacheMode::Cold,
//! #     },
//! #     status: CellStatus::Complete, attempt: 0, started_unix_ns: None, results: None, server: None, client: None,
//! #     verdict: None,
//! # };
//! # let manifest = RunManifest {
//! #     schema_version: 1, tool: ToolInfo { name: "linktax".into(), version: "0".into() },
//! #     status: RunStatus::Complete, command: vec![], arm: "nvlink".into(), started_unix_ns: 0,
//! #     finished_unix_ns: None, seed: 0, nonce: "0".into(), gpus: GpuCount { count: None, source: "unknown".into() },
//! #     plan: serde_json::json!({"endpoint": "chat", "model": "m"}), environment: serde_json::Map::new(),
//! #     servers: vec![], percentile_method: "linear".into(), cells: vec![], notes: vec![],
//! # };
//! // A cell whose one request has not ended yet.
//! let records: Vec<RequestRecord> = vec![];
//! let Ok(result) = vllm_bench_result(&cell, &manifest, &records, true);
//! assert_eq!(result["backend"], "openai-chat");
//! assert_eq!(result["completed"], 0);
//! assert!(result["mean_ttft_ms"].is_null(), "not measured is not zero");
//! assert!(console(&result).contains("Mean TTFT (ms):                          n/a"));
//! ```

mod calendar;
mod numpy;
pub mod vllm_bench;
