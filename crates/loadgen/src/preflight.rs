//! Everything that can be found out before the first measured request: is there a server, does it know the model,
//! does it stream, how does it say how many tokens a chunk holds.

use std::rc::Rc;
use std::sync::Arc;

use linktax_records::{Note, Outcome, TokenSource};
use linktax_sse::{DecodeOptions, Decoded};
use serde_json::{Value, json};

use crate::LoadError;
use crate::body::{BodyTemplate, UsageMode};
use crate::cancel::Cancel;
use crate::control::{Control, GetError};
use crate::exchange::{Asked, ExchangeOptions, exchange};
use crate::plan::{Endpoint, LoadPlan, Secrets, TokenCounting, endpoint_path};
use crate::session::headers;
use crate::target::Target;
use crate::transport::{Connection, Tls};
use crate::workload::{Prompt, TextCalibration, Workload};

/// Output tokens of a probe: enough to see a second chunk.
const PROBE_TOKENS: u64 = 4;

/// What the servers said.
pub(crate) struct Findings {
    pub(crate) model: String,
    pub(crate) usage: UsageMode,
    pub(crate) servers: Vec<Value>,
    /// Tensor × pipeline × data parallel, summed over replicas, if every server says so.
    pub(crate) gpus: Option<u32>,
    pub(crate) notes: Vec<Note>,
}

/// Asks every server for its models and version, then sends it a short probe.
pub(crate) fn run(
    control: &Control,
    plan: &LoadPlan,
    secrets: &Secrets,
    targets: &[Target],
) -> Result<Findings, LoadError> {
    let mut servers = Vec::new();
    let mut model = plan.model.clone();
    let mut gpus = Some(0);
    for target in targets {
        let models = models(control, target)?;
        let chosen = choose_model(target, &models, model.as_deref())?;
        model = Some(chosen);
        let version = control.get_json(target, "/version").ok();
        let parallel = parallel_size(control, target);
        gpus = gpus.zip(parallel).map(|(a, b)| a + b);
        servers.push(json!({
            "base_url": target.to_string(),
            "version": version.as_ref().and_then(|v| v.get("version")).cloned(),
            "models": models,
            "gpus": parallel,
        }));
    }
    let model = model.unwrap_or_default();
    let probe = Probe::new(plan, secrets, targets, &model)?;
    let (usage, notes) = probe.usage_mode(control, targets)?;
    Ok(Findings {
        model,
        usage,
        servers,
        gpus,
        notes,
    })
}

/// How many tokens the embedded words cost on this server; only text of a wanted length needs to know.
pub(crate) fn calibrate_text(
    control: &Control,
    plan: &LoadPlan,
    secrets: &Secrets,
    targets: &[Target],
    findings: &Findings,
    workload: &Workload,
) -> Result<Option<TextCalibration>, LoadError> {
    if !workload.needs_calibration() {
        return Ok(None);
    }
    let probe = Probe::new(plan, secrets, targets, &findings.model)?;
    let mut counted = workload.probe_words().map(|words| (words, 0));
    for (words, tokens) in &mut counted {
        let prompt = Prompt::Text(workload.probe_text(*words));
        let decoded = probe.send(control, &targets[0], &prompt, UsageMode::Final, 1)?;
        *tokens = decoded.usage.map_or(0, |u| u.prompt_tokens);
    }
    Ok(TextCalibration::from_probes(counted[0], counted[1]))
}

fn models(control: &Control, target: &Target) -> Result<Vec<String>, LoadError> {
    let url = target.url("/v1/models");
    let fail = |reason: String| LoadError::Server {
        url: url.clone(),
        reason,
    };
    let answer = control.get_json(target, "/v1/models").map_err(|e| {
        fail(match e {
            GetError::Unreachable(cause) if cause.contains("certificate") => format!(
                "no answer: {cause}; --insecure takes the server's certificate unchecked"
            ),
            GetError::Redirect(status, location) => format!(
                "HTTP status {status} redirects to {location:?}, and redirects are not followed; give the address \
                 behind it with --base-url"
            ),
            GetError::Unreachable(cause) => format!(
                "no answer: {cause}; is the server up? (--mock runs against the built-in one)"
            ),
            GetError::Status(status @ (401 | 403), _) => format!(
                "HTTP status {status}: the server wants an API key; put it in an environment variable and name it \
                 with --api-key-env"
            ),
            GetError::Status(404, _) => "HTTP status 404: no OpenAI-compatible API there; expected the base URL \
                 without /v1/..., for example http://127.0.0.1:8000"
                .to_owned(),
            GetError::Status(status, body) => format!("HTTP status {status}: {}", first_line(&body)),
            GetError::NotJson(body) => format!(
                "expected JSON from an OpenAI-compatible server, got {}: check host and port",
                describe(&body)
            ),
        })
    })?;
    let list = answer.get("data").and_then(Value::as_array);
    let Some(list) = list else {
        return Err(fail(format!(
            "expected a list of models under \"data\", got {}",
            first_line(&answer.to_string())
        )));
    };
    Ok(list
        .iter()
        .filter_map(|m| m.get("id").and_then(Value::as_str).map(str::to_owned))
        .collect())
}

