//! What is being done, on stderr, once it has taken two seconds.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use linktax_trace::OnProgress;

use crate::output;

/// Nothing is said before.
const QUIET: Duration = Duration::from_secs(2);
/// How often a file or pipe gets a line.
const LINE: Duration = Duration::from_secs(10);
/// How often a terminal is drawn.
const DRAW: Duration = Duration::from_millis(200);

type Text = Arc<Mutex<String>>;

/// A thread that says what is being done, until this is dropped.
pub(crate) struct Working {
    text: Text,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Working {
    /// Begins by reading, unless nothing is to be said.
    pub(crate) fn begin(quiet: bool) -> Working {
        let text: Text = Arc::new(Mutex::new("reading".to_owned()));
        let mut working = Working {
            text: text.clone(),
            stop: None,
            thread: None,
        };
        if !quiet {
            let (stop, stopped) = mpsc::channel();
            working.stop = Some(stop);
            working.thread = Some(std::thread::spawn(move || say(&text, &stopped)));
        }
        working
    }

    /// Goes on with another text.
    pub(crate) fn now(&self, text: impl Into<String>) {
        write(&self.text, text.into());
    }

    /// For reading: the table and how far it is.
    pub(crate) fn callback(&self) -> OnProgress {
        let text = self.text.clone();
        Arc::new(move |at| {
            let rows = at.rows as f64 / 1e6;
            let file = at.path.file_name().unwrap_or_default();
            let file = Path::new(file).display();
            write(
                &text,
                format!("reading {file}: {}, {rows:.1} M rows", at.table),
            );
        })
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed and spoils nothing here.
            let _ = thread.join();
        }
    }
}

/// Says the text again and again, until the other end of the channel is gone.
fn say(text: &Text, stopped: &Receiver<()>) {
    let began = Instant::now();
    let mut wait = QUIET;
    let mut bar = None;
    while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
        let line = format!("{}, {} s", read(text), began.elapsed().as_secs());
        if output::stderr_is_terminal() {
            bar.get_or_insert_with(spinner).set_message(line);
            wait = DRAW;
        } else {
            output::note(&line);
            wait = LINE;
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}

fn read(text: &Text) -> String {
    text.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn write(text: &Text, now: String) {
    *text.lock().unwrap_or_else(PoisonError::into_inner) = now;
}

fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar
}
