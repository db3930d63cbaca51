//! Requests in, response heads out.

use std::io::Write as _;
use std::ops::Range;

use crate::clock::now_ns;
use crate::conn::{Conn, Gone};

const MAX_HEAD: usize = 64 << 10;

/// A request as it came.
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    /// Whether the connection may serve another one.
    pub(crate) keep_alive: bool,
    /// When its last byte had been read, in ns.
    pub(crate) arrival: u64,
    bytes: Vec<u8>,
    body: Range<usize>,
}

impl Request {
    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[self.body.clone()]
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Why there is no request.
pub(crate) enum NoRequest {
    /// The client left, or was idle too long.
    Gone,
    /// It cannot be read; answer with this status and close.
    Bad(u16, &'static str),
}

impl From<Gone> for NoRequest {
    fn from(_: Gone) -> Self {
        NoRequest::Gone
    }
}

enum BodyLength {
    Known(usize),
    Chunked,
}

struct Head {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    keep_alive: bool,
    length: usize,
}

/// Reads the head at the start of `bytes`, if it is complete.
fn parse_head(bytes: &[u8]) -> Result<Option<Head>, NoRequest> {
    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut parsed = httparse::Request::new(&mut headers);
    let length = match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() > MAX_HEAD => {
            return Err(NoRequest::Bad(431, "Request head too large."));
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(NoRequest::Bad(400, "Invalid HTTP request received.")),
    };
    let headers: Vec<(String, String)> = parsed
        .headers
        .iter()
        .map(|h| {
            let value = String::from_utf8_lossy(h.value).trim().to_owned();
            (h.name.to_ascii_lowercase(), value)
        })
        .collect();
    let says = |word: &str| {
        headers
            .iter()
            .any(|(n, v)| n == "connection" && v.to_ascii_lowercase().contains(word))
    };
    let keep_alive = if parsed.version == Some(0) {
        says("keep-alive")
    } else {
        !says("close")
    };
    let target = parsed.path.unwrap_or("/");
    Ok(Some(Head {
        method: parsed.method.unwrap_or("").to_owned(),
        path: target.split('?').next().unwrap_or("/").to_owned(),
        headers,
        keep_alive,
        length,
    }))
}

fn body_length(headers: &[(String, String)]) -> Result<BodyLength, NoRequest> {
    let get = |name: &str| {
        headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    };
    match (get("transfer-encoding"), get("content-length")) {
        (Some(coding), _) if coding.eq_ignore_ascii_case("chunked") => Ok(BodyLength::Chunked),
        (Some(_), _) => Err(NoRequest::Bad(501, "Unknown transfer coding.")),
        (None, Some(length)) => length
            .parse()
            .map(BodyLength::Known)
            .map_err(|_| NoRequest::Bad(400, "Invalid HTTP request received.")),
        (None, None) => Ok(BodyLength::Known(0)),
    }
}

/// Reads the next request. `idle_until` ends the wait for its first byte.
pub(crate) async fn read_request(
    conn: &mut Conn,
    idle_until: u64,
    max_body: usize,
) -> Result<Request, NoRequest> {
    // A pipelined request arrives, as far as the server is concerned, when it is taken up.
    let mut arrival = now_ns();
    let head = loop {
        if let Some(head) = parse_head(&conn.inbox)? {
            break head;
        }
        let until = conn.inbox.is_empty().then_some(idle_until);
        arrival = conn.fill(until, 0).await?;
    };
    let length = body_length(&head.headers)?;
    if matches!(length, BodyLength::Known(n) if n > max_body) {
        return Err(NoRequest::Bad(413, "Request body too large."));
    }
    let expects = head
        .headers
        .iter()
        .any(|(n, v)| n == "expect" && v.eq_ignore_ascii_case("100-continue"));
    if expects {
        conn.write(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    let (bytes, body) = match length {
        BodyLength::Known(n) => {
            let end = head.length + n;
            while conn.inbox.len() < end {
                arrival = conn.fill(None, end - conn.inbox.len()).await?;
            }
            let rest = conn.inbox.split_off(end);
            (std::mem::replace(&mut conn.inbox, rest), head.length..end)
        }
        BodyLength::Chunked => {
            let body = read_chunked(conn, head.length, max_body, &mut arrival).await?;
            let range = 0..body.len();
            (body, range)
        }
    };
    Ok(Request {
        method: head.method,
        path: head.path,
        headers: head.headers,
        keep_alive: head.keep_alive,
        arrival,
        bytes,
        body,
    })
}

/// Reads a chunked body that starts at `at` of the inbox, and takes it and the head out.
async fn read_chunked(
    conn: &mut Conn,
    mut at: usize,
    max_body: usize,
    arrival: &mut u64,
) -> Result<Vec<u8>, NoRequest> {
    let mut body = Vec::new();
    loop {
        let (used, size) = match httparse::parse_chunk_size(&conn.inbox[at..]) {
            Ok(httparse::Status::Complete((used, size))) => (used, size),
            Ok(httparse::Status::Partial) => {
                *arrival = conn.fill(None, 0).await?;
                continue;
            }
            Err(_) => return Err(NoRequest::Bad(400, "Invalid HTTP request received.")),
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        if size > max_body.saturating_sub(body.len()) {
            return Err(NoRequest::Bad(413, "Request body too large."));
        }
        let (start, end) = (at + used, at + used + size);
        // The data and the line end behind it; trailers after the last chunk are not supported.
        while conn.inbox.len() < end + 2 {
            *arrival = conn.fill(None, end + 2 - conn.inbox.len()).await?;
        }
        body.extend_from_slice(&conn.inbox[start..end]);
        conn.inbox.drain(..end + 2);
        at = 0;
        if size == 0 {
            return Ok(body);
        }
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Error",
    }
}

/// Appends a response head; `length` is `None` for a chunked body. Writing to a `Vec` cannot fail.
pub(crate) fn response_head(
    out: &mut Vec<u8>,
    status: u16,
    content_type: &str,
    length: Option<usize>,
    extra: &str,
    keep_alive: bool,
) {
    let _ = write!(
        out,
        "HTTP/1.1 {status} {}\r\nserver: uvicorn\r\n",
        reason(status)
    );
    if let Some(length) = length {
        let _ = write!(out, "content-length: {length}\r\n");
    }
    if !content_type.is_empty() {
        let _ = write!(out, "content-type: {content_type}\r\n");
    }
    out.extend_from_slice(extra.as_bytes());
    if !keep_alive {
        out.extend_from_slice(b"connection: close\r\n");
    }
    if length.is_none() {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    out.extend_from_slice(b"\r\n");
}
