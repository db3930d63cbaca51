/// JSON Schema (draft 2020-12) of `run.json`.
pub const RUN_SCHEMA: &str = include_str!("../../../docs/schema/run.schema.json");

/// JSON Schema (draft 2020-12) of one line of `requests.jsonl`.
pub const REQUEST_SCHEMA: &str = include_str!("../../../docs/schema/request.schema.json");
