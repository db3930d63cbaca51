//! One connection: reads, writes and waits.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;

use crate::clock::{Timer, ms_to_ns, now_ns};
use crate::engine::Step;
use crate::http::{NoRequest, read_request, response_head};
use crate::job::Source;
use crate::routes;
use crate::server::Server;
use crate::stats::count;

/// The connection is over: the client left, or it is to be closed without another word.
pub(crate) struct Gone;

impl From<io::Error> for Gone {
    fn from(_: io::Error) -> Self {
        Gone
    }
}

/// What a wait for the next step ended with.
pub(crate) enum Wake {
    Step(Step),
    /// Nothing came until the given time.
    Quiet,
}

/// Bytes that a client may send ahead while an answer runs.
const MAX_AHEAD: usize = 1 << 20;

pub(crate) struct Conn {
    stream: TcpStream,
    /// Bytes read and not yet used.
    pub(crate) inbox: Vec<u8>,
    timer: Timer,
    pub(crate) server: Rc<Server>,
    /// Counted from 1.
    pub(crate) number: u64,
}

impl Conn {
    pub(crate) fn new(stream: TcpStream, server: Rc<Server>, number: u64) -> Self {
        let timer = server.timers.timer();
        Conn {
            stream,
            inbox: Vec::new(),
            timer,
            server,
            number,
        }
    }

    /// Serves requests until the connection ends.
    pub(crate) async fn serve(mut self) {
        let idle_ns = ms_to_ns(self.server.config.keep_alive_timeout_ms);
        let max_body = self.server.config.max_body_bytes;
        loop {
            let idle_until = now_ns() + idle_ns;
            let kept = match read_request(&mut self, idle_until, max_body).await {
                Ok(request) => {
                    count(&self.server.stats.http_requests);
                    routes::answer(&mut self, request).await
                }
                Err(NoRequest::Gone) => Err(Gone),
                Err(NoRequest::Bad(status, why)) => {
                    self.respond(
                        status,
                        "text/plain; charset=utf-8",
                        "",
                        why.as_bytes(),
                        false,
                    )
                    .await
                }
            };
            if !matches!(kept, Ok(true)) {
                return;
            }
        }
    }

    /// Reads what there is, with room for at least `room` bytes. Ready when something came.
    fn poll_read(&mut self, room: usize, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            self.inbox.reserve(room.max(4 << 10));
            match self.stream.try_read_buf(&mut self.inbox) {
                Ok(0) => return Poll::Ready(Err(Gone)),
                Ok(_) => return Poll::Ready(Ok(())),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }

    /// Waits for bytes and returns when they had been read. Ends at `until` at the latest.
    pub(crate) async fn fill(&mut self, until: Option<u64>, room: usize) -> Result<u64, Gone> {
        poll_fn(|cx| {
            if let Poll::Ready(read) = self.poll_read(room, cx) {
                return Poll::Ready(read.map(|()| now_ns()));
            }
            if let Some(until) = until {
                if now_ns() >= until {
                    return Poll::Ready(Err(Gone));
                }
                self.timer.wake_at(until, cx)?;
            }
            Poll::Pending
        })
        .await
    }

    /// Waits for the next step, but not beyond `quiet_until`. An error if the client leaves.
    pub(crate) async fn next(
        &mut self,
        source: &mut Source,
        quiet_until: Option<u64>,
    ) -> Result<Wake, Gone> {
        // Streams that are always due must not starve the others.
        tokio::task::consume_budget().await;
        poll_fn(|cx| {
            let now = now_ns();
            if let Poll::Ready(step) = source.poll_step(now, cx) {
                self.server.stats.late(now.saturating_sub(step.due));
                return Poll::Ready(Ok(Wake::Step(step)));
            }
            if quiet_until.is_some_and(|at| now >= at) {
                return Poll::Ready(Ok(Wake::Quiet));
            }
            ready_err(self.watch(cx))?;
            if let Some(at) = earliest(source.deadline(), quiet_until) {
                self.timer.wake_at(at, cx)?;
            }
            Poll::Pending
        })
        .await
    }

    /// Waits until the client leaves.
    pub(crate) async fn until_gone(&mut self) -> Gone {
        poll_fn(|cx| match self.watch(cx) {
            Poll::Ready(gone) => Poll::Ready(gone),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Ready when the client has left. What it sends ahead is kept.
    fn watch(&mut self, cx: &mut Context<'_>) -> Poll<Gone> {
        while self.inbox.len() < MAX_AHEAD {
            if let Err(gone) = ready!(self.poll_read(0, cx)) {
                return Poll::Ready(gone);
            }
        }
        Poll::Pending
    }

    /// Writes all of it, in one system call if the socket takes it.
    pub(crate) async fn write(&mut self, mut bytes: &[u8]) -> Result<(), Gone> {
        while !bytes.is_empty() {
            match self.stream.try_write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.stream.writable().await?;
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Writes in pieces of `piece` bytes, others having their turn between them; 0 = whole.
    pub(crate) async fn write_split(&mut self, bytes: &[u8], piece: usize) -> Result<(), Gone> {
        if piece == 0 {
            return self.write(bytes).await;
        }
        for part in bytes.chunks(piece) {
            self.write(part).await?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Writes a whole response. `extra` holds further header lines. Returns whether the connection is kept.
    pub(crate) async fn respond(
        &mut self,
        status: u16,
        content_type: &str,
        extra: &str,
        body: &[u8],
        keep_alive: bool,
    ) -> Result<bool, Gone> {
        let mut out = Vec::with_capacity(body.len() + 256);
        response_head(
            &mut out,
            status,
            content_type,
            Some(body.len()),
            extra,
            keep_alive,
        );
        out.extend_from_slice(body);
        self.write(&out).await?;
        Ok(keep_alive)
    }

    /// Makes the close a reset.
    pub(crate) fn reset(&self) {
        // If the option cannot be set, the close is a plain one: still no answer.
        let _ = self.stream.set_zero_linger();
    }
}

fn ready_err(gone: Poll<Gone>) -> Result<(), Gone> {
    match gone {
        Poll::Ready(gone) => Err(gone),
        Poll::Pending => Ok(()),
    }
}

fn earliest(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, other) => one.or(other),
    }
}
