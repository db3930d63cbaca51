//! The sweep itself.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::buckets::{Activity, Mask};
use crate::{Op, Ops};

/// What an operation does: the activity, and for communication how long it waits before it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) activity: Activity,
    pub(crate) wait: u64,
}

/// What the sweep found in one window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    /// Nanoseconds under each set, ascending by set; their sum is the window.
    pub(crate) histogram: Vec<(Mask, u64)>,
    /// Clipped durations by activity.
    pub(crate) summed: [u64; Activity::ALL.len()],
    /// Operations that start in the window.
    pub(crate) ops: u64,
}

/// A stretch of a window in which nothing ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) window: usize,
    pub(crate) start: i64,
    pub(crate) end: i64,
    /// Whether it reaches to the end of its window.
    pub(crate) closes: bool,
    /// The operation that ended last before it.
    pub(crate) prev: Option<usize>,
    /// The operation that ends it.
    pub(crate) next: Option<usize>,
}

/// An operation's end, or the change from waiting to service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: i64,
    off: Activity,
    /// When the service that begins here ends.
    serve_until: Option<i64>,
    op: usize,
}

struct Sweep<'a, G> {
    windows: &'a [(i64, i64)],
    window: usize,
    now: i64,
    active: [u32; Activity::ALL.len()],
    mask: u16,
    ends: BinaryHeap<Reverse<Event>>,
    prev: Option<(i64, usize)>,
    scratch: Vec<u64>,
    touched: Vec<u16>,
    out: Vec<Swept>,
    on_gap: G,
}

/// Sweeps the operations (sorted by start) over the windows (sorted, disjoint). `part` is asked for each operation once,
/// in order; `on_gap` hears of each idle stretch.
pub(crate) fn sweep(
    ops: &Ops,
    windows: &[(i64, i64)],
    mut part: impl FnMut(usize, &Op) -> Part,
    on_gap: impl FnMut(Gap),
) -> Vec<Swept> {
    let Some(&(first, _)) = windows.first() else {
        return Vec::new();
    };
    let last = windows.last().map_or(first, |w| w.1);
    let mut sweep = Sweep {
        windows,
        window: 0,
        now: first,
        active: [0; Activity::ALL.len()],
        mask: 0,
        ends: BinaryHeap::new(),
        prev: None,
        scratch: vec![0; Mask::COUNT],
        touched: Vec::new(),
        out: vec![Swept::default(); windows.len()],
        on_gap,
    };
    for i in 0..ops.len() {
        let op = ops.get(i);
        if op.start >= last {
            break;
        }
        sweep.advance(op.start, Some(i));
        sweep.add(i, &op, part(i, &op));
    }
    sweep.advance(last, None);
    sweep.flush_rest();
    sweep.out
}

impl<G: FnMut(Gap)> Sweep<'_, G> {
    /// Books everything up to `to`, where operation `next` starts.
    fn advance(&mut self, to: i64, next: Option<usize>) {
        while let Some(&Reverse(event)) = self.ends.peek() {
            if event.at > to {
                break;
            }
            self.ends.pop();
            self.book(event.at, next);
            self.switch(event.off, false);
            match event.serve_until {
                Some(at) => {
                    self.switch(Activity::CommService, true);
                    self.ends.push(Reverse(Event {
                        at,
                        off: Activity::CommService,
                        serve_until: None,
                        op: event.op,
                    }));
                }
                None => self.prev = self.prev.max(Some((event.at, event.op))),
            }
        }
        self.book(to, next);
    }

    fn add(&mut self, i: usize, op: &Op, part: Part) {
        let end = op.end();
        let served = op.start.saturating_add_unsigned(part.wait.min(op.dur));
        let waits = part.wait > 0 && part.activity == Activity::CommService;
        if waits {
            self.sum(op.start, served, Activity::CommWait);
            self.sum(served, end, Activity::CommService);
        } else {
            self.sum(op.start, end, part.activity);
        }
        if let Some(window) = self.windows.get(self.window)
            && window.0 <= op.start
        {
            self.out[self.window].ops += 1;
        }
        if op.dur == 0 {
            self.prev = self.prev.max(Some((end, i)));
            return;
        }
        let event = if waits {
            Event {
                at: served,
                off: Activity::CommWait,
                serve_until: Some(end),
                op: i,
            }
        } else {
            Event {
                at: end,
                off: part.activity,
                serve_until: None,
                op: i,
            }
        };
        self.switch(event.off, true);
        self.ends.push(Reverse(event));
    }

    fn switch(&mut self, activity: Activity, on: bool) {
        let count = &mut self.active[activity as usize];
        *count = if on { *count + 1 } else { *count - 1 };
        let bit = Mask::of(activity).0;
        self.mask = if *count > 0 {
            self.mask | bit
        } else {
            self.mask & !bit
        };
    }

    /// Books `now..to` under the current set and moves on; windows that end are closed.
    fn book(&mut self, to: i64, next: Option<usize>) {
        while let Some(&(start, end)) = self.windows.get(self.window) {
            let (from, until) = (self.now.max(start), to.min(end));
            if from < until {
                let cell = &mut self.scratch[usize::from(self.mask)];
                if *cell == 0 {
                    self.touched.push(self.mask);
                }
                *cell += until.abs_diff(from);
                if self.mask == 0 {
                    (self.on_gap)(Gap {
                        window: self.window,
                        start: from,
                        end: until,
                        closes: until == end,
                        prev: self.prev.map(|p| p.1),
                        next,
                    });
                }
            }
            if to < end {
                break;
            }
            self.flush();
        }
        self.now = self.now.max(to);
    }

    fn flush(&mut self) {
        self.touched.sort_unstable();
        let out = &mut self.out[self.window];
        for mask in self.touched.drain(..) {
            let ns = std::mem::take(&mut self.scratch[usize::from(mask)]);
            out.histogram.push((Mask(mask), ns));
        }
        self.window += 1;
    }

    fn flush_rest(&mut self) {
        while self.window < self.windows.len() {
            self.flush();
        }
    }

    /// Adds `from..to`, clipped, to the sums of the windows it touches. All of them are still open: the sweep stands at
    /// the start of the operation.
    fn sum(&mut self, from: i64, to: i64, activity: Activity) {
        for (at, &(start, end)) in self.windows.iter().enumerate().skip(self.window) {
            if start >= to {
                break;
            }
            let (from, to) = (from.max(start), to.min(end));
            if from < to {
                self.out[at].summed[activity as usize] += to.abs_diff(from);
            }
        }
    }
}

#[cfg(test)]
mod tests;
