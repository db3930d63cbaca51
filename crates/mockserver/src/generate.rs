//! A generation request, from its body to the end of its answer.

use std::rc::Rc;

use crate::body::{GenRequest, error_json};
use crate::conn::{Conn, Gone};
use crate::fault::{Fault, FaultKind};
use crate::http::Request;
use crate::job::{Finish, Job};
use crate::routes::refuse;
use crate::stats::count;
use crate::{stream, whole};

/// vLLM's words when its engine has died.
pub(crate) const ENGINE_DIED: &str =
    "EngineCore encountered an issue. See stack trace (above) for the root cause.";

const BAD_GATEWAY: &str =
    "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>";

/// Answers a chat or text completion. Returns whether the connection is kept.
pub(crate) async fn answer(conn: &mut Conn, request: Request, chat: bool) -> Result<bool, Gone> {
    let server = Rc::clone(&conn.server);
    let keep = request.keep_alive;
    let asked = match GenRequest::parse(&server.config, chat, request.body()) {
        Ok(asked) => asked,
        Err(e) => return refuse(conn, &e, keep).await,
    };
    let number = count(&server.stats.requests);
    let mut job = Job::new(&server, asked, number, request.arrival);
    drop(request);
    if let Some(fault) = job.fault.clone() {
        count(&server.stats.faults);
        if let Some((status, kind, body)) = instead(&fault) {
            job.flight.end(Finish::Error);
            return conn.respond(status, kind, "", body.as_bytes(), keep).await;
        }
    }
    let as_stream = job.stream && job.fault_kind() != Some(FaultKind::NotStream);
    let ended = if as_stream {
        stream::run(conn, job, keep).await
    } else {
        whole::run(conn, job, keep).await
    };
    match ended? {
        End::Kept(keep) => Ok(keep),
        End::Cut => Err(Gone),
    }
}

/// How a request came to its planned end.
pub(crate) enum End {
    /// Answered in full; whether the connection is kept.
    Kept(bool),
    /// A fault ends the connection.
    Cut,
}

/// Status, content type and body of a fault that replaces the whole answer; `None` for the others.
fn instead(fault: &Fault) -> Option<(u16, &'static str, String)> {
    let json = "application/json";
    let (status, kind, body) = match fault.kind {
        FaultKind::HttpError => (fault.status, json, died(fault.status)),
        FaultKind::JsonError200 => (200, json, died(500)),
        FaultKind::Html => (200, "text/html", BAD_GATEWAY.to_owned()),
        _ => return None,
    };
    Some((status, kind, fault.body.clone().unwrap_or(body)))
}

fn died(code: u16) -> String {
    let kind = if code == 503 {
        "Service Unavailable"
    } else {
        "InternalServerError"
    };
    error_json(ENGINE_DIED, kind, None, code)
}
