//! One request on one open connection: from the last moment before the first write to the end of the answer.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::{Request, Response, header};
use linktax_records::{FailureDetail, Nanos, Outcome, TokenSource};
use linktax_sse::{DecodeOptions, Decoded, ResponseDecoder, StreamEnd};
use tokio::task::unconstrained;

use crate::cancel::Cancel;
use crate::clock::{Clock, Monotonic};
use crate::plain::PlainAnswer;
use crate::quiet::QuietWaker;
use crate::transport::{Connection, Driver, ReadStamp};

/// How long a connection may take to end the body of an answer that has said `[DONE]`.
const END_GRACE: Duration = Duration::from_secs(1);

/// Frames that one stream may take before the others have their turn.
const MAX_STEPS: u32 = 64;

/// Tokens beyond those asked for, as a multiple of them and on top of it, after which an answer has no end.
const MAX_EXCESS: (u64, u64) = (4, 1024);

/// What one request asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// `max_tokens`.
    pub(crate) output_len: u64,
    /// Fewer output tokens than this are a short output.
    pub(crate) at_least: Option<u64>,
}

/// What every exchange of a cell shares.
#[derive(Clone, Debug)]
pub(crate) struct ExchangeOptions {
    pub(crate) first_token_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) decode: DecodeOptions,
    /// Requests that are past their first token and not yet at their end.
    pub(crate) decoding: Arc<AtomicU32>,
}

/// The end of an exchange; times are absolute.
pub(crate) struct Exchanged {
    pub(crate) t_sent: Nanos,
    pub(crate) t_headers: Option<Nanos>,
    pub(crate) t_done: Nanos,
    pub(crate) decoded: Decoded,
    /// Whether the connection may carry another request.
    pub(crate) reusable: bool,
}

enum Stage {
    /// Waiting for the response head.
    Head(Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>>>>),
    /// Reading an event stream.
    Stream(Incoming),
    /// Reading an answer that is no event stream.
    Plain(Incoming, PlainAnswer),
}

/// How the exchange itself came to an end, before the decoder judges the content.
enum Ended {
    Stream(StreamEnd),
    Plain(PlainAnswer),
    /// `[DONE]` was the last word, but the body did not end.
    LeftOpen,
    /// So many tokens that the answer seems to have no end.
    Endless(u64),
    FirstTokenTimeout,
    IdleTimeout,
    Cancelled,
}

struct Exchange<'a> {
    stage: Stage,
    driver: &'a mut Driver,
    stamp: Rc<ReadStamp>,
    decoder: ResponseDecoder,
    options: &'a ExchangeOptions,
    asked: Asked,
    t_sent: Nanos,
    t_headers: Option<Nanos>,
    status: Option<u16>,
    /// The answer has said `[DONE]`: only the end of the body is missing.
    done: bool,
    /// Whether the deadline has come nearer since it was registered.
    nearer: bool,
    /// Whether this request counts as decoding.
    decoding: bool,
}

/// Sends `request` on `conn` and reads the answer to its end, its timeout or the cancellation.
pub(crate) async fn exchange(
    conn: &mut Connection,
    request: Request<Full<Bytes>>,
    asked: Asked,
    options: &ExchangeOptions,
    cancel: &Cancel,
    slot: usize,
) -> Exchanged {
    let mut decoder = ResponseDecoder::new(options.decode);
    let t_sent = Monotonic.now();
    decoder.set_origin(t_sent);
    let mut state = Exchange {
        stage: Stage::Head(Box::pin(conn.sender.send_request(request))),
        driver: &mut conn.driver,
        stamp: Rc::clone(&conn.stamp),
        decoder,
        options,
        asked,
        t_sent,
        t_headers: None,
        status: None,
        done: false,
        nearer: false,
        decoding: false,
    };
    let wakes = Arc::new(QuietWaker::default());
    let waker = Waker::from(Arc::clone(&wakes));
    // Without tokio's budget: it would have a stream that reads much wake itself through the waker that is quiet.
    let ended = unconstrained(poll_fn(|cx| {
        if cancel.is_set() {
            return Poll::Ready(Ended::Cancelled);
        }
        wakes.begin(cx);
        let ended = state.poll(&mut Context::from_waker(&waker), cx.waker(), cancel, slot);
        wakes.end();
        ended
    }))
    .await;
    cancel.forget(slot);
    if state.decoding {
        options.decoding.fetch_sub(1, Ordering::Relaxed);
    }
    let t_done = match ended {
        Ended::Stream(_) | Ended::Plain(_) | Ended::LeftOpen => state.stamp.at().max(t_sent),
        _ => Monotonic.now(),
    };
    let reusable = matches!(ended, Ended::Stream(StreamEnd::Clean) | Ended::Plain(_));
    let t_headers = state.t_headers;
    let mut decoded = judge(ended, state.decoder, asked, options);
    if let Some(failure) = &mut decoded.failure {
        failure.status = failure.status.or(state.status);
    }
    conn.idle_since = t_done;
    Exchanged {
        t_sent,
        t_headers,
        t_done,
        decoded,
        reusable,
    }
}

