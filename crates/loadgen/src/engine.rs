//! Runs the cells of a plan: prepares, primes, warms up, measures, and reports every record to the caller.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self as std_mpsc, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use linktax_records::{CellSpec, ClientStats, Nanos, Note, Phase, RequestRecord, ServerDelta};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::{Clock, Monotonic, process_cpu, unix_now_ns};
use crate::control::Control;
use crate::monitor::LoopStats;
use crate::observed::Observed;
use crate::phase::PhaseJob;
use crate::plan::{LoadPlan, Secrets};
use crate::preflight::{self, Findings};
use crate::profile::{ProfileJob, Profiler};
use crate::session::Session;
use crate::worker::{Command, Live, Report, Worker};
use crate::workload::Workload;
use crate::{LoadError, Stop};

/// Failed connects in a row after which a cell is given up: the server is gone.
const GIVE_UP_AFTER: u64 = 64;

/// Time between ticks to the caller.
const TICK: Duration = Duration::from_millis(100);

/// What happens while a cell runs.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A phase begins; the number of its requests, if known.
    Phase {
        /// Which one.
        phase: Phase,
        /// Requests to come, unless bounded by time.
        requests: Option<u64>,
    },
    /// A request ended, of any phase.
    Record(&'a RequestRecord),
    /// Nothing but time passed.
    Tick {
        /// Requests in flight.
        running: u32,
        /// Since the phase began.
        elapsed: Nanos,
    },
}

/// What is known of a cell beside its records.
#[derive(Debug)]
pub struct CellRun {
    /// Wall-clock time of the cell's clock origin.
    pub started_unix_ns: u64,
    /// Whether the cell ran to its end.
    pub complete: bool,
    /// Why not, and other remarks.
    pub notes: Vec<Note>,
    /// The client's view of itself.
    pub client: ClientStats,
    /// Differences of the server's counters.
    pub server: ServerDelta,
    /// The counters as they stood before and after.
    pub server_raw: Value,
}

/// A plan that has passed its pre-flight checks.
pub struct Run {
    session: Arc<Session>,
    control: Control,
    findings: Findings,
}

impl Run {
    /// Checks the plan, asks the servers who they are and sends each a short probe.
    pub fn prepare(plan: LoadPlan, secrets: &Secrets) -> Result<Run, LoadError> {
        let targets = plan.validate()?;
        let mut workload = Workload::build(&plan.workload, plan.seed, plan.nonce)?;
        for cell in &plan.cells {
            workload.check_cell(&cell.into())?;
            if let Some(short) = cell.requests.and_then(|n| workload.shortfall(n)) {
                return Err(short.into());
            }
        }
        crate::limits::ensure_open_files(&plan, targets.len())?;
        let control = Control::new(&plan, secrets, &targets)?;
        let findings = preflight::run(&control, &plan, secrets, &targets)?;
        if let Some(calibration) =
            preflight::calibrate_text(&control, &plan, secrets, &targets, &findings, &workload)?
        {
            workload = workload.with_calibration(calibration)?;
        }
        let session = Session::new(
            plan,
            targets,
            secrets,
            workload,
            &findings.model,
            findings.usage,
        )?;
        Ok(Run {
            session,
            control,
            findings,
        })
    }

    /// The model that the requests name.
    pub fn model(&self) -> &str {
        &self.findings.model
    }

    /// What each server said of itself.
    pub fn servers(&self) -> &[Value] {
        &self.findings.servers
    }

    /// GPUs behind all servers, if they say so.
    pub fn gpus(&self) -> Option<u32> {
        self.findings.gpus
    }

    /// Remarks from reading the workload and from the pre-flight checks.
    pub fn notes(&self) -> Vec<Note> {
        let mut notes = self.session.workload.notes().to_vec();
        notes.extend_from_slice(&self.findings.notes);
        notes
    }

