use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;
use tokio::task::LocalSet;

use crate::books::Books;
use crate::clock::{Timers, now_ns};
use crate::config::{MockConfig, Mode};
use crate::conn::Conn;
use crate::engine::Engine;
use crate::error::MockError;
use crate::fault::FaultKind;
use crate::stats::{Counters, MockStats, count};

/// What the server calls itself in its answers.
pub(crate) const FINGERPRINT: &str = "vllm-0.32.0-mock";

/// A burst of connections must not overflow the accept queue: the kernel would retry each lost one after a second.
const BACKLOG: u32 = 4096;

/// What all connections share.
pub(crate) struct Server {
    pub(crate) config: Rc<MockConfig>,
    pub(crate) timers: Rc<Timers>,
    pub(crate) engine: Option<Rc<Engine>>,
    pub(crate) books: Rc<Books>,
    pub(crate) stats: Arc<Counters>,
    pub(crate) cycle: Rc<[u64]>,
    /// The largest number of tokens a step can yield.
    pub(crate) most_per_step: u64,
    pub(crate) started_ns: u64,
    started_unix: Duration,
}

impl Server {
    fn new(config: MockConfig, stats: Arc<Counters>) -> std::io::Result<Self> {
        let started_unix = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let books = Rc::new(Books::new(&config, started_unix.as_secs_f64()));
        let engine =
            (config.mode == Mode::Engine).then(|| Rc::new(Engine::new(&config, Rc::clone(&books))));
        Ok(Server {
            timers: Timers::new()?,
            engine,
            books,
            stats,
            cycle: config.tokens_per_chunk.clone().into(),
            most_per_step: config.tokens_per_chunk.iter().copied().max().unwrap_or(1),
            started_ns: now_ns(),
            started_unix,
            config: Rc::new(config),
        })
    }

    /// Unix seconds at a time of the monotonic clock.
    pub(crate) fn unix_seconds(&self, ns: u64) -> u64 {
        let since_start = Duration::from_nanos(ns.saturating_sub(self.started_ns));
        (self.started_unix + since_start).as_secs()
    }

    /// Running and waiting requests.
    pub(crate) fn load(&self) -> (u64, u64) {
        match &self.engine {
            Some(engine) => engine.load(),
            None => (self.stats.running(), 0),
        }
    }
}

/// A mock server that listens but does not answer yet.
///
/// It runs on the current thread: give it a current-thread runtime of its own, as
/// [`MockServer::spawn`] does, if its times matter.
pub struct MockServer {
    config: MockConfig,
    listener: TcpListener,
    addr: SocketAddr,
    stats: Arc<Counters>,
}