impl Exchange<'_> {
    /// `cx` is the quiet waker's, `task` the task's own.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        task: &Waker,
        cancel: &Cancel,
        slot: usize,
    ) -> Poll<Ended> {
        let mut steps = 0;
        loop {
            // The driver reads at most one frame ahead, so the stamp still belongs to the frame taken below.
            // Its own end is not the exchange's: what it has read may still wait to be taken.
            let _ = self.driver.poll(cx);
            match self.poll_stage(cx) {
                Poll::Ready(Some(ended)) => return Poll::Ready(ended),
                Poll::Ready(None) => {}
                Poll::Pending => break,
            }
            steps += 1;
            if steps == MAX_STEPS {
                // Let the other streams of this thread have their turn.
                task.wake_by_ref();
                return Poll::Pending;
            }
        }
        if steps > 0 && !self.nearer && cancel.is_registered(slot) {
            // Woken by the socket: deadline and cancellation are still registered from an earlier poll.
            return Poll::Pending;
        }
        self.nearer = false;
        self.check_deadline(cx, cancel, slot)
    }

    /// Takes one step: `Ready(None)` after progress, `Ready(Some)` at the end.
    fn poll_stage(&mut self, cx: &mut Context<'_>) -> Poll<Option<Ended>> {
        match &mut self.stage {
            Stage::Head(response) => match response.as_mut().poll(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Err(e)) => {
                    Poll::Ready(Some(Ended::Stream(StreamEnd::Broken(chain(&e)))))
                }
                Poll::Ready(Ok(response)) => {
                    self.t_headers = Some(self.stamp.at());
                    self.status = Some(response.status().as_u16());
                    self.stage = classify(response);
                    Poll::Ready(None)
                }
            },
            Stage::Stream(body) => match Pin::new(body).poll_frame(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(None) => Poll::Ready(Some(Ended::Stream(StreamEnd::Clean))),
                Poll::Ready(Some(Err(e))) => Poll::Ready(Some(Ended::Stream(broken(&e)))),
                Poll::Ready(Some(Ok(frame))) => {
                    if let Some(data) = frame.data_ref() {
                        let t = self.stamp.at() - self.t_sent;
                        self.decoder.read(t, self.stamp.count(), data);
                        if !self.decoding && self.decoder.first_token_seen() {
                            self.decoding = true;
                            self.options.decoding.fetch_add(1, Ordering::Relaxed);
                        }
                        let (factor, more) = MAX_EXCESS;
                        let most = self
                            .asked
                            .output_len
                            .saturating_mul(factor)
                            .saturating_add(more);
                        if self.decoder.counted() > most {
                            let counted = self.decoder.counted();
                            return Poll::Ready(Some(Ended::Endless(counted)));
                        }
                        if self.decoder.done() && !self.done {
                            self.done = true;
                            self.nearer = true;
                        }
                    }
                    Poll::Ready(None)
                }
            },
            Stage::Plain(body, answer) => match Pin::new(body).poll_frame(cx) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => {
                    if let Some(data) = frame.data_ref() {
                        answer.keep(data);
                    }
                    Poll::Ready(None)
                }
                Poll::Ready(None | Some(Err(_))) => {
                    let answer = std::mem::take(answer);
                    Poll::Ready(Some(Ended::Plain(answer)))
                }
            },
        }
    }

    /// Ends an overdue exchange; else registers when to look again. A deadline only moves away while events come, so
    /// an event costs no work here.
    fn check_deadline(&self, cx: &Context<'_>, cancel: &Cancel, slot: usize) -> Poll<Ended> {
        let idle = self.options.idle_timeout;
        let (deadline, ended) = if self.done {
            let grace = Nanos::from(END_GRACE.min(idle));
            (self.stamp.at() + grace, Ended::LeftOpen)
        } else if self.decoder.first_token_seen() {
            (self.stamp.at() + Nanos::from(idle), Ended::IdleTimeout)
        } else {
            let limit = Nanos::from(self.options.first_token_timeout);
            (self.t_sent + limit, Ended::FirstTokenTimeout)
        };
        let now = Monotonic.now();
        if deadline <= now {
            return Poll::Ready(ended);
        }
        // The first token may bring a nearer deadline than the one for itself.
        cancel.register(slot, cx, deadline.min(now + Nanos::from(idle)));
        Poll::Pending
    }
}

