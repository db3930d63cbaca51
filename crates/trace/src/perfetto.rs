//! A range of steps in the Trace Event format, for Perfetto (ui.perfetto.dev) and `chrome://tracing`.
//!
//! One process a lane; in it a track of steps and one a stream. A whole capture is never written: viewers of JSON fail
//! beyond some hundred thousand events, and a few steps tell what there is to see.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::classify::{Class, Classes, Group};
use crate::collectives::{Collectives, WaitMethod, operation};
use crate::steps::{LaneSteps, Step};
use crate::tracks::{Track, Waits, lane_title, step_words, tracks, within};
use crate::{Lane, Op, OpKind, Trace, TraceError};

/// Which steps to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChromeOptions {
    /// Index of the first step.
    pub first: u32,
    /// Index of the last step, which is written too.
    pub last: u32,
    /// More operations than this are refused.
    pub max_ops: u64,
}

impl ChromeOptions {
    /// What viewers open without trouble.
    pub const MAX_OPS: u64 = 100_000;

    /// These steps, at most [`Self::MAX_OPS`] operations.
    pub fn steps(first: u32, last: u32) -> Self {
        ChromeOptions {
            first,
            last,
            max_ops: Self::MAX_OPS,
        }
    }
}

/// A range of steps, ready to be written.
#[derive(Clone, Debug)]
pub struct ChromeTrace<'a> {
    trace: &'a Trace,
    classes: &'a Classes,
    collectives: Option<&'a Collectives>,
    lanes: Vec<Excerpt<'a>>,
    base: i64,
    operations: u64,
}

/// The part of one lane.
#[derive(Clone, Debug)]
struct Excerpt<'a> {
    at: usize,
    lane: &'a Lane,
    steps: Vec<&'a Step>,
    tracks: Vec<Track>,
}

/// Position of the track of steps; streams follow.
const STEPS_TRACK: usize = 0;

impl<'a> ChromeTrace<'a> {
    /// Picks the steps of every lane that has them.
    ///
    /// # Errors
    /// No lane has any of the steps, or there are too many operations in them.
    pub fn new(
        trace: &'a Trace,
        classes: &'a Classes,
        steps: &'a [LaneSteps],
        collectives: Option<&'a Collectives>,
        options: &ChromeOptions,
    ) -> Result<Self, TraceError> {
        let mut lanes = Vec::new();
        let mut operations = 0;
        for lane_steps in steps {
            let lane = crate::split::lane_of(trace, lane_steps.lane)?;
            let wanted = options.first..=options.last;
            let all = lane_steps.steps.iter();
            let picked: Vec<&Step> = all.filter(|s| wanted.contains(&s.index)).collect();
            let (Some(from), Some(to)) = (picked.first(), picked.last()) else {
                continue;
            };
            operations += within(&lane.ops, from.start, to.end).count() as u64;
            lanes.push(Excerpt {
                at: lane_steps.lane,
                lane,
                tracks: Vec::new(),
                steps: picked,
            });
        }
        if operations > options.max_ops {
            return Err(TraceError::TooManyOps {
                found: operations,
                limit: options.max_ops,
                hint: "viewers fail on more; choose fewer steps, for example --steps 10..12",
            });
        }
        for excerpt in &mut lanes {
            let ops = &excerpt.lane.ops;
            if let (Some(from), Some(to)) = (excerpt.steps.first(), excerpt.steps.last()) {
                excerpt.tracks = tracks(ops, within(ops, from.start, to.end));
            }
        }
        let starts = lanes.iter().filter_map(|e| e.steps.first());
        let Some(base) = starts.map(|step| step.start).min() else {
            return Err(no_such_steps(steps, options));
        };
        Ok(ChromeTrace {
            trace,
            classes,
            collectives,
            lanes,
            base,
            operations,
        })
    }