impl MockServer {
    /// Checks the configuration and listens on `addr`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`MockError::Config`] for a senseless value, [`MockError::Bind`] for an address that cannot be had.
    pub async fn bind(config: MockConfig, addr: SocketAddr) -> Result<Self, MockError> {
        config.validate()?;
        let listen = || {
            let socket = if addr.is_ipv4() {
                TcpSocket::new_v4()
            } else {
                TcpSocket::new_v6()
            }?;
            socket.set_reuseaddr(true)?;
            socket.bind(addr)?;
            let listener = socket.listen(BACKLOG)?;
            let addr = listener.local_addr()?;
            Ok((listener, addr))
        };
        let (listener, addr) = listen().map_err(|source| MockError::Bind { addr, source })?;
        Ok(MockServer {
            config,
            listener,
            addr,
            stats: Arc::default(),
        })
    }

    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Answers until `shutdown` is ready, then drops every connection. Returns what it has seen.
    ///
    /// # Errors
    /// [`MockError::Start`] if the system has no timer to give.
    pub async fn run_until<F: Future<Output = ()>>(
        self,
        shutdown: F,
    ) -> Result<MockStats, MockError> {
        let MockServer {
            config,
            listener,
            stats,
            ..
        } = self;
        let timer_error = |source| MockError::Start {
            what: "timer",
            source,
        };
        let server = Rc::new(Server::new(config, Arc::clone(&stats)).map_err(timer_error)?);
        let engine = server.engine.clone();
        let tasks = LocalSet::new();
        let accepting = tasks.run_until(accept(Rc::clone(&server), listener));
        let stepping = async {
            match &engine {
                Some(engine) => engine.run(&server.timers).await,
                None => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            () = shutdown => Ok(()),
            () = accepting => Ok(()),
            failed = server.timers.run() => failed,
            failed = stepping => failed,
        };
        ended.map_err(timer_error)?;
        drop(tasks);
        Ok(stats.read())
    }

    /// Runs a server on its own thread at a free port of 127.0.0.1.
    ///
    /// # Errors
    /// As [`MockServer::bind`] and [`MockServer::run_until`], and [`MockError::Start`] without a thread or runtime.
    pub fn spawn(config: MockConfig) -> Result<MockHandle, MockError> {
        Self::spawn_on(config, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// [`MockServer::spawn`] at an address of your choice.
    ///
    /// # Errors
    /// As [`MockServer::spawn`].
    pub fn spawn_on(config: MockConfig, addr: SocketAddr) -> Result<MockHandle, MockError> {
        let (ready_tx, ready_rx) = std::sync::mpsc::channel();
        let (stop_tx, stop_rx) = oneshot::channel::<()>();
        let main = move || {
            let started = || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .map_err(|source| MockError::Start {
                        what: "runtime",
                        source,
                    })?;
                let server = runtime.block_on(MockServer::bind(config, addr))?;
                Ok((runtime, server))
            };
            match started() {
                Err(e) => drop(ready_tx.send(Err(e))),
                Ok((runtime, server)) => {
                    let bound = (server.addr, Arc::clone(&server.stats));
                    drop(ready_tx.send(Ok(bound)));
                    let stopped = async { drop(stop_rx.await) };
                    // Whoever holds the handle sees a server that stopped: its connections are closed.
                    drop(runtime.block_on(server.run_until(stopped)));
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("mock-server".to_owned())
            .spawn(main)
            .map_err(|source| MockError::Start {
                what: "thread",
                source,
            })?;
        let (addr, stats) = ready_rx.recv().unwrap_or_else(|e| {
            let source = std::io::Error::other(e);
            Err(MockError::Start {
                what: "thread",
                source,
            })
        })?;
        Ok(MockHandle {
            addr,
            stats,
            stop: Some(stop_tx),
            thread: Some(thread),
        })
    }
}

impl std::fmt::Debug for MockServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MockServer")
            .field("addr", &self.addr)
            .finish_non_exhaustive()
    }
}

async fn accept(server: Rc<Server>, listener: TcpListener) {
    let refused = |number| {
        let faults = &server.config.fault;
        faults
            .iter()
            .any(|f| f.kind == FaultKind::Refuse && f.hits(number))
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors, most likely: some will come back.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let number = count(&server.stats.connections);
        if refused(number) {
            count(&server.stats.faults);
            continue;
        }
        // Without it the kernel would gather tokens; if it cannot be set, the stamps still tell the truth.
        let _ = stream.set_nodelay(true);
        let conn = Conn::new(stream, Rc::clone(&server), number);
        tokio::task::spawn_local(conn.serve());
    }
}

/// A mock server that runs on its own thread. Dropping it stops the server.
#[derive(Debug)]
pub struct MockHandle {
    addr: SocketAddr,
    stats: Arc<Counters>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MockHandle {
    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// `http://ADDRESS`, without `/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// What it has seen so far.
    pub fn stats(&self) -> MockStats {
        self.stats.read()
    }

    /// Closes every connection, waits for the thread and returns what it has seen.
    pub fn shutdown(mut self) -> MockStats {
        self.stop();
        self.stats.read()
    }

    fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by the thread.
            drop(thread.join());
        }
    }
}

impl Drop for MockHandle {
    fn drop(&mut self) {
        self.stop();
    }
}