/// A 2xx answer is an event stream unless it says that it is a document.
fn classify(response: Response<Incoming>) -> Stage {
    let status = response.status();
    let text = |name| {
        let value = response.headers().get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let mut content_type = text(header::CONTENT_TYPE).unwrap_or_default();
    // None was asked for, and none is understood.
    let encoding = text(header::CONTENT_ENCODING).filter(|e| !e.eq_ignore_ascii_case("identity"));
    if let Some(encoding) = &encoding {
        content_type = format!("{content_type} compressed as {encoding}");
    }
    let document = ["application/json", "text/html", "application/xhtml"]
        .iter()
        .any(|t| content_type.starts_with(t));
    if status.is_success() && !document && encoding.is_none() {
        Stage::Stream(response.into_body())
    } else {
        let answer = PlainAnswer {
            status: status.as_u16(),
            content_type,
            location: text(header::LOCATION).filter(|_| status.is_redirection()),
            body: Vec::new(),
        };
        Stage::Plain(response.into_body(), answer)
    }
}

/// A connection that closed without the last chunk has ended, however rudely: what the stream carried decides
/// whether it was truncated. Anything else (a reset, broken framing) broke it.
fn broken(e: &hyper::Error) -> StreamEnd {
    if e.is_incomplete_message() || is_end_of_file(e) {
        StreamEnd::Clean
    } else {
        StreamEnd::Broken(chain(e))
    }
}

/// hyper reports an end of file inside a chunked body as the I/O error that its decoder makes of it.
fn is_end_of_file(e: &dyn std::error::Error) -> bool {
    let mut source = e.source();
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return io.kind() == std::io::ErrorKind::UnexpectedEof;
        }
        source = cause.source();
    }
    false
}

fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut source = e.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn judge(
    ended: Ended,
    decoder: ResponseDecoder,
    asked: Asked,
    options: &ExchangeOptions,
) -> Decoded {
    let (outcome, failure) = match ended {
        // What came after the last word of a complete answer does not take it back.
        Ended::Stream(_) if decoder.done() => {
            return decoder.finish(StreamEnd::Clean, asked.at_least);
        }
        Ended::Stream(end) => return decoder.finish(end, asked.at_least),
        Ended::LeftOpen => return decoder.finish(StreamEnd::Clean, asked.at_least),
        Ended::Plain(answer) => return answer.judge(),
        Ended::FirstTokenTimeout => (
            Outcome::FirstTokenTimeout,
            format!("no token within {:?}", options.first_token_timeout),
        ),
        Ended::IdleTimeout => (
            Outcome::IdleTimeout,
            format!("nothing received for {:?}", options.idle_timeout),
        ),
        Ended::Endless(counted) => (
            Outcome::Malformed,
            format!(
                "an answer without an end: {counted} tokens so far, {} were asked for",
                asked.output_len
            ),
        ),
        Ended::Cancelled => (Outcome::Cancelled, "the run was stopped".to_owned()),
    };
    // A decoder that saw an error keeps its verdict, whatever ended the exchange.
    let failed = decoder.failed();
    let mut decoded = decoder.finish(StreamEnd::Broken(String::new()), None);
    if failed {
        return decoded;
    }
    decoded.outcome = outcome;
    decoded.failure = Some(FailureDetail {
        status: None,
        message: failure,
        body: None,
    });
    decoded
}

/// A decoded answer without any event.
pub(crate) fn empty() -> Decoded {
    Decoded {
        outcome: Outcome::NoOutput,
        failure: None,
        finish_reason: None,
        done_marker: false,
        usage: None,
        token_source: TokenSource::Events,
        keepalives: 0,
        reads: linktax_records::Reads::default(),
        text: None,
        delivery_lag_ns: Vec::new(),
        socket_reads: 0,
    }
}
