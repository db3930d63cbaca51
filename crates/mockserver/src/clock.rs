//! `CLOCK_MONOTONIC` in ns, and wake-ups at absolute times of it.
//!
//! Tokio's own timer rounds up to whole milliseconds, which is too coarse for a server that stands for the truth.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use rustix::time::{ClockId, clock_gettime};

use crate::alarm::Alarm;

/// Now, in ns of `CLOCK_MONOTONIC`.
pub(crate) fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

/// Milliseconds of a configuration in ns.
pub(crate) fn ms_to_ns(ms: f64) -> u64 {
    (ms * 1e6).round() as u64
}

/// All wake-ups of one server.
pub(crate) struct Timers {
    table: RefCell<Table>,
    alarm: Alarm,
}

#[derive(Default)]
struct Table {
    // (time, slot, generation); an entry whose generation is old is skipped when it comes up.
    heap: BinaryHeap<Reverse<(u64, usize, u64)>>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// When the alarm will ring; `u64::MAX` if not at all.
    armed: u64,
}

#[derive(Default)]
struct Slot {
    generation: u64,
    at: u64,
    waker: Option<Waker>,
}

impl Timers {
    pub(crate) fn new() -> io::Result<Rc<Self>> {
        let table = Table {
            armed: u64::MAX,
            ..Table::default()
        };
        Ok(Rc::new(Timers {
            table: RefCell::new(table),
            alarm: Alarm::new()?,
        }))
    }

    /// A place for one wake-up at a time.
    pub(crate) fn timer(self: &Rc<Self>) -> Timer {
        let mut table = self.table.borrow_mut();
        let slot = table.free.pop().unwrap_or_else(|| {
            table.slots.push(Slot::default());
            table.slots.len() - 1
        });
        Timer {
            timers: Rc::clone(self),
            slot,
        }
    }

    /// Wakes whoever is due, for ever.
    pub(crate) async fn run(&self) -> io::Result<()> {
        loop {
            self.alarm.ring().await?;
            self.wake_due()?;
        }
    }

    fn wake_due(&self) -> io::Result<()> {
        let mut table = self.table.borrow_mut();
        let table = &mut *table;
        let now = now_ns();
        table.armed = u64::MAX;
        while let Some(Reverse((at, slot, generation))) = table.heap.peek().copied() {
            if at > now {
                table.armed = at;
                return self.alarm.set(at);
            }
            table.heap.pop();
            let entry = &mut table.slots[slot];
            if entry.generation == generation
                && let Some(waker) = entry.waker.take()
            {
                waker.wake();
            }
        }
        Ok(())
    }
}

/// One wake-up, which a later one replaces.
pub(crate) struct Timer {
    timers: Rc<Timers>,
    slot: usize,
}

impl Timer {
    /// Has the task woken at `at` or, if that is past, at once. The caller looks at the clock itself.
    pub(crate) fn wake_at(&self, at: u64, cx: &Context<'_>) -> io::Result<()> {
        let mut table = self.timers.table.borrow_mut();
        let table = &mut *table;
        let entry = &mut table.slots[self.slot];
        if entry.at == at
            && let Some(waker) = &mut entry.waker
        {
            waker.clone_from(cx.waker());
            return Ok(());
        }
        entry.generation += 1;
        entry.at = at;
        entry.waker = Some(cx.waker().clone());
        table.heap.push(Reverse((at, self.slot, entry.generation)));
        if at < table.armed {
            table.armed = at;
            self.timers.alarm.set(at)?;
        }
        Ok(())
    }

    /// Waits until `at`.
    pub(crate) async fn sleep_until(&self, at: u64) -> io::Result<()> {
        poll_fn(|cx| {
            if now_ns() >= at {
                return Poll::Ready(Ok(()));
            }
            match self.wake_at(at, cx) {
                Ok(()) => Poll::Pending,
                Err(e) => Poll::Ready(Err(e)),
            }
        })
        .await
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let mut table = self.timers.table.borrow_mut();
        let entry = &mut table.slots[self.slot];
        entry.generation += 1;
        entry.waker = None;
        table.free.push(self.slot);
    }
}
