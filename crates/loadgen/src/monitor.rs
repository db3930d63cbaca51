//! The client watches itself: how late its timers are, and how much CPU its receive threads take.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use linktax_records::Nanos;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::LoadError;
use crate::cancel::{Cancel, LOOK};
use crate::clock::{Clock, Monotonic, thread_cpu};

/// Time between pulses: rare enough to cost little beside the events, often enough for a p99 within seconds.
const PULSE: Nanos = Nanos::from_millis(10);

/// What one receive thread saw of itself during a phase.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoopStats {
    /// Lateness of each tick.
    pub(crate) lags: Vec<Nanos>,
    pub(crate) cpu: Nanos,
    pub(crate) wall: Nanos,
    /// Time runnable but not running, where the kernel says so.
    pub(crate) run_queue_wait: Option<Nanos>,
}

/// Watches the current thread until [`LoopMonitor::finish`].
///
/// A thread of its own keeps the time and sends each pulse with the moment it was due; how much later the receive
/// loop takes it is the lag. A timer inside the loop would show the same, but every wait for the next event would
/// then arm and disarm the kernel's timer, which costs about a microsecond an event on a virtual machine.
pub(crate) struct LoopMonitor {
    lags: Rc<RefCell<Vec<Nanos>>>,
    listener: JoinHandle<()>,
    /// Dropping it ends the pulse thread.
    _pulse: std_mpsc::Sender<()>,
    cpu: Nanos,
    wall: Nanos,
    waited: Option<Nanos>,
}

impl LoopMonitor {
    /// Starts watching; must be called on a local runtime.
    pub(crate) fn start(cancel: Rc<Cancel>) -> Result<LoopMonitor, LoadError> {
        let lags = Rc::new(RefCell::new(Vec::new()));
        let (pulses_tx, pulses) = mpsc::unbounded_channel();
        let (pulse, ended) = std_mpsc::channel();
        std::thread::Builder::new()
            .name("pulse".to_owned())
            .spawn(move || pulse_until(&ended, &pulses_tx))
            .map_err(|source| LoadError::Thread {
                what: "pulse",
                source,
            })?;
        let listener = tokio::task::spawn_local(listen(pulses, Rc::clone(&lags), cancel));
        Ok(LoopMonitor {
            lags,
            listener,
            _pulse: pulse,
            cpu: thread_cpu(),
            wall: Monotonic.now(),
            waited: run_queue_wait(),
        })
    }

    pub(crate) fn finish(self) -> LoopStats {
        self.listener.abort();
        LoopStats {
            lags: self.lags.take(),
            cpu: thread_cpu() - self.cpu,
            wall: Monotonic.now() - self.wall,
            run_queue_wait: run_queue_wait()
                .zip(self.waited)
                .map(|(now, then)| now - then),
        }
    }
}

/// Sends the due time of every pulse until the other end of `ended` is dropped.
fn pulse_until(ended: &std_mpsc::Receiver<()>, pulses: &mpsc::UnboundedSender<Nanos>) {
    let mut due = Monotonic.now() + PULSE;
    loop {
        let left = due.saturating_sub(Monotonic.now());
        match ended.recv_timeout(Duration::from(left)) {
            Err(std_mpsc::RecvTimeoutError::Timeout) => {}
            _ => return,
        }
        if pulses.send(due).is_err() {
            return;
        }
        due += PULSE;
    }
}

/// Notes each pulse's lag; every few pulses is also the moment to look for overdue streams.
async fn listen(
    mut pulses: mpsc::UnboundedReceiver<Nanos>,
    lags: Rc<RefCell<Vec<Nanos>>>,
    cancel: Rc<Cancel>,
) {
    let mut looked = Nanos::ZERO;
    while let Some(due) = pulses.recv().await {
        let now = Monotonic.now();
        lags.borrow_mut().push(now - due);
        if now - looked >= Nanos::from(LOOK) {
            looked = now;
            cancel.look(now);
        }
    }
}

/// Second field of Linux's per-thread scheduler statistics: nanoseconds spent waiting on a run queue.
fn run_queue_wait() -> Option<Nanos> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let wait = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(Nanos::from_nanos(wait))
}

/// Largest resident set of the process so far, in bytes, where the kernel says so.
pub(crate) fn max_rss_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|l| l.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
