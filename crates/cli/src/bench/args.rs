//! The flags of `linktax bench`, as text. Names follow `vllm bench serve` where they mean the same.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::number::{number, whole, whole32};

/// Largest concurrency, length and number of requests taken for meant.
pub(crate) const MAX_CONCURRENCY: u32 = 100_000;
pub(crate) const MAX_TOKENS: u64 = 100_000_000;
pub(crate) const MAX_REQUESTS: u64 = 1_000_000_000;

/// Which API the requests go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EndpointArg {
    /// `/v1/completions` with token-id prompts: lengths are exact.
    Completions,
    /// `/v1/chat/completions` with text: lengths are calibrated by two probes, and checked.
    Chat,
}

/// How the server is asked for token counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TokenCountArg {
    /// Running usage where the server accepts it, else final usage.
    Auto,
    /// `stream_options.continuous_usage_stats`.
    Continuous,
    /// `return_token_ids`.
    TokenIds,
    /// Final usage only.
    Final,
}

/// Format of `--dataset-path`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DatasetArg {
    /// One JSON object a line: `prompt` or `messages`, optional `output_len`.
    #[value(alias = "custom")]
    Jsonl,
    /// A ShareGPT conversation file.
    Sharegpt,
    /// Mooncake-style trace: timestamp, input_length, output_length, hash_ids.
    #[value(alias = "timed_trace")]
    Trace,
}

/// What a run was begun with cannot be changed when it is resumed.
const OF_THE_PLAN: [&str; 42] = [
    "base_url",
    "mock",
    "mock_config",
    "model",
    "endpoint",
    "api_key_env",
    "insecure",
    "workload",
    "concurrency",
    "input_len",
    "output_len",
    "requests",
    "duration",
    "request_rate",
    "burstiness",
    "cache",
    "length_dist",
    "random_range_ratio",
    "dataset_path",
    "dataset_name",
    "speedup",
    "num_warmups",
    "token_id_min",
    "token_id_max",
    "seed",
    "nonce",
    "temperature",
    "extra_body",
    "no_ignore_eos",
    "token_count",
    "connect_timeout",
    "first_token_timeout",
    "idle_timeout",
    "stall_gap",
    "gpus",
    "goodput",
    "max_failures",
    "arm",
    "threads",
    "metrics_interval",
    "profile",
    "profile_for",
];

const EXAMPLES: &str = "\
Examples:
  linktax bench --mock
      a small grid against the built-in mock server
  linktax bench --base-url http://127.0.0.1:8000 --concurrency 1,2,4,8,16 \\
      --input-len 1024,8192 --output-len 128 --gpus 2 --arm nvlink
      a closed loop at five concurrencies and two input lengths
  linktax bench --base-url http://127.0.0.1:8000 --request-rate 2,4,8 \\
      --duration 60 --goodput ttft:500 tpot:50
      an open loop with Poisson arrivals for a minute each
  linktax bench --base-url http://127.0.0.1:8000 \\
      --workload workloads/nvlink-vs-pcie.toml --out runs/nvlink
      everything from a workload file
  linktax bench --out runs/nvlink --resume
      go on with a run that was stopped

Exit code: 0 all cells valid, 1 ran but not clean (reasons are printed),
2 bad usage or unreachable server.";