fn choose_model(
    target: &Target,
    models: &[String],
    wanted: Option<&str>,
) -> Result<String, LoadError> {
    let fail = |reason: String| LoadError::Server {
        url: target.to_string(),
        reason,
    };
    match (wanted, models) {
        (Some(name), _) if models.iter().any(|m| m == name) => Ok(name.to_owned()),
        (Some(name), _) => Err(fail(format!(
            "it does not serve the model {name:?}; --model must be one of: {}",
            models.join(", ")
        ))),
        (None, [only]) => Ok(only.clone()),
        (None, []) => Err(fail("it lists no model; name one with --model".to_owned())),
        (None, _) => Err(fail(format!(
            "it serves several models; choose one with --model: {}",
            models.join(", ")
        ))),
    }
}

/// GPUs behind one endpoint, from the parallel sizes that vLLM's `/server_info` (development mode) shows; unknown
/// where it runs on CPUs.
fn parallel_size(control: &Control, target: &Target) -> Option<u32> {
    let info = control.get_json(target, "/server_info").ok()?.to_string();
    if info.contains("device_config=cpu") {
        return None;
    }
    let mut product = 1u32;
    for key in [
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
    ] {
        let at = info.find(key)? + key.len();
        let digits: String = info[at..]
            .trim_start_matches(['\\', '"', '\'', ':', '=', ' '])
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        product = product.checked_mul(digits.parse().ok()?)?;
    }
    Some(product)
}

/// Sends single requests over the measured path, without a worker.
struct Probe<'a> {
    plan: &'a LoadPlan,
    model: &'a str,
    headers: hyper::HeaderMap,
    tls: Tls,
}