    /// Operations that will be written.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Lanes that have some of the steps.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Writes it, one event a line.
    ///
    /// # Errors
    /// What the writer says.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        // Whole microseconds would lose the gaps inside a graph; the format allows fractions.
        write!(
            out,
            "{{\"displayTimeUnit\":\"ns\",\"otherData\":{},\n\"traceEvents\":[",
            json!({ "tool": "linktax", "base_ns": self.base })
        )?;
        let mut events = Events { out, first: true };
        for (pid, excerpt) in (1..).zip(&self.lanes) {
            self.lane(pid, excerpt, &mut events)?;
        }
        writeln!(events.out, "\n]}}")
    }

    fn lane(&self, pid: usize, excerpt: &Excerpt<'_>, events: &mut Events<'_>) -> io::Result<()> {
        let gpu = excerpt.lane.gpu.name.as_deref();
        let title = lane_title(excerpt.at, excerpt.lane);
        let title = gpu.map_or_else(|| title.clone(), |name| format!("{title} {name}"));
        events.metadata("process_name", pid, None, json!({ "name": title }))?;
        events.metadata(
            "process_sort_index",
            pid,
            None,
            json!({ "sort_index": pid }),
        )?;
        events.track(pid, STEPS_TRACK, "steps")?;
        for (tid, track) in (1..).zip(&excerpt.tracks) {
            events.track(pid, tid, &track.label())?;
        }
        for step in &excerpt.steps {
            events.write(&self.step(pid, step))?;
        }
        let waits = Waits::of(self.collectives, excerpt.at);
        let method = self
            .collectives
            .and_then(|c| Some(c.group_of(excerpt.at)?.method));
        for (tid, track) in (1..).zip(&excerpt.tracks) {
            for &i in &track.ops {
                let op = excerpt.lane.ops.get(i);
                let wait = waits.get(i);
                let step = excerpt.steps.iter().find(|s| s.end > op.start);
                let mut event = self.operation(pid, tid, &op, wait.zip(method));
                if let Some(step) = step {
                    event.args.insert("step".to_owned(), step.index.into());
                }
                events.write(&event)?;
                if let Some(wait) = wait.filter(|&wait| wait > 0) {
                    // A child of the slice before it: same start, shorter.
                    events.write(&self.wait(pid, tid, &op, wait))?;
                }
            }
        }
        Ok(())
    }

    /// Microseconds since the first step, to the nanosecond.
    fn micros(&self, at: i64) -> f64 {
        at.saturating_sub(self.base) as f64 / 1e3
    }

    fn step(&self, pid: usize, step: &Step) -> Event<'_> {
        let args = json!({
            "step": step.index,
            "kind": step.kind,
            "method": step.method,
            "confidence": step.confidence,
            "batch": step.batch,
            "mark": step.label,
            "start_ns": step.start,
        });
        Event {
            name: format!("step {}: {}", step.index, step_words(step.kind, step.batch)).into(),
            cat: "step",
            ph: "X",
            ts: self.micros(step.start),
            dur: step.dur() as f64 / 1e3,
            pid,
            tid: STEPS_TRACK,
            cname: None,
            args: into_map(args),
        }
    }

    fn operation(
        &self,
        pid: usize,
        tid: usize,
        op: &Op,
        wait: Option<(u64, WaitMethod)>,
    ) -> Event<'a> {
        let class = self.classes.op(op);
        let names = &self.trace.names;
        let mut args = into_map(json!({
            "class": class,
            "group": class.group(),
            "start_ns": op.start,
            "dur_ns": op.dur,
            "stream": op.stream,
            "correlation": op.corr,
        }));
        let name = match op.kind {
            OpKind::Kernel => {
                let (full, short) = (names.full(op.name), names.short(op.name));
                if full != short {
                    args.insert("kernel".to_owned(), full.into());
                }
                short
            }
            OpKind::Graph => "CUDA graph (opaque)",
            OpKind::Memcpy(_) | OpKind::Memset => {
                args.insert("bytes".to_owned(), op.bytes.into());
                class.as_str()
            }
        };
        if op.node != 0 {
            args.insert("graph_node".to_owned(), op.node.into());
        }
        if let Some((wait, method)) = wait {
            args.insert("service_ns".to_owned(), (op.dur - wait.min(op.dur)).into());
            args.insert("wait_ns".to_owned(), wait.into());
            args.insert("wait_method".to_owned(), json!(method));
            args.insert(
                "operation_by_name".to_owned(),
                json!(operation(self.trace, op.name)),
            );
        }
        Event {
            name: name.into(),
            cat: class.as_str(),
            ph: "X",
            ts: self.micros(op.start),
            dur: op.dur as f64 / 1e3,
            pid,
            tid,
            cname: Some(colour(class)),
            args,
        }
    }

    fn wait(&self, pid: usize, tid: usize, op: &Op, wait: u64) -> Event<'a> {
        Event {
            name: "waits for other ranks".into(),
            cat: "comm.wait",
            ph: "X",
            ts: self.micros(op.start),
            dur: wait as f64 / 1e3,
            pid,
            tid,
            cname: Some("grey"),
            args: into_map(json!({ "wait_ns": wait })),
        }
    }
}

fn no_such_steps(steps: &[LaneSteps], options: &ChromeOptions) -> TraceError {
    TraceError::NoSuchStep {
        wanted: format!("{}..{}", options.first, options.last),
        there: crate::tracks::first_and_last(steps.iter().flat_map(|lane| &lane.steps)),
    }
}

/// One of the names that `chrome://tracing` has colours for; Perfetto colours by name itself.
fn colour(class: Class) -> &'static str {
    match class.group() {
        Group::Linear => "thread_state_running",
        Group::Attention => "rail_response",
        Group::Ssm => "rail_animation",
        Group::Moe => "rail_load",
        Group::Comm => "bad",
        Group::Other => "generic_work",
        Group::Copy => "thread_state_iowait",
        Group::Graph => "black",
        Group::Unknown => "terrible",
    }
}

/// A complete event (`ph` X) of the Trace Event format.
#[derive(Serialize)]
struct Event<'a> {
    name: std::borrow::Cow<'a, str>,
    cat: &'a str,
    ph: &'static str,
    ts: f64,
    dur: f64,
    pid: usize,
    tid: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    cname: Option<&'static str>,
    args: Map<String, Value>,
}

fn into_map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

struct Events<'a> {
    out: &'a mut dyn Write,
    first: bool,
}

impl Events<'_> {
    fn write(&mut self, event: &impl Serialize) -> io::Result<()> {
        self.out
            .write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        serde_json::to_writer(&mut self.out, event).map_err(io::Error::from)
    }

    fn metadata(
        &mut self,
        name: &str,
        pid: usize,
        tid: Option<usize>,
        args: Value,
    ) -> io::Result<()> {
        let tid = tid.unwrap_or(STEPS_TRACK);
        self.write(&json!({ "name": name, "ph": "M", "pid": pid, "tid": tid, "args": args }))
    }

    fn track(&mut self, pid: usize, tid: usize, name: &str) -> io::Result<()> {
        self.metadata("thread_name", pid, Some(tid), json!({ "name": name }))?;
        self.metadata(
            "thread_sort_index",
            pid,
            Some(tid),
            json!({ "sort_index": tid }),
        )
    }
}

#[cfg(test)]
mod tests;