    /// Runs one cell. `on` gets every event on the calling thread; breaking stops the cell.
    pub fn run_cell(
        &self,
        cell: &CellSpec,
        attempt: u32,
        stop: &watch::Sender<Stop>,
        on: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<CellRun, LoadError> {
        let started_unix_ns = unix_now_ns();
        let origin = Monotonic.now();
        let mut crew = Crew::start(&self.session, cell, stop)?;
        let mut notes = Vec::new();
        for job in self.preparing_jobs(cell, attempt, origin) {
            let phase = crew.run_phase(job, stop, on)?;
            notes.extend(phase.observed.preparing_failures());
        }
        let before = self.control.metrics();
        let sampler = match self.session.plan.metrics_interval_s {
            Some(s) => Some(self.control.sample_gauges(Duration::from_secs_f64(s))?),
            None => None,
        };
        let profiler = self.profiler(cell, &crew, origin)?;
        let job = PhaseJob::measured(cell, attempt, origin);
        let cpu = process_cpu();
        let measured = if *stop.borrow() == Stop::Run {
            Some(crew.run_phase(job, stop, on)?)
        } else {
            None
        };
        let cpu = process_cpu() - cpu;
        notes.extend(profiler.map(Profiler::finish));
        let peaks = sampler.map(crate::control::GaugeSampler::finish);
        let after = self.control.metrics();
        let mut server = after.since(&before);
        if let Some(peaks) = peaks {
            peaks.write_to(&mut server);
        }
        let stopped = *stop.borrow() != Stop::Run;
        if stopped {
            notes.push(Note::new("stopped", "the run was stopped during this cell"));
        }
        let mut complete = !stopped;
        let client = match measured {
            Some(phase) => {
                if let Some(note) = phase.gave_up {
                    complete = false;
                    notes.push(note);
                }
                notes.extend(phase.observed.exhausted(cell));
                phase.observed.client_stats(&phase.loops, cpu)
            }
            None => ClientStats::default(),
        };
        Ok(CellRun {
            started_unix_ns,
            complete,
            notes,
            client,
            server,
            server_raw: json!({
                "before": before.to_json(&self.session.targets),
                "after": after.to_json(&self.session.targets),
            }),
        })
    }

    /// Starts the wait for the moment to profile, if the plan asks for it.
    fn profiler(
        &self,
        cell: &CellSpec,
        crew: &Crew,
        origin: Nanos,
    ) -> Result<Option<Profiler>, LoadError> {
        let (Some(length), Some(wanted)) = (self.session.plan.profile_s, cell.load.concurrency())
        else {
            return Ok(None);
        };
        let job = ProfileJob {
            targets: self.session.targets.clone(),
            decoding: Arc::clone(&crew.live.decoding),
            wanted,
            length: Duration::from_secs_f64(length),
            origin,
        };
        Profiler::start(job, self.control.recipe()).map(Some)
    }

    /// Priming and warm-up.
    fn preparing_jobs(&self, cell: &CellSpec, attempt: u32, origin: Nanos) -> Vec<PhaseJob> {
        let plan = &self.session.plan;
        let measured = cell
            .requests
            .or(self.session.workload.len())
            .unwrap_or(u64::MAX);
        let prime = self.session.workload.prime_count(&cell.into(), measured);
        let in_flight = crate::plan::in_flight_cap(&cell.load).unwrap_or(8);
        let warmup = plan.num_warmups.unwrap_or(u64::from(in_flight));
        [(Phase::Prime, prime), (Phase::Warmup, warmup)]
            .into_iter()
            .filter(|&(_, n)| n > 0)
            .map(|(phase, n)| PhaseJob::preparing(cell, attempt, origin, phase, n))
            .collect()
    }
}

/// The receive threads of a cell.
struct Crew {
    commands: Vec<mpsc::UnboundedSender<Command>>,
    threads: Vec<JoinHandle<()>>,
    reports: std_mpsc::Receiver<Report>,
    live: Arc<Live>,
}

/// What one phase left behind.
struct PhaseRun {
    loops: Vec<LoopStats>,
    observed: Observed,
    gave_up: Option<Note>,
}

impl Crew {
    fn start(
        session: &Arc<Session>,
        cell: &CellSpec,
        stop: &watch::Sender<Stop>,
    ) -> Result<Crew, LoadError> {
        // A thread without a stream would keep its share of the requests to itself.
        let streams = crate::plan::in_flight_cap(&cell.load).unwrap_or(u32::MAX);
        let workers = session.plan.threads.min(streams).max(1);
        let live = Arc::new(Live::default());
        let (tx, reports) = std_mpsc::channel();
        let mut commands = Vec::new();
        let mut threads = Vec::new();
        for n in 0..workers {
            let (command_tx, command_rx) = mpsc::unbounded_channel();
            let worker = Worker {
                session: Arc::clone(session),
                share: (n, workers),
                live: Arc::clone(&live),
                stop: stop.subscribe(),
                reports: tx.clone(),
            };
            let thread = std::thread::Builder::new()
                .name(format!("receive-{n}"))
                .spawn(move || worker.run(command_rx))
                .map_err(|source| LoadError::Thread {
                    what: "receive",
                    source,
                })?;
            commands.push(command_tx);
            threads.push(thread);
        }
        Ok(Crew {
            commands,
            threads,
            reports,
            live,
        })
    }