impl<'a> Probe<'a> {
    fn new(
        plan: &'a LoadPlan,
        secrets: &Secrets,
        targets: &[Target],
        model: &'a str,
    ) -> Result<Probe<'a>, LoadError> {
        let tls = Tls::for_targets(targets, plan.insecure)?;
        Ok(Probe {
            plan,
            model,
            headers: headers(secrets)?,
            tls,
        })
    }

    /// Finds the best way of counting tokens that every server accepts.
    fn usage_mode(
        &self,
        control: &Control,
        targets: &[Target],
    ) -> Result<(UsageMode, Vec<Note>), LoadError> {
        let wanted = match self.plan.token_counting {
            TokenCounting::Auto | TokenCounting::Continuous => UsageMode::Continuous,
            TokenCounting::TokenIds => UsageMode::TokenIds,
            TokenCounting::Final => UsageMode::Final,
        };
        let mut notes = Vec::new();
        let mut mode = wanted;
        for target in targets {
            let prompt = self.prompt();
            let mut decoded = self.send(control, target, &prompt, mode, PROBE_TOKENS);
            let refused = matches!(&decoded, Err(LoadError::Server { reason, .. }) if reason.starts_with("HTTP status 4"));
            if refused
                && mode == UsageMode::Continuous
                && self.plan.token_counting == TokenCounting::Auto
            {
                let fallback = self.send(control, target, &prompt, UsageMode::Final, PROBE_TOKENS);
                if fallback.is_ok() {
                    mode = UsageMode::Final;
                    notes.push(Note::new(
                        "no_continuous_usage",
                        format!("{target} refuses running usage on each chunk; tokens of single reads are counted as events"),
                    ));
                    decoded = fallback;
                }
            }
            let decoded = decoded?;
            if decoded.usage.is_none() {
                notes.push(Note::new(
                    "no_usage",
                    format!("{target} sends no usage: output tokens are estimated from events"),
                ));
            } else if mode == UsageMode::Continuous
                && decoded.token_source != TokenSource::ContinuousUsage
            {
                notes.push(Note::new(
                    "no_continuous_usage",
                    format!("{target} ignores the wish for running usage; tokens of single reads are counted as events"),
                ));
            }
        }
        Ok((mode, notes))
    }

    fn prompt(&self) -> Prompt {
        match self.plan.endpoint {
            Endpoint::Completions => Prompt::TokenIds(vec![1000, 1001, 1002, 1003]),
            Endpoint::Chat => Prompt::Text("Say yes".to_owned()),
        }
    }

    fn send(
        &self,
        control: &Control,
        target: &Target,
        prompt: &Prompt,
        usage: UsageMode,
        output_len: u64,
    ) -> Result<Decoded, LoadError> {
        let body = BodyTemplate::new(self.plan, self.model, usage).render(prompt, output_len);
        let options = ExchangeOptions {
            first_token_timeout: std::time::Duration::from_secs_f64(
                self.plan.first_token_timeout_s,
            ),
            idle_timeout: std::time::Duration::from_secs_f64(self.plan.idle_timeout_s),
            decode: DecodeOptions::new(self.plan.endpoint),
            decoding: Arc::default(),
        };
        let cancel = Rc::new(Cancel::default());
        let url = target.url(endpoint_path(self.plan.endpoint));
        let fail = |reason: String| LoadError::Server {
            url: url.clone(),
            reason,
        };
        let decoded = control.block_on(async {
            let mut connection = Connection::open(target, &self.tls)
                .await
                .map_err(|e| fail(format!("no connection: {e}")))?;
            let path = endpoint_path(self.plan.endpoint);
            let request = target.post(path, &self.headers, body);
            let asked = Asked {
                output_len,
                at_least: None,
            };
            let done = tokio::select! {
                done = exchange(&mut connection, request, asked, &options, &cancel, 0) => done,
                never = cancel.keep_looking() => match never {},
            };
            Ok::<_, LoadError>(done.decoded)
        })?;
        self.check(decoded).map_err(fail)
    }

    /// Turns a probe that failed into one line with what to do.
    fn check(&self, decoded: Decoded) -> Result<Decoded, String> {
        let detail = decoded.failure.clone().unwrap_or_default();
        let body = detail.body.as_deref().unwrap_or_default();
        match decoded.outcome {
            Outcome::Completed | Outcome::ShortOutput => Ok(decoded),
            Outcome::HttpError if detail.message.contains("redirects") => Err(format!(
                "{}, and redirects are not followed; give the address behind it with --base-url",
                detail.message
            )),
            Outcome::HttpError => Err(self.refusal(detail.status.unwrap_or(0), body)),
            Outcome::Malformed if detail.message.contains("event stream") => Err(format!(
                "{}; linktax needs a server that streams (stream: true as text/event-stream): {}",
                detail.message,
                describe(body)
            )),
            Outcome::Malformed => Err(format!(
                "an answer cannot be read: {}: {}",
                detail.message,
                describe(body)
            )),
            Outcome::NoOutput => {
                Err("a probe of four tokens was answered without a single token".to_owned())
            }
            _ => Err(format!(
                "a probe of four tokens failed ({}): {} {}",
                decoded.outcome.as_str(),
                detail.message,
                first_line(body)
            )),
        }
    }

    fn refusal(&self, status: u16, body: &str) -> String {
        let said = first_line(body);
        match status {
            401 | 403 => format!(
                "HTTP status {status}: {said}; put the API key in an environment variable and name it with --api-key-env"
            ),
            404 => {
                let other = match self.plan.endpoint {
                    Endpoint::Completions => "chat",
                    Endpoint::Chat => "completions",
                };
                format!(
                    "HTTP status 404: {said}; if the server lacks this API, try --endpoint {other}"
                )
            }
            400 | 422 if self.plan.sampling.ignore_eos => format!(
                "HTTP status {status}: {said}; if the server does not know ignore_eos and min_tokens, use --no-ignore-eos"
            ),
            _ => format!("HTTP status {status}: {said}"),
        }
    }
}

fn first_line(text: &str) -> String {
    let line = text
        .lines()
        .find(|l| !l.trim().is_empty())
        .unwrap_or("(empty body)");
    line.chars().take(300).collect()
}

fn describe(body: &str) -> String {
    let start = body.trim_start();
    if start.starts_with("<!") || start.to_ascii_lowercase().starts_with("<html") {
        "an HTML page".to_owned()
    } else {
        format!("{:?}", first_line(body))
    }
}
