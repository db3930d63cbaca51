//! The control plane: everything asked of a server that is not measured (models, version, metrics), over reqwest.

use std::time::Duration;

use linktax_records::ServerDelta;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::LoadError;
use crate::plan::{LoadPlan, Secrets};
use crate::prometheus::{self, Samples};
use crate::session::headers;
use crate::target::Target;

/// Longest wait for an answer of the control plane.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A blocking view on the control plane of all replicas.
pub(crate) struct Control {
    runtime: tokio::runtime::Runtime,
    client: reqwest::Client,
    targets: Vec<Target>,
    /// What a second client is built from.
    recipe: ControlRecipe,
}

/// `/metrics` of every replica at one moment.
pub(crate) struct Snapshot(Vec<Result<Samples, String>>);

impl Control {
    pub(crate) fn new(
        plan: &LoadPlan,
        secrets: &Secrets,
        targets: &[Target],
    ) -> Result<Control, LoadError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| LoadError::Thread {
                what: "control",
                source,
            })?;
        let recipe = ControlRecipe {
            plan: plan.clone(),
            secrets: secrets.clone(),
        };
        Ok(Control {
            runtime,
            client: recipe.client()?,
            targets: targets.to_vec(),
            recipe,
        })
    }

    /// Runs a future to its end on the control plane's runtime.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// GET as JSON; the error is one line for people.
    pub(crate) fn get_json(&self, target: &Target, path: &str) -> Result<Value, GetError> {
        self.block_on(async {
            let answer = self
                .client
                .get(target.url(path))
                .send()
                .await
                .map_err(|e| GetError::Unreachable(root_cause(&e)))?;
            let status = answer.status().as_u16();
            if answer.status().is_redirection() {
                let location = answer.headers().get(hyper::header::LOCATION);
                let location = location.map(|l| String::from_utf8_lossy(l.as_bytes()).into_owned());
                return Err(GetError::Redirect(status, location.unwrap_or_default()));
            }
            let text = answer
                .text()
                .await
                .map_err(|e| GetError::Unreachable(root_cause(&e)))?;
            if !(200..300).contains(&status) {
                return Err(GetError::Status(status, text));
            }
            serde_json::from_str(&text).map_err(|_| GetError::NotJson(text))
        })
    }

    /// How to make another client like this one.
    pub(crate) fn recipe(&self) -> ControlRecipe {
        self.recipe.clone()
    }

    pub(crate) fn metrics(&self) -> Snapshot {
        self.block_on(snapshot(&self.client, &self.targets))
    }

    /// Samples the running and waiting gauges every `interval` on a thread of its own until the guard is taken
    /// back.
    pub(crate) fn sample_gauges(&self, interval: Duration) -> Result<GaugeSampler, LoadError> {
        // A client of its own: a pooled connection is driven by the runtime it was opened on, and the control
        // plane's own runtime stands still while a cell is measured.
        let (client, targets) = (self.recipe.client()?, self.targets.clone());
        let (stop, mut stopped) = watch::channel(());
        let thread = std::thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || {
                let mut peaks = GaugePeaks::default();
                let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                else {
                    return peaks;
                };
                runtime.block_on(async {
                    loop {
                        let sample = async {
                            tokio::time::sleep(interval).await;
                            snapshot(&client, &targets).await
                        };
                        tokio::select! {
                            _ = stopped.changed() => break,
                            sample = sample => peaks.add(&sample),
                        }
                    }
                });
                peaks
            })
            .map_err(|source| LoadError::Thread {
                what: "metrics",
                source,
            })?;
        Ok(GaugeSampler { stop, thread })
    }
}

/// A running sampler of the server's gauges.
pub(crate) struct GaugeSampler {
    stop: watch::Sender<()>,
    thread: std::thread::JoinHandle<GaugePeaks>,
}

impl GaugeSampler {
    pub(crate) fn finish(self) -> GaugePeaks {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}

/// Largest values of the gauges, summed over replicas at each moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GaugePeaks {
    running: Option<f64>,
    waiting: Option<f64>,
    samples: u32,
}

