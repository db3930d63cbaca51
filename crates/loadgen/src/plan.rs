//! The validated plan of a run: what is executed, and what the manifest records.

use std::collections::BTreeSet;

use linktax_records::{CacheMode, CellSpec, Load};
pub use linktax_sse::Endpoint;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::LoadError;
use crate::target::Target;
use crate::workload::{WorkloadKind, WorkloadSpec};

/// Path of the API below the base URL.
pub const fn endpoint_path(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Completions => "/v1/completions",
        Endpoint::Chat => "/v1/chat/completions",
    }
}

/// How the server is asked to say how many tokens a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenCounting {
    /// Running usage where the server accepts it, else final usage.
    Auto,
    /// `stream_options.continuous_usage_stats`.
    Continuous,
    /// `return_token_ids`.
    TokenIds,
    /// Final usage only.
    Final,
}

/// Sampling and other request fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// `temperature`; `None` leaves it to the server.
    pub temperature: Option<f64>,
    /// Send `ignore_eos` and `min_tokens`, so that every answer has the asked length.
    pub ignore_eos: bool,
    /// Fields merged into every request body.
    pub extra_body: Map<String, Value>,
}

/// Everything that decides what is sent, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadPlan {
    /// Replicas; requests are dealt to them in turn.
    pub base_urls: Vec<String>,
    /// Model name in the requests; `None` takes the only one that the server lists.
    pub model: Option<String>,
    /// API.
    pub endpoint: Endpoint,
    /// What to send.
    pub workload: WorkloadSpec,
    /// The points of the run, in order.
    pub cells: Vec<CellSpec>,
    /// Request fields.
    pub sampling: Sampling,
    /// How tokens are counted.
    pub token_counting: TokenCounting,
    /// Warm-up requests before each cell; `None` is one a stream.
    pub num_warmups: Option<u64>,
    /// Environment variable that holds the API key; the key itself is never stored.
    pub api_key_env: Option<String>,
    /// Names of the extra headers; their values are never stored.
    pub header_names: Vec<String>,
    /// Do not check the server's certificate.
    pub insecure: bool,
    /// Longest time to open a connection.
    pub connect_timeout_s: f64,
    /// Longest time from sending to the first token.
    pub first_token_timeout_s: f64,
    /// Longest silence after the first token.
    pub idle_timeout_s: f64,
    /// Time between samples of the server's running and waiting gauges; `None` takes none.
    pub metrics_interval_s: Option<f64>,
    /// Seconds to profile the server for, once all requests of a cell are decoding.
    #[serde(default)]
    pub profile_s: Option<f64>,
    /// Receive threads.
    pub threads: u32,
    /// Keep the generated texts in the records.
    pub keep_text: bool,
    /// The server is linktax's mock server and stamps its chunks with its own send time.
    pub send_stamps: bool,
    /// Seed of lengths and contents.
    pub seed: u64,
    /// Makes prompts distinct from those of any other run.
    pub nonce: u64,
}

/// What must not be stored: looked up again on a resume.
#[derive(Clone, Default)]
pub struct Secrets {
    /// Bearer token.
    pub api_key: Option<String>,
    /// Extra headers with their values.
    pub headers: Vec<(String, String)>,
}

impl LoadPlan {
    /// A plan of these cells with every setting at its default; seed and nonce are zero.
    pub fn new(base_urls: Vec<String>, cells: Vec<CellSpec>) -> LoadPlan {
        LoadPlan {
            base_urls,
            model: None,
            endpoint: Endpoint::Completions,
            workload: WorkloadSpec::default(),
            cells,
            sampling: Sampling {
                temperature: Some(0.0),
                ignore_eos: true,
                extra_body: Map::new(),
            },
            token_counting: TokenCounting::Auto,
            num_warmups: None,
            api_key_env: None,
            header_names: Vec::new(),
            insecure: false,
            connect_timeout_s: 10.0,
            first_token_timeout_s: 600.0,
            idle_timeout_s: 120.0,
            metrics_interval_s: Some(1.0),
            profile_s: None,
            threads: 1,
            keep_text: false,
            send_stamps: false,
            seed: 0,
            nonce: 0,
        }
    }

