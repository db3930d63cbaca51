//! The client watches itself: how late its timers are, and how much CPU its receive threads take.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use linktax_records::Nanos;
use tokio::task::JoinHandle;

use crate::clock::{Clock, Monotonic, thread_cpu};

/// Time between ticks: rare enough to cost nothing beside the events, often enough for a p99 within seconds.
const TICK: Duration = Duration::from_millis(10);

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
pub(crate) struct LoopMonitor {
    lags: Rc<RefCell<Vec<Nanos>>>,
    ticker: JoinHandle<()>,
    cpu: Nanos,
    wall: Nanos,
    waited: Option<Nanos>,
}

impl LoopMonitor {
    /// Starts watching; must be called inside a `LocalSet`.
    pub(crate) fn start() -> LoopMonitor {
        let lags = Rc::new(RefCell::new(Vec::new()));
        let ticker = tokio::task::spawn_local(tick(Rc::clone(&lags)));
        LoopMonitor {
            lags,
            ticker,
            cpu: thread_cpu(),
            wall: Monotonic.now(),
            waited: run_queue_wait(),
        }
    }

    pub(crate) fn finish(self) -> LoopStats {
        self.ticker.abort();
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

async fn tick(lags: Rc<RefCell<Vec<Nanos>>>) {
    loop {
        let due = Monotonic.now() + Nanos::from(TICK);
        tokio::time::sleep(TICK).await;
        lags.borrow_mut().push(Monotonic.now() - due);
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
