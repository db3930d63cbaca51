//! A receive thread: one current-thread runtime that owns its connections and streams.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, header};
use linktax_records::{FailureDetail, Nanos, Outcome, Phase, RequestRecord};
use tokio::runtime::LocalOptions;
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::cancel::Cancel;
use crate::clock::{Clock, Monotonic};
use crate::exchange::{Asked, ExchangeOptions, Exchanged, empty, exchange};
use crate::feeder::{Feed, Prepared, start as start_feeder};
use crate::monitor::{LoopMonitor, LoopStats};
use crate::phase::{Pacing, PhaseJob};
use crate::plan::endpoint_path;
use crate::session::Session;
use crate::transport::Connection;
use crate::{LoadError, Stop};

/// An idle connection older than this is replaced before it is used: servers close idle connections after a few
/// seconds (uvicorn after 5), and a request must not race with that.
const STALE_AFTER: Nanos = Nanos::from_secs(2);

/// Pause of a stream after a failed connect, so that a dead server is not hammered.
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Counters that the live view reads while a phase runs.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) running: AtomicU32,
    pub(crate) decoding: Arc<AtomicU32>,
    pub(crate) connect_failures_in_a_row: AtomicU64,
}

/// What the main thread asks of a worker.
pub(crate) enum Command {
    Run {
        job: PhaseJob,
        go: oneshot::Receiver<Nanos>,
    },
}

/// What a worker reports.
pub(crate) enum Report {
    /// Connections are open and bodies are built.
    Ready,
    Record(Box<RequestRecord>),
    PhaseDone(LoopStats),
    Failed(LoadError),
}

/// One of the receive threads.
pub(crate) struct Worker {
    pub(crate) session: Arc<Session>,
    /// This worker's number, and how many there are.
    pub(crate) share: (u32, u32),
    pub(crate) live: Arc<Live>,
    pub(crate) stop: watch::Receiver<Stop>,
    pub(crate) reports: std_mpsc::Sender<Report>,
}

/// What the streams of one phase share.
struct PhaseContext {
    session: Arc<Session>,
    job: PhaseJob,
    options: ExchangeOptions,
    live: Arc<Live>,
    cancel: Rc<Cancel>,
    reports: std_mpsc::Sender<Report>,
    /// One connection a slot and replica.
    pool: Rc<Pool>,
    /// Absolute start of the phase.
    started: Cell<Nanos>,
    /// No new request is started once this is set.
    ending: Cell<bool>,
}

#[derive(Default)]
struct Pool {
    slots: RefCell<Vec<Vec<Option<Connection>>>>,
}

impl Pool {
    fn take(&self, slot: usize, replica: usize) -> Option<Connection> {
        self.slots
            .borrow_mut()
            .get_mut(slot)?
            .get_mut(replica)?
            .take()
    }

    fn put(&self, slot: usize, replica: usize, connection: Connection) {
        let mut slots = self.slots.borrow_mut();
        if slots.len() <= slot {
            slots.resize_with(slot + 1, Vec::new);
        }
        if slots[slot].len() <= replica {
            slots[slot].resize_with(replica + 1, || None);
        }
        slots[slot][replica] = Some(connection);
    }
}

impl Worker {
    /// Serves commands until the main thread hangs up.
    pub(crate) fn run(self, mut commands: mpsc::UnboundedReceiver<Command>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(LocalOptions::default());
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(source) => {
                let what = "receive";
                let _ = self
                    .reports
                    .send(Report::Failed(LoadError::Thread { what, source }));
                return;
            }
        };
        runtime.block_on(async {
            let pool = Rc::new(Pool::default());
            while let Some(Command::Run { job, go }) = commands.recv().await {
                let report = match self.phase(job, go, Rc::clone(&pool)).await {
                    Ok(stats) => Report::PhaseDone(stats),
                    Err(e) => Report::Failed(e),
                };
                if self.reports.send(report).is_err() {
                    break;
                }
            }
        });
    }

    async fn phase(
        &self,
        job: PhaseJob,
        go: oneshot::Receiver<Nanos>,
        pool: Rc<Pool>,
    ) -> Result<LoopStats, LoadError> {
        let streams = job.streams(self.share);
        let feed = start_feeder(
            Arc::clone(&self.session),
            job.clone(),
            self.share,
            streams.unwrap_or(64),
        )?;
        let context = Rc::new(PhaseContext {
            session: Arc::clone(&self.session),
            options: self
                .session
                .exchange_options(Arc::clone(&self.live.decoding)),
            live: Arc::clone(&self.live),
            cancel: Rc::new(Cancel::default()),
            reports: self.reports.clone(),
            pool,
            started: Cell::new(Nanos::ZERO),
            ending: Cell::new(false),
            job,
        });
        context.open_connections(streams.unwrap_or(64)).await;
        let Feed { bodies, filled } = feed;
        let _ = filled.await;
        if self.reports.send(Report::Ready).is_err() {
            return Ok(LoopStats::default());
        }
        let Ok(started) = go.await else {
            return Ok(LoopStats::default());
        };
        context.started.set(started);
        let watcher = tokio::task::spawn_local(watch_stop(self.stop.clone(), Rc::clone(&context)));
        let monitor = LoopMonitor::start(Rc::clone(&context.cancel))?;
        match context.job.pacing {
            Pacing::Closed(_) => closed_loop(&context, bodies, streams.unwrap_or(0)).await,
            Pacing::Rate { .. } | Pacing::Trace { .. } => {
                open_loop(&context, bodies, streams).await;
            }
        }
        watcher.abort();
        Ok(monitor.finish())
    }
}

