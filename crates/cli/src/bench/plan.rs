//! From the flags and the workload file to the validated plan that runs and goes into the manifest.

use anyhow::{Context, anyhow, bail, ensure};
use linktax_loadgen::workload::{
    Lengths, PromptKind, RunSection, WorkloadFile, WorkloadKind, WorkloadSpec,
};
use linktax_loadgen::{Endpoint, LoadPlan, Sampling, Secrets, TokenCounting};
use linktax_metrics::{Slo, StallGap};
use linktax_mockserver::MockConfig;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::args::{BenchArgs, DatasetArg, EndpointArg, TokenCountArg};
use super::{grid, origin};

/// Where the API key is looked for by default.
const API_KEY_ENV: &str = "OPENAI_API_KEY";

/// Everything that decides what a bench run measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BenchPlan {
    /// What is sent, and when.
    pub(crate) load: LoadPlan,
    /// Stall threshold, as `--stall-gap` takes it.
    pub(crate) stall_gap: String,
    /// GPUs, if the user said.
    pub(crate) gpus: Option<u32>,
    /// Service-level objectives.
    pub(crate) goodput: Vec<String>,
    /// Failures that do not flag a cell.
    pub(crate) max_failures: u64,
    /// Label of the configuration under test.
    pub(crate) arm: String,
    /// Settings of the built-in mock server, when it is the one under test.
    pub(crate) mock: Option<MockConfig>,
}

impl BenchPlan {
    /// The plan of these arguments.
    pub(crate) fn from_args(args: &BenchArgs) -> anyhow::Result<BenchPlan> {
        let file = match &args.workload {
            Some(path) => WorkloadFile::from_path(path)?,
            None => WorkloadFile::default(),
        };
        let run = &file.run;
        let endpoint = endpoint(args, run)?;
        let workload = workload(args, file.workload.clone(), endpoint)?;
        let stall_gap = args
            .stall_gap
            .clone()
            .or_else(|| run.stall_gap.clone())
            .unwrap_or_else(|| "auto".to_owned());
        stall_gap.parse::<StallGap>().with_context(|| {
            let from_flag = args.stall_gap.is_some();
            origin::name(args, "--stall-gap", from_flag, "stall_gap")
        })?;
        for slo in &args.goodput {
            slo.parse::<Slo>().context("--goodput")?;
        }
        let mock = args.mock.then(|| mock_config(args)).transpose()?;
        let cells = grid::cells(args, run, &workload)?;
        let load = LoadPlan {
            model: args.model.clone(),
            endpoint,
            workload,
            sampling: sampling(args)?,
            token_counting: match args.token_count {
                TokenCountArg::Auto => TokenCounting::Auto,
                TokenCountArg::Continuous => TokenCounting::Continuous,
                TokenCountArg::TokenIds => TokenCounting::TokenIds,
                TokenCountArg::Final => TokenCounting::Final,
            },
            num_warmups: args.num_warmups.or(run.warmup),
            api_key_env: Some(api_key_env(args)?),
            header_names: header_pairs(args)?.into_iter().map(|(n, _)| n).collect(),
            insecure: args.insecure,
            connect_timeout_s: args.connect_timeout,
            first_token_timeout_s: args.first_token_timeout,
            idle_timeout_s: args.idle_timeout,
            metrics_interval_s: metrics_interval(args)?,
            profile_s: args.profile.then_some(args.profile_for),
            threads: args.threads,
            keep_text: args.save_detailed,
            seed: args.seed.or(run.seed).unwrap_or(0),
            nonce: nonce(args.nonce.as_deref())?,
            ..LoadPlan::new(args.base_url.clone(), cells)
        };
        ensure!(
            mock.is_some() || !load.base_urls.is_empty(),
            "no server given: name one with --base-url http://HOST:PORT, or use --mock"
        );
        Ok(BenchPlan {
            load,
            stall_gap,
            gpus: args.gpus,
            goodput: args.goodput.clone(),
            max_failures: args.max_failures,
            arm: args.arm.clone(),
            mock,
        })
    }

    /// The secrets that the plan only names, from the environment and the flags.
    pub(crate) fn secrets(&self, args: &BenchArgs) -> anyhow::Result<Secrets> {
        let headers = header_pairs(args)?;
        let given: Vec<&String> = headers.iter().map(|(n, _)| n).collect();
        if let Some(missing) = self.load.header_names.iter().find(|n| !given.contains(n)) {
            bail!(
                "the run used --header {missing}=…; header values are never stored, so give it again"
            );
        }
        let api_key = self
            .load
            .api_key_env
            .as_deref()
            .and_then(|name| std::env::var(name).ok())
            .filter(|key| !key.is_empty());
        Ok(Secrets { api_key, headers })
    }

    /// What the numbers are asked to be.
    pub(crate) fn options(&self, gpus: Option<u32>) -> anyhow::Result<linktax_metrics::Options> {
        Ok(linktax_metrics::Options {
            stall: self.stall_gap.parse()?,
            gpus,
            slos: self
                .goodput
                .iter()
                .map(|s| s.parse())
                .collect::<Result<_, _>>()?,
            seed: self.load.seed,
            ..linktax_metrics::Options::default()
        })
    }

    /// When a cell is called clean.
    pub(crate) fn limits(&self) -> linktax_metrics::Limits {
        linktax_metrics::Limits {
            max_failures: self.max_failures,
            ..linktax_metrics::Limits::default()
        }
    }
}