/// Arguments of `linktax bench`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Base URL of the server, with or without /v1; repeat it for replicas, which get the requests in turn.
    #[arg(long, value_name = "URL", help_heading = "Server")]
    pub(crate) base_url: Vec<String>,
    /// Start the built-in mock server and run against it.
    #[arg(long, conflicts_with = "base_url", help_heading = "Server")]
    pub(crate) mock: bool,
    /// Settings of the mock server (TOML).
    #[arg(
        long,
        value_name = "FILE",
        requires = "mock",
        conflicts_with = "base_url",
        help_heading = "Server"
    )]
    pub(crate) mock_config: Option<PathBuf>,
    /// Model name; the only one the server lists if left out.
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    pub(crate) model: Option<String>,
    /// API to call [default: completions].
    #[arg(long, value_enum, help_heading = "Server")]
    pub(crate) endpoint: Option<EndpointArg>,
    /// Environment variable that holds the API key; the key is never stored [default: OPENAI_API_KEY].
    #[arg(long, value_name = "VAR", help_heading = "Server")]
    pub(crate) api_key_env: Option<String>,
    /// Extra header as Name=Value; may be repeated. Values are never stored.
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Server")]
    pub(crate) header: Vec<String>,
    /// Do not check the server's TLS certificate.
    #[arg(long, help_heading = "Server")]
    pub(crate) insecure: bool,

    /// Workload file (TOML): grid and prompts; flags given beside it win.
    #[arg(long, value_name = "FILE", help_heading = "Workload")]
    pub(crate) workload: Option<PathBuf>,
    /// Requests in flight, comma-separated: one cell each [default: 1,4,16; with --mock 1,2,8].
    #[arg(
        long,
        alias = "max-concurrency",
        value_delimiter = ',',
        value_name = "C,…",
        value_parser = whole32::<1, MAX_CONCURRENCY>, help_heading = "Workload"
    )]
    pub(crate) concurrency: Option<Vec<u32>>,
    /// Prompt tokens, comma-separated: one cell each [default: 1024].
    #[arg(
        long,
        alias = "random-input-len",
        value_delimiter = ',',
        value_name = "N,…",
        value_parser = whole::<1, MAX_TOKENS>, help_heading = "Workload"
    )]
    pub(crate) input_len: Option<Vec<u64>>,
    /// Output tokens of each request [default: 128; with --mock 64].
    #[arg(
        long,
        alias = "random-output-len",
        value_name = "N",
        value_parser = whole::<1, MAX_TOKENS>, help_heading = "Workload"
    )]
    pub(crate) output_len: Option<u64>,
    /// Measured requests a cell [default: 4 × concurrency, at least 8].
    #[arg(
        long,
        alias = "num-prompts",
        value_name = "N",
        conflicts_with = "duration",
        value_parser = whole::<1, MAX_REQUESTS>, help_heading = "Workload"
    )]
    pub(crate) requests: Option<u64>,
    /// Seconds that each cell starts requests for, instead of a number of requests.
    #[arg(long, value_name = "SECONDS", value_parser = number, help_heading = "Workload")]
    pub(crate) duration: Option<f64>,
    /// Open loop: requests a second, comma-separated, one cell each; --concurrency is then the cap.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "R,…",
        value_parser = number, help_heading = "Workload"
    )]
    pub(crate) request_rate: Option<Vec<f64>>,
    /// Open loop: gamma shape of the gaps; 1 is Poisson, inf is constant spacing [default: 1].
    #[arg(
        long,
        value_name = "SHAPE",
        requires = "request_rate",
        value_parser = number, help_heading = "Workload"
    )]
    pub(crate) burstiness: Option<f64>,
    /// Declared prefix-cache state: cold, warm, prefix=SHARE or workload [default: cold].
    #[arg(long, value_name = "STATE", help_heading = "Workload")]
    pub(crate) cache: Option<String>,
    /// How lengths are drawn: fixed, uniform:R or normal:S, R and S as shares of the length [default: fixed].
    #[arg(
        long,
        value_name = "DIST",
        conflicts_with = "random_range_ratio",
        help_heading = "Workload"
    )]
    pub(crate) length_dist: Option<String>,
    /// Same as --length-dist uniform:R.
    #[arg(long, value_name = "R", value_parser = number, help_heading = "Workload")]
    pub(crate) random_range_ratio: Option<f64>,
    /// File of prompts.
    #[arg(
        long,
        value_name = "FILE",
        requires = "dataset_name",
        conflicts_with = "workload",
        help_heading = "Workload"
    )]
    pub(crate) dataset_path: Option<PathBuf>,
    /// Format of --dataset-path.
    #[arg(long, value_enum, requires = "dataset_path", help_heading = "Workload")]
    pub(crate) dataset_name: Option<DatasetArg>,
    /// Traces: time runs this many times faster than in the file [default: 1].
    #[arg(long, value_name = "X", value_parser = number, help_heading = "Workload")]
    pub(crate) speedup: Option<f64>,
    /// Warm-up requests before each cell, with prompts of their own [default: one a stream].
    #[arg(long, value_name = "N", value_parser = whole::<0, MAX_REQUESTS>, help_heading = "Workload")]
    pub(crate) num_warmups: Option<u64>,
    /// Smallest token id in made-up prompts [default: 1000].
    #[arg(long, value_name = "ID", value_parser = whole32::<0, { u32::MAX }>, help_heading = "Workload")]
    pub(crate) token_id_min: Option<u32>,
    /// One above the largest token id in made-up prompts [default: 4000].
    #[arg(long, value_name = "ID", value_parser = whole32::<0, { u32::MAX }>, help_heading = "Workload")]
    pub(crate) token_id_max: Option<u32>,
    /// Seed of lengths, contents and arrival times [default: 0].
    #[arg(long, value_name = "N", value_parser = whole::<0, { u64::MAX }>, help_heading = "Workload")]
    pub(crate) seed: Option<u64>,
    /// Take the prompts of another run: the nonce in its run.json (hexadecimal). New for every run without it.
    #[arg(long, value_name = "HEX", help_heading = "Workload")]
    pub(crate) nonce: Option<String>,

    /// Sampling temperature [default: 0].
    #[arg(long, value_name = "T", value_parser = number, help_heading = "Request")]
    pub(crate) temperature: Option<f64>,
    /// JSON object merged into every request body.
    #[arg(long, value_name = "JSON", help_heading = "Request")]
    pub(crate) extra_body: Option<String>,
    /// Do not send ignore_eos and min_tokens: answers may be shorter than asked.
    #[arg(long, help_heading = "Request")]
    pub(crate) no_ignore_eos: bool,
    /// How the server is asked for the tokens of each chunk.
    #[arg(long, value_enum, default_value = "auto", help_heading = "Request")]
    pub(crate) token_count: TokenCountArg,
    /// Seconds to open a connection.
    #[arg(
        long,
        value_name = "S",
        default_value_t = 10.0,
        value_parser = number, help_heading = "Request"
    )]
    pub(crate) connect_timeout: f64,
    /// Seconds from sending to the first token.
    #[arg(
        long,
        value_name = "S",
        default_value_t = 600.0,
        value_parser = number, help_heading = "Request"
    )]
    pub(crate) first_token_timeout: f64,
    /// Seconds of silence after the first token.
    #[arg(
        long,
        value_name = "S",
        default_value_t = 120.0,
        value_parser = number, help_heading = "Request"
    )]
    pub(crate) idle_timeout: f64,

    /// Stall threshold: a time such as 200ms, auto, or off [default: auto].
    #[arg(
        long,
        value_name = "GAP",
        allow_hyphen_values = true,
        help_heading = "Numbers"
    )]
    pub(crate) stall_gap: Option<String>,
    /// GPUs behind all base URLs together, for the per-GPU numbers.
    #[arg(long, value_name = "N", value_parser = whole32::<1, 65_536>, help_heading = "Numbers")]
    pub(crate) gpus: Option<u32>,
    /// Service-level objectives as KEY:MS with ttft, tpot or e2el.
    #[arg(long, value_name = "KEY:MS", num_args = 1.., help_heading = "Numbers")]
    pub(crate) goodput: Vec<String>,
    /// Failed requests that a cell may have before it is flagged.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<0, { u64::MAX }>, help_heading = "Numbers")]
    pub(crate) max_failures: u64,

    /// Label of the configuration under test, such as nvlink, pcie or tp1.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "default",
        help_heading = "Output"
    )]
    pub(crate) arm: String,
    /// Run directory [default: runs/ARM-DATE-TIME].
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) out: Option<PathBuf>,
    /// Go on with the run in --out: its own plan is used, complete cells are kept.
    #[arg(long, requires = "out", conflicts_with_all = OF_THE_PLAN, help_heading = "Output")]
    pub(crate) resume: bool,
    /// Also write the results with the keys of `vllm bench serve --save-result`, one JSON line a cell.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) vllm_json: Option<PathBuf>,
    /// Per-request arrays in --vllm-json, as `vllm bench serve --save-detailed` has them.
    #[arg(long, requires = "vllm_json", help_heading = "Output")]
    pub(crate) save_detailed: bool,
    /// Print run.json instead of the table.
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// No progress.
    #[arg(long, short, help_heading = "Output")]
    pub(crate) quiet: bool,

    /// Profile the server (POST /start_profile, /stop_profile) once all requests of a cell are decoding.
    #[arg(long, help_heading = "Client")]
    pub(crate) profile: bool,
    /// Length of the profile, such as 2s or 500ms.
    #[arg(long, value_name = "TIME", default_value = "2s", requires = "profile", value_parser = parse_seconds, help_heading = "Client")]
    pub(crate) profile_for: f64,
    /// Receive threads; one is enough for about 100,000 tokens a second.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole32::<1, 64>, help_heading = "Client")]
    pub(crate) threads: u32,
    /// Seconds between samples of the server's running and waiting gauges; 0 takes none.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = number, help_heading = "Client")]
    pub(crate) metrics_interval: f64,
}

/// A time such as `2s` or `500ms`; a bare number is seconds.
fn parse_seconds(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1e-3),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(value) if value.is_finite() && value > 0.0 => Ok(value * unit),
        _ => Err("expected a time above zero, such as 2s or 500ms".to_owned()),
    }
}