    fn run_phase(
        &mut self,
        job: PhaseJob,
        stop: &watch::Sender<Stop>,
        on: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<PhaseRun, LoadError> {
        let mut gos = Vec::new();
        let phase = job.phase;
        let requests = job.requests;
        for commands in &self.commands {
            let (go_tx, go) = oneshot::channel();
            let job = job.clone();
            commands
                .send(Command::Run { job, go })
                .map_err(|_| LoadError::WorkerGone)?;
            gos.push(go_tx);
        }
        self.live
            .connect_failures_in_a_row
            .store(0, Ordering::Relaxed);
        let mut waiting = self.commands.len();
        while waiting > 0 {
            match self.reports.recv().map_err(|_| LoadError::WorkerGone)? {
                Report::Ready => waiting -= 1,
                Report::Failed(e) => return Err(e),
                Report::Record(_) | Report::PhaseDone(_) => {}
            }
        }
        let _ = on(Event::Phase { phase, requests });
        let started = Monotonic.now();
        for go in gos {
            let _ = go.send(started);
        }
        self.collect(started, stop, on)
    }

    fn collect(
        &mut self,
        started: Nanos,
        stop: &watch::Sender<Stop>,
        on: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<PhaseRun, LoadError> {
        let mut run = PhaseRun {
            loops: Vec::new(),
            observed: Observed::default(),
            gave_up: None,
        };
        while run.loops.len() < self.commands.len() {
            let flow = match self.reports.recv_timeout(TICK) {
                Ok(Report::Record(record)) => {
                    run.observed.add(&record);
                    on(Event::Record(&record))
                }
                Ok(Report::PhaseDone(stats)) => {
                    run.loops.push(stats);
                    ControlFlow::Continue(())
                }
                Ok(Report::Failed(e)) => return Err(e),
                Ok(Report::Ready) => ControlFlow::Continue(()),
                Err(RecvTimeoutError::Timeout) => on(Event::Tick {
                    running: self.live.running.load(Ordering::Relaxed),
                    elapsed: Monotonic.now() - started,
                }),
                Err(RecvTimeoutError::Disconnected) => return Err(LoadError::WorkerGone),
            };
            if flow.is_break() {
                stop.send_replace(Stop::All);
            }
            let refused = self.live.connect_failures_in_a_row.load(Ordering::Relaxed);
            if refused >= GIVE_UP_AFTER && run.gave_up.is_none() {
                run.gave_up = Some(Note::new(
                    "server_gone",
                    format!("{refused} connects in a row failed; the cell was given up"),
                ));
                stop.send_replace(Stop::Cell);
            }
        }
        if run.gave_up.is_some() {
            // Only this cell is over; the next one finds out for itself whether the server is back.
            stop.send_if_modified(|s| {
                let cell = *s == Stop::Cell;
                if cell {
                    *s = Stop::Run;
                }
                cell
            });
        }
        Ok(run)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // Hanging up ends the workers once their phase is over.
        self.commands.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