/// Turns the run's stop signal into the flags that the streams look at.
async fn watch_stop(mut stop: watch::Receiver<Stop>, context: Rc<PhaseContext>) {
    loop {
        if *stop.borrow_and_update() != Stop::Run {
            context.ending.set(true);
            context.cancel.set();
        }
        if stop.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

async fn closed_loop(context: &Rc<PhaseContext>, bodies: mpsc::Receiver<Prepared>, streams: usize) {
    let bodies = Rc::new(Mutex::new(bodies));
    let mut set = JoinSet::new();
    for slot in 0..streams {
        let (context, bodies) = (Rc::clone(context), Rc::clone(&bodies));
        set.spawn_local(async move {
            while !context.is_over() {
                let due = Monotonic.now();
                let Some(prepared) = bodies.lock().await.recv().await else {
                    break;
                };
                if context.is_over() {
                    break;
                }
                context.one_request(prepared, due, slot).await;
            }
        });
    }
    while set.join_next().await.is_some() {}
}

async fn open_loop(
    context: &Rc<PhaseContext>,
    mut bodies: mpsc::Receiver<Prepared>,
    cap: Option<usize>,
) {
    let permits = Arc::new(Semaphore::new(cap.unwrap_or(Semaphore::MAX_PERMITS)));
    let free = Rc::new(RefCell::new(Vec::<usize>::new()));
    let started = context.started.get();
    let end = context.job.duration.map(|d| started + d);
    let mut slots = 0;
    let mut set = JoinSet::new();
    while let Some(prepared) = bodies.recv().await {
        let due = started + prepared.at.unwrap_or(Nanos::ZERO);
        if end.is_some_and(|end| due >= end) || !context.wait_until(due).await {
            break;
        }
        // Waiting for a place under the cap here leaves what is due meanwhile in the feeder's channel: no body is
        // held for it, and it takes a connection only with its place. Its latency counts from when it was due.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            break;
        };
        if context.cancel.is_set() {
            break;
        }
        let slot = free.borrow_mut().pop().unwrap_or_else(|| {
            slots += 1;
            slots - 1
        });
        let (context, free) = (Rc::clone(context), Rc::clone(&free));
        set.spawn_local(async move {
            context.one_request(prepared, due, slot).await;
            free.borrow_mut().push(slot);
            drop(permit);
        });
        while set.try_join_next().is_some() {}
    }
    while set.join_next().await.is_some() {}
}

impl PhaseContext {
    /// Whether no new request may start: the run was stopped, or the phase's time is up.
    fn is_over(&self) -> bool {
        let up = |d| Monotonic.now() >= self.started.get() + d;
        self.ending.get() || self.job.duration.is_some_and(up)
    }

    /// Waits for an absolute time; false when the run was stopped first.
    async fn wait_until(&self, due: Nanos) -> bool {
        loop {
            if self.cancel.is_set() {
                return false;
            }
            let left = due.saturating_sub(Monotonic.now());
            if left == Nanos::ZERO {
                return true;
            }
            // Short naps, so that a stop is noticed while waiting for a far arrival.
            tokio::time::sleep(Duration::from(left).min(Duration::from_millis(100))).await;
        }
    }

    /// Opens the connections of the first wave before the clock starts. Failures are left for the requests to
    /// report.
    async fn open_connections(self: &Rc<Self>, slots: usize) {
        let mut set = JoinSet::new();
        for slot in 0..slots {
            for replica in 0..self.session.targets.len() {
                let context = Rc::clone(self);
                set.spawn_local(async move {
                    if let Some(mut held) = context.pool.take(slot, replica)
                        && context.fresh(&mut held).await
                    {
                        context.pool.put(slot, replica, held);
                    } else if let Ok(opened) = context.connect(replica).await {
                        context.pool.put(slot, replica, opened);
                    }
                });
            }
        }
        while set.join_next().await.is_some() {}
    }

    async fn fresh(&self, connection: &mut Connection) -> bool {
        Monotonic.now() - connection.idle_since < STALE_AFTER && connection.is_usable().await
    }

    async fn connect(&self, replica: usize) -> Result<Connection, String> {
        let target = &self.session.targets[replica];
        let limit = self.session.connect_timeout();
        match tokio::time::timeout(limit, Connection::open(target, &self.session.tls)).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(e)) => Err(format!("cannot connect to {target}: {e}")),
            Err(_) => Err(format!("no connection to {target} within {limit:?}")),
        }
    }

    /// Sends one request and reports its record.
    async fn one_request(&self, prepared: Prepared, due: Nanos, slot: usize) {
        let replica = prepared.replica;
        let held = self.pool.take(slot, replica);
        let mut reconnected = false;
        let usable = match held {
            Some(mut held) => self.fresh(&mut held).await.then_some(held),
            None => None,
        };
        let connection = match usable {
            Some(connection) => Ok(connection),
            None => {
                reconnected = true;
                self.connect(replica).await
            }
        };
        let (exchanged, reconnected) = match connection {
            Ok(mut connection) => {
                let request = self.request(&prepared);
                let ignore_eos = self.session.plan.sampling.ignore_eos;
                let asked = Asked {
                    output_len: prepared.output_len,
                    at_least: ignore_eos.then_some(prepared.output_len),
                };
                self.live.running.fetch_add(1, Ordering::Relaxed);
                let done = exchange(
                    &mut connection,
                    request,
                    asked,
                    &self.options,
                    &self.cancel,
                    slot,
                )
                .await;
                self.live.running.fetch_sub(1, Ordering::Relaxed);
                self.live
                    .connect_failures_in_a_row
                    .store(0, Ordering::Relaxed);
                if done.reusable {
                    self.pool.put(slot, replica, connection);
                }
                (Ok(done), reconnected)
            }
            Err(message) => {
                self.live
                    .connect_failures_in_a_row
                    .fetch_add(1, Ordering::Relaxed);
                (Err(message), reconnected)
            }
        };
        let failed_to_connect = exchanged.is_err();
        let record = self.record(prepared, due, exchanged, reconnected);
        // The main thread has gone only when the run is over.
        let _ = self.reports.send(Report::Record(Box::new(record)));
        if failed_to_connect {
            tokio::time::sleep(CONNECT_PAUSE).await;
        }
    }

    fn request(&self, prepared: &Prepared) -> Request<Full<Bytes>> {
        let target = &self.session.targets[prepared.replica];
        let path = endpoint_path(self.session.plan.endpoint);
        let mut request = target.post(path, &self.session.headers, prepared.body.clone());
        if let Ok(id) = header::HeaderValue::from_str(&self.request_id(prepared.index)) {
            request.headers_mut().insert("x-request-id", id);
        }
        request
    }

    fn request_id(&self, index: u64) -> String {
        self.session
            .request_id(self.job.cell.index, self.job.attempt, self.job.phase, index)
    }

    fn record(
        &self,
        prepared: Prepared,
        due: Nanos,
        exchanged: Result<Exchanged, String>,
        reconnected: bool,
    ) -> RequestRecord {
        let origin = self.job.origin;
        let now = Monotonic.now();
        let (t_sent, t_headers, t_done, decoded) = match exchanged {
            Ok(done) => (Some(done.t_sent), done.t_headers, done.t_done, done.decoded),
            Err(message) => {
                let mut decoded = empty();
                decoded.outcome = Outcome::ConnectError;
                decoded.failure = Some(FailureDetail {
                    status: None,
                    message,
                    body: None,
                });
                (None, None, now, decoded)
            }
        };
        RequestRecord {
            cell: self.job.cell.index,
            attempt: self.job.attempt,
            index: prepared.index,
            phase: self.job.phase,
            replica: prepared.replica as u32,
            request_id: self.request_id(prepared.index),
            input_len: prepared.input_len,
            output_len: prepared.output_len,
            t_sched_ns: due - origin,
            t_sent_ns: t_sent.map(|t| t - origin),
            t_headers_ns: t_headers.map(|t| t - origin),
            t_done_ns: t_done - origin,
            reconnected: reconnected && self.job.phase == Phase::Measured,
            outcome: decoded.outcome,
            failure: decoded.failure,
            finish_reason: decoded.finish_reason,
            done_marker: decoded.done_marker,
            usage: decoded.usage,
            token_source: decoded.token_source,
            keepalives: decoded.keepalives,
            socket_reads: decoded.socket_reads,
            reads: decoded.reads,
            delivery_lag_ns: decoded.delivery_lag_ns,
            text: decoded.text,
        }
    }
}