impl GaugePeaks {
    fn add(&mut self, snapshot: &Snapshot) {
        let gauges: Vec<_> = snapshot
            .0
            .iter()
            .filter_map(|s| s.as_ref().ok().map(prometheus::gauges))
            .collect();
        // A sample that lacks a replica would show too low a sum.
        if gauges.len() < snapshot.0.len() {
            return;
        }
        let running = gauges.iter().map(|g| g.0).sum();
        let waiting = gauges.iter().map(|g| g.1).sum();
        self.running = max(self.running, running);
        self.waiting = max(self.waiting, waiting);
        self.samples += 1;
    }

    pub(crate) fn write_to(self, delta: &mut ServerDelta) {
        delta.running_peak = self.running;
        delta.waiting_peak = self.waiting;
        delta.gauge_samples = self.samples;
    }
}

fn max(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

impl Snapshot {
    /// What changed since `before`, over all replicas.
    pub(crate) fn since(&self, before: &Snapshot) -> ServerDelta {
        let deltas: Vec<ServerDelta> = before
            .0
            .iter()
            .zip(&self.0)
            .map(|(before, after)| prometheus::delta(before, after))
            .collect();
        prometheus::merge(&deltas)
    }

    /// The counters of each replica as they stood, for `server.json`.
    pub(crate) fn to_json(&self, targets: &[Target]) -> Value {
        let replicas = self.0.iter().zip(targets).map(|(samples, target)| {
            let value = match samples {
                Ok(samples) => prometheus::to_json(samples),
                Err(reason) => json!({ "unavailable": reason }),
            };
            (target.to_string(), value)
        });
        Value::Object(replicas.collect::<Map<String, Value>>())
    }
}

async fn snapshot(client: &reqwest::Client, targets: &[Target]) -> Snapshot {
    let mut all = Vec::with_capacity(targets.len());
    for target in targets {
        all.push(scrape(client, target).await);
    }
    Snapshot(all)
}

async fn scrape(client: &reqwest::Client, target: &Target) -> Result<Samples, String> {
    let url = target.url("/metrics");
    let answer = client
        .get(&url)
        .send()
        .await
        .map_err(|e| format!("{url}: {}", root_cause(&e)))?;
    if !answer.status().is_success() {
        return Err(format!("{url}: HTTP status {}", answer.status().as_u16()));
    }
    let text = answer
        .text()
        .await
        .map_err(|e| format!("{url}: {}", root_cause(&e)))?;
    Ok(prometheus::parse(&text))
}

/// What a control-plane client is built from.
#[derive(Clone)]
pub(crate) struct ControlRecipe {
    plan: LoadPlan,
    secrets: Secrets,
}

impl ControlRecipe {
    fn client(&self) -> Result<reqwest::Client, LoadError> {
        // reqwest takes the process's default provider; whoever installs it first wins, and all are the same.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut default_headers = headers(&self.secrets)?;
        default_headers.remove(hyper::header::CONTENT_TYPE);
        default_headers.remove(hyper::header::ACCEPT);
        let mut builder = reqwest::Client::builder()
            .no_proxy()
            // The measured path follows none either: better to find out before measuring.
            .redirect(reqwest::redirect::Policy::none())
            .timeout(TIMEOUT)
            .connect_timeout(Duration::from_secs_f64(self.plan.connect_timeout_s))
            .pool_idle_timeout(Duration::from_secs(2))
            .default_headers(default_headers);
        if self.plan.insecure {
            builder = builder.tls_danger_accept_invalid_certs(true);
        }
        builder.build().map_err(|e| LoadError::Tls(root_cause(&e)))
    }

    /// One POST without a body, on a runtime of its own; the error is one line for people.
    pub(crate) fn post(&self, url: &str, timeout: Duration) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| e.to_string())?;
        let client = self.client().map_err(|e| e.to_string())?;
        let answer = runtime
            .block_on(async { client.post(url).timeout(timeout).send().await })
            .map_err(|e| root_cause(&e))?;
        match answer.status() {
            status if status.is_success() => Ok(()),
            status => Err(format!("HTTP status {}", status.as_u16())),
        }
    }
}

/// Why a control-plane request gave no JSON.
#[derive(Debug)]
pub(crate) enum GetError {
    Unreachable(String),
    /// The status and where it points.
    Redirect(u16, String),
    Status(u16, String),
    NotJson(String),
}

/// The innermost cause of an error: "connection refused" rather than the layers around it.
fn root_cause(e: &dyn std::error::Error) -> String {
    let mut cause = e;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