    /// Checks what can be checked without a server, and returns the parsed targets.
    pub fn validate(&self) -> Result<Vec<Target>, LoadError> {
        let fail = |option: &str, reason: String| LoadError::Plan {
            option: option.to_owned(),
            reason,
        };
        if self.cells.is_empty() {
            return Err(fail("grid", "it has no cell".to_owned()));
        }
        if self.base_urls.is_empty() {
            return Err(fail(
                "--base-url",
                "no server given; name one, or use --mock".to_owned(),
            ));
        }
        let targets = self
            .base_urls
            .iter()
            .map(|u| Target::parse(u))
            .collect::<Result<Vec<_>, _>>()?;
        let distinct: BTreeSet<String> = targets.iter().map(ToString::to_string).collect();
        if distinct.len() != targets.len() {
            return Err(fail(
                "--base-url",
                "the same server is given twice".to_owned(),
            ));
        }
        for (option, seconds) in [
            ("--connect-timeout", self.connect_timeout_s),
            ("--first-token-timeout", self.first_token_timeout_s),
            ("--idle-timeout", self.idle_timeout_s),
        ] {
            if !is_wait(seconds) {
                return Err(fail(option, out_of_range(seconds)));
            }
        }
        if let Some(seconds) = self.profile_s {
            if !(seconds > 0.0 && seconds <= 600.0) {
                return Err(fail(
                    "--profile-for",
                    format!("{seconds} s is out of range; expected more than 0 and at most 600"),
                ));
            }
            if self.cells.iter().any(|c| c.load.concurrency().is_none()) {
                return Err(fail(
                    "--profile",
                    "it waits until all requests of a closed loop are decoding; use --concurrency without a rate".to_owned(),
                ));
            }
        }
        if self.metrics_interval_s.is_some_and(|s| !is_wait(s)) {
            let given = self.metrics_interval_s.unwrap_or_default();
            return Err(fail("--metrics-interval", out_of_range(given)));
        }
        for cell in &self.cells {
            self.check_cell(cell)
                .map_err(|(option, reason)| fail(option, reason))?;
        }
        if self.threads == 0 {
            return Err(fail("--threads", "0; expected at least 1".to_owned()));
        }
        if let Some(c) = self
            .max_in_flight()
            .filter(|&c| u64::from(self.threads) > u64::from(c))
        {
            return Err(fail(
                "--threads",
                format!(
                    "{} threads for at most {c} requests in flight",
                    self.threads
                ),
            ));
        }
        Ok(targets)
    }

    /// Checks what one cell asks for: the option and what is wrong with it.
    fn check_cell(&self, cell: &CellSpec) -> Result<(), (&'static str, String)> {
        check_load(&cell.load)?;
        if cell.requests == Some(0) {
            return Err(("--requests", "0; expected at least 1".to_owned()));
        }
        if let Some(s) = cell
            .duration_s
            .filter(|&s| !(s > 0.0 && s <= LONGEST_CELL_S))
        {
            let reason = format!("{s} s; expected more than 0 and at most {LONGEST_CELL_S}");
            return Err(("--duration", reason));
        }
        let endless =
            self.workload.kind == WorkloadKind::Synthetic || self.workload.repeat == Some(true);
        if endless && cell.requests.is_none() && cell.duration_s.is_none() {
            let reason = "a workload without an end needs a number of requests, or --duration";
            return Err(("--requests", reason.to_owned()));
        }
        if endless && cell.requests.is_none() && cell.cache == CacheMode::Warm {
            let reason = "warm sends every prompt once before measuring, so the number of requests must be \
                          known: use --requests";
            return Err(("--cache", reason.to_owned()));
        }
        Ok(())
    }

    /// Most requests in flight in any cell; `None` where an open loop has no cap.
    pub(crate) fn max_in_flight(&self) -> Option<u32> {
        self.cells
            .iter()
            .filter_map(|c| in_flight_cap(&c.load))
            .max()
    }
}

/// Longest measured phase, in seconds: a week.
const LONGEST_CELL_S: f64 = 604_800.0;

/// Whether a time limit makes sense: more than nothing, at most a day.
fn is_wait(seconds: f64) -> bool {
    seconds > 0.0 && seconds <= 86_400.0
}

fn out_of_range(seconds: f64) -> String {
    format!("{seconds} s is out of range; expected more than 0 and at most 86400")
}

/// The option and what is wrong with it.
fn check_load(load: &Load) -> Result<(), (&'static str, String)> {
    let positive = |option, value: f64| match value > 0.0 && value.is_finite() {
        true => Ok(()),
        false => Err((option, format!("{value}; expected a number above 0"))),
    };
    match *load {
        Load::Concurrency(_) => {}
        Load::Rate {
            per_second,
            burstiness,
            ..
        } => {
            positive("--request-rate", per_second)?;
            // Infinite is constant spacing.
            if let Some(shape) = burstiness.filter(|&b| b != f64::INFINITY) {
                positive("--burstiness", shape)?;
            }
        }
        Load::Trace { speedup, .. } => positive("--speedup", speedup)?,
    }
    if in_flight_cap(load) == Some(0) {
        return Err(("--concurrency", "0; expected at least 1".to_owned()));
    }
    Ok(())
}

/// Most requests that a load may have in flight.
pub(crate) fn in_flight_cap(load: &Load) -> Option<u32> {
    match load {
        Load::Concurrency(c) => Some(*c),
        Load::Rate {
            max_concurrency, ..
        }
        | Load::Trace {
            max_concurrency, ..
        } => *max_concurrency,
    }
}
