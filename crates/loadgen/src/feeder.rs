//! Builds request bodies on a thread of its own, ahead of the receive threads.
//!
//! A 128K-token prompt takes milliseconds to write out; done on a receive thread it would delay the reads of
//! every other stream.

use std::sync::Arc;

use bytes::Bytes;
use linktax_records::{Nanos, Phase};
use tokio::sync::{mpsc, oneshot};

use crate::LoadError;
use crate::phase::{Pacing, PhaseJob};
use crate::session::Session;
use crate::workload::CellCoord;
use crate::workload::arrivals::{Schedule, schedule};

/// Most bytes of bodies waiting to be sent.
const MAX_WAITING_BYTES: usize = 256 << 20;

/// Output tokens asked for when neither the workload nor the grid says how many.
const DEFAULT_OUTPUT_LEN: u64 = 128;

/// A request that is ready to be written.
pub(crate) struct Prepared {
    pub(crate) index: u64,
    pub(crate) replica: usize,
    pub(crate) input_len: Option<u64>,
    pub(crate) output_len: u64,
    /// Release time since the start of the phase, in an open loop.
    pub(crate) at: Option<Nanos>,
    pub(crate) body: Bytes,
}

/// The bodies of one worker's share of a phase, in order.
pub(crate) struct Feed {
    pub(crate) bodies: mpsc::Receiver<Prepared>,
    /// Fires once the first wave is ready.
    pub(crate) filled: oneshot::Receiver<()>,
}

/// More cells than a run has, so that no cell's second attempt is another cell's first.
const CELLS: u32 = 4096;

/// Starts the feeder of one worker; `streams` is how many bodies its first wave takes.
pub(crate) fn start(
    session: Arc<Session>,
    job: PhaseJob,
    (worker, workers): (u32, u32),
    streams: usize,
) -> Result<Feed, LoadError> {
    let due = match job.pacing {
        Pacing::Rate {
            per_second,
            burstiness,
            ..
        } => Some(schedule(
            per_second,
            burstiness,
            job.requests,
            session.plan.seed ^ u64::from(job.cell.index),
        )?),
        Pacing::Closed(_) | Pacing::Trace { .. } => None,
    };
    let size = build(&session, &job, u64::from(worker)).map_or(1, |p| p.body.len().max(1));
    let room = (MAX_WAITING_BYTES / size).clamp(4, streams.max(4));
    let (tx, bodies) = mpsc::channel(room);
    let (filled_tx, filled) = oneshot::channel();
    let share = Share {
        session,
        job,
        due,
        worker,
        workers,
    };
    std::thread::Builder::new()
        .name("feeder".to_owned())
        .spawn(move || share.feed(&tx, filled_tx, room))
        .map_err(|source| LoadError::Thread {
            what: "feeder",
            source,
        })?;
    Ok(Feed { bodies, filled })
}

struct Share {
    session: Arc<Session>,
    job: PhaseJob,
    due: Option<Schedule>,
    worker: u32,
    workers: u32,
}

impl Share {
    fn feed(mut self, tx: &mpsc::Sender<Prepared>, filled: oneshot::Sender<()>, room: usize) {
        let mut filled = Some(filled);
        let end = self.job.requests.unwrap_or(u64::MAX);
        let mut index = u64::from(self.worker);
        // Skip to this worker's first arrival, then take every `workers`-th one.
        let mut skip = self.worker as usize;
        let mut sent = 0;
        while index < end {
            let Some(mut prepared) = build(&self.session, &self.job, index) else {
                break;
            };
            if let Some(due) = &mut self.due {
                let Some(at) = due.nth(skip) else { break };
                prepared.at = Some(at);
                skip = self.workers as usize - 1;
            }
            if sent + 1 >= room
                && let Some(filled) = filled.take()
            {
                let _ = filled.send(());
            }
            // The receiver goes away when the phase is over.
            if tx.blocking_send(prepared).is_err() {
                return;
            }
            sent += 1;
            index += u64::from(self.workers);
        }
        if let Some(filled) = filled.take() {
            let _ = filled.send(());
        }
    }
}

/// A cell that is run again gets prompts of its own: those of the first attempt may be in the server's cache.
fn coordinates(job: &PhaseJob) -> CellCoord {
    let coord = CellCoord::from(&job.cell);
    CellCoord {
        cell: coord.cell.wrapping_add(job.attempt.wrapping_mul(CELLS)),
        ..coord
    }
}

fn build(session: &Session, job: &PhaseJob, index: u64) -> Option<Prepared> {
    let plan = session
        .workload
        .request(&coordinates(job), job.phase, index)?;
    let output_len = if job.phase == Phase::Prime {
        // Priming is about the prompt; one token ends it soonest.
        1
    } else {
        plan.output_len
            .or(job.cell.output_len)
            .unwrap_or(DEFAULT_OUTPUT_LEN)
    };
    let at = match job.pacing {
        Pacing::Trace { speedup, .. } => plan
            .at
            .map(|at| Nanos::from_secs_f64(at.as_secs_f64() / speedup)),
        _ => None,
    };
    Some(Prepared {
        index,
        replica: (index % session.targets.len() as u64) as usize,
        input_len: plan.input_len,
        output_len,
        at,
        body: session.template.render(&plan.prompt, output_len),
    })
}