fn endpoint(args: &BenchArgs, run: &RunSection) -> anyhow::Result<Endpoint> {
    if let Some(endpoint) = args.endpoint {
        return Ok(match endpoint {
            EndpointArg::Completions => Endpoint::Completions,
            EndpointArg::Chat => Endpoint::Chat,
        });
    }
    match run.endpoint.as_deref() {
        None | Some("completions") => Ok(Endpoint::Completions),
        Some("chat") => Ok(Endpoint::Chat),
        Some(other) => {
            let name = origin::name(args, "--endpoint", false, "endpoint");
            bail!("{name} {other:?}: expected completions or chat")
        }
    }
}

fn workload(
    args: &BenchArgs,
    mut spec: WorkloadSpec,
    endpoint: Endpoint,
) -> anyhow::Result<WorkloadSpec> {
    if let (Some(path), Some(kind)) = (&args.dataset_path, args.dataset_name) {
        spec.path = Some(path.clone());
        spec.kind = match kind {
            DatasetArg::Jsonl => WorkloadKind::Jsonl,
            DatasetArg::Sharegpt => WorkloadKind::Sharegpt,
            DatasetArg::Trace => WorkloadKind::Trace,
        };
        if spec.name.is_none() {
            spec.name = path.file_stem().map(|s| s.to_string_lossy().into_owned());
        }
    }
    if let Some(text) = &args.length_dist {
        spec.lengths = Some(text.parse::<Lengths>().context("--length-dist")?);
    }
    if let Some(ratio) = args.random_range_ratio {
        ensure!(
            (0.0..1.0).contains(&ratio),
            "--random-range-ratio {ratio}: expected 0 or more and less than 1"
        );
        spec.lengths = Some(match ratio {
            0.0 => Lengths::Fixed,
            _ => Lengths::Uniform(ratio),
        });
    }
    spec.token_id_min = args.token_id_min.or(spec.token_id_min);
    spec.token_id_max = args.token_id_max.or(spec.token_id_max);
    let made_up = matches!(spec.kind, WorkloadKind::Synthetic | WorkloadKind::Trace);
    if endpoint == Endpoint::Chat && made_up && spec.prompt_kind.is_none() {
        spec.prompt_kind = Some(PromptKind::Text);
    }
    ensure!(
        !(endpoint == Endpoint::Chat && spec.prompt_kind == Some(PromptKind::TokenIds)),
        "the chat endpoint takes no token ids; use prompt_kind = \"text\" or --endpoint completions"
    );
    Ok(spec)
}

fn sampling(args: &BenchArgs) -> anyhow::Result<Sampling> {
    let extra_body = match &args.extra_body {
        None => Map::new(),
        Some(text) => match serde_json::from_str::<Value>(text) {
            Ok(Value::Object(map)) => map,
            Ok(other) => bail!("--extra-body: expected a JSON object, got {other}"),
            Err(e) => bail!("--extra-body: not JSON: {e}"),
        },
    };
    if let Some(key) = [
        "stream",
        "prompt",
        "messages",
        "n",
        "max_tokens",
        "max_completion_tokens",
    ]
    .into_iter()
    .find(|k| extra_body.contains_key(*k))
    {
        bail!("--extra-body: {key:?} is set by linktax itself");
    }
    let temperature = args.temperature.unwrap_or(0.0);
    ensure!(
        temperature >= 0.0 && temperature.is_finite(),
        "--temperature {temperature}: expected 0 or more"
    );
    Ok(Sampling {
        temperature: Some(temperature),
        ignore_eos: !args.no_ignore_eos,
        extra_body,
    })
}

fn header_pairs(args: &BenchArgs) -> anyhow::Result<Vec<(String, String)>> {
    args.header
        .iter()
        .map(|text| {
            // The value may be a secret, so a bad flag is quoted up to its first separator only.
            let (name, value) = text.split_once('=').ok_or_else(|| {
                let shown: String = text
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '-')
                    .collect();
                anyhow!("--header {shown}…: expected Name=Value")
            })?;
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        })
        .collect()
}

fn metrics_interval(args: &BenchArgs) -> anyhow::Result<Option<f64>> {
    let s = args.metrics_interval;
    ensure!(
        s == 0.0 || (0.05..=3600.0).contains(&s),
        "--metrics-interval {s}: expected 0 (off) or 0.05 to 3600 seconds"
    );
    Ok((s > 0.0).then_some(s))
}

/// An engine whose prefills are long enough for a stall to be seen, and short enough for a minute's patience.
fn mock_config(args: &BenchArgs) -> anyhow::Result<MockConfig> {
    match &args.mock_config {
        Some(path) => crate::mock::read_config(path),
        None => Ok(MockConfig {
            mode: linktax_mockserver::Mode::Engine,
            step_ms: 5.0,
            prefill_us_per_token: 40.0,
            max_batched_tokens: 2048,
            prompt_tokens_details: true,
            ..MockConfig::default()
        }),
    }
}

/// The variable that holds the key. One that was asked for must be there; the default one need not.
fn api_key_env(args: &BenchArgs) -> anyhow::Result<String> {
    let Some(name) = &args.api_key_env else {
        return Ok(API_KEY_ENV.to_owned());
    };
    let set = std::env::vars_os().any(|(n, value)| n == name.as_str() && !value.is_empty());
    ensure!(
        set,
        "--api-key-env {name}: there is no such environment variable, or it is empty; export the key under this \
         name (the flag takes the variable's name, not the key)"
    );
    Ok(name.clone())
}

fn nonce(given: Option<&str>) -> anyhow::Result<u64> {
    let Some(text) = given else {
        // The hasher's keys come from the operating system's random source.
        use std::hash::{BuildHasher, Hasher, RandomState};
        return Ok(RandomState::new().build_hasher().finish());
    };
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let hexadecimal = digits.chars().all(|c| c.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16)
        .ok()
        .filter(|_| hexadecimal)
        .ok_or_else(|| anyhow!("--nonce {text}: expected 1 to 16 hexadecimal digits"))
}
