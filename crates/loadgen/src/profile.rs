//! `--profile`: the server's own profiling hooks around a moment when every request of a cell is decoding.
//!
//! vLLM started with `--profiler-config.profiler cuda` turns `/start_profile` and `/stop_profile` into
//! `cudaProfilerStart` and `cudaProfilerStop`, which open and close the capture range of an `nsys profile` around it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use linktax_records::{Nanos, Note};

use crate::LoadError;
use crate::clock::{Clock, Monotonic};
use crate::control::ControlRecipe;
use crate::target::Target;

/// Time between looks at how many requests are decoding.
const LOOK: Duration = Duration::from_millis(2);

/// Closing a capture range can take long: at two ranks the profiler needs half a minute to write its report.
const HOOK_TIMEOUT: Duration = Duration::from_secs(300);

/// What to capture, and when.
pub(crate) struct ProfileJob {
    pub(crate) targets: Vec<Target>,
    pub(crate) decoding: Arc<AtomicU32>,
    /// Requests that must be decoding at once.
    pub(crate) wanted: u32,
    pub(crate) length: Duration,
    /// Origin of the cell's times.
    pub(crate) origin: Nanos,
}

/// Waits for its moment on a thread of its own.
pub(crate) struct Profiler {
    /// Dropping it tells the thread that the cell is over.
    over: mpsc::Sender<()>,
    thread: std::thread::JoinHandle<Note>,
}

impl Profiler {
    pub(crate) fn start(job: ProfileJob, recipe: ControlRecipe) -> Result<Profiler, LoadError> {
        let (over, ended) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("profile".to_owned())
            .spawn(move || job.run(&recipe, &ended))
            .map_err(|source| LoadError::Thread {
                what: "profile",
                source,
            })?;
        Ok(Profiler { over, thread })
    }

    /// What came of it; waits until an open capture is closed.
    pub(crate) fn finish(self) -> Note {
        drop(self.over);
        self.thread.join().unwrap_or_else(|_| {
            Note::new(
                "profile_failed",
                "the profile thread ended early; please report this",
            )
        })
    }
}

impl ProfileJob {
    fn run(&self, recipe: &ControlRecipe, ended: &mpsc::Receiver<()>) -> Note {
        let over = |wait| {
            !matches!(
                ended.recv_timeout(wait),
                Err(mpsc::RecvTimeoutError::Timeout)
            )
        };
        while self.decoding.load(Ordering::Relaxed) < self.wanted {
            if over(LOOK) {
                return Note::new(
                    "profile_not_taken",
                    format!(
                        "there was no moment with all {} requests decoding; use a longer --output-len or more --requests",
                        self.wanted
                    ),
                );
            }
        }
        let from = Monotonic.now();
        if let Err(reason) = self.hook(recipe, "/start_profile") {
            return Note::new("profile_failed", reason);
        }
        let cut = over(self.length);
        let until = Monotonic.now();
        if let Err(reason) = self.hook(recipe, "/stop_profile") {
            return Note::new("profile_failed", reason);
        }
        let seconds = |t: Nanos| (t - self.origin).as_secs_f64();
        let short = if cut {
            ", cut short by the end of the cell"
        } else {
            ""
        };
        Note::new(
            "profiled",
            format!(
                "the server was profiled from {:.3} s to {:.3} s of the cell{short}; its times there include the profiler's cost",
                seconds(from),
                seconds(until)
            ),
        )
    }

    fn hook(&self, recipe: &ControlRecipe, path: &str) -> Result<(), String> {
        for target in &self.targets {
            recipe.post(&target.url(path), HOOK_TIMEOUT).map_err(|reason| {
                format!(
                    "POST {}: {reason}; start vLLM with --profiler-config.profiler cuda under nsys (docs/guide/capture.md)",
                    target.url(path)
                )
            })?;
        }
        Ok(())
    }
}
