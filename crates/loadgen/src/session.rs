//! A run that has passed its pre-flight checks: everything the receive threads share.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use hyper::header;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use linktax_records::Phase;
use linktax_sse::DecodeOptions;

use crate::LoadError;
use crate::body::{BodyTemplate, UsageMode};
use crate::exchange::ExchangeOptions;
use crate::plan::{LoadPlan, Secrets};
use crate::target::Target;
use crate::transport::Tls;
use crate::workload::Workload;

/// Shared, read-only state of a run.
pub(crate) struct Session {
    pub(crate) plan: LoadPlan,
    pub(crate) targets: Vec<Target>,
    pub(crate) tls: Tls,
    pub(crate) headers: HeaderMap,
    pub(crate) template: BodyTemplate,
    pub(crate) workload: Workload,
}

impl Session {
    pub(crate) fn new(
        plan: LoadPlan,
        targets: Vec<Target>,
        secrets: &Secrets,
        workload: Workload,
        model: &str,
        usage: UsageMode,
    ) -> Result<Arc<Session>, LoadError> {
        let tls = Tls::for_targets(&targets, plan.insecure)?;
        Ok(Arc::new(Session {
            headers: headers(secrets)?,
            template: BodyTemplate::new(&plan, model, usage),
            plan,
            targets,
            tls,
            workload,
        }))
    }

    /// `decoding` counts the requests that are past their first token.
    pub(crate) fn exchange_options(&self, decoding: Arc<AtomicU32>) -> ExchangeOptions {
        ExchangeOptions {
            first_token_timeout: Duration::from_secs_f64(self.plan.first_token_timeout_s),
            idle_timeout: Duration::from_secs_f64(self.plan.idle_timeout_s),
            decode: DecodeOptions {
                keep_text: self.plan.keep_text,
                send_stamps: self.plan.send_stamps,
                ..DecodeOptions::new(self.plan.endpoint)
            },
            decoding,
        }
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        Duration::from_secs_f64(self.plan.connect_timeout_s)
    }

    /// The id sent as `x-request-id`.
    pub(crate) fn request_id(&self, cell: u32, attempt: u32, phase: Phase, index: u64) -> String {
        let phase = match phase {
            Phase::Prime => 'p',
            Phase::Warmup => 'w',
            Phase::Measured => 'm',
        };
        format!(
            "linktax-{:016x}-{cell}.{attempt}-{phase}{index}",
            self.plan.nonce
        )
    }
}

/// Headers that say where a message ends or how it is packed: another value would break the exchange.
const OWN_HEADERS: [&str; 9] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "expect",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers of every request; a bad one is reported without its value, which may be a secret.
pub(crate) fn headers(secrets: &Secrets) -> Result<HeaderMap, LoadError> {
    let mut map = HeaderMap::new();
    map.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    map.insert(
        header::ACCEPT,
        HeaderValue::from_static("text/event-stream"),
    );
    map.insert(
        header::USER_AGENT,
        HeaderValue::from_static(concat!("linktax/", env!("CARGO_PKG_VERSION"))),
    );
    if let Some(key) = &secrets.api_key {
        let mut value =
            HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| LoadError::Plan {
                option: "--api-key-env".to_owned(),
                reason: "the key holds a character that no HTTP header may carry".to_owned(),
            })?;
        value.set_sensitive(true);
        map.insert(header::AUTHORIZATION, value);
    }
    for (name, value) in &secrets.headers {
        let fail = |what: &str| LoadError::Plan {
            option: format!("--header {name}"),
            reason: format!("{what}; expected Name=Value"),
        };
        if OWN_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own)) {
            return Err(LoadError::Plan {
                option: format!("--header {name}"),
                reason: "this header frames the message and is set by linktax itself".to_owned(),
            });
        }
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| fail("not a header name"))?;
        let value = HeaderValue::from_str(value).map_err(|_| fail("not a header value"))?;
        map.insert(key, value);
    }
    Ok(map)
}
