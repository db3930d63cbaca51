//! Waking a worker's streams from its control tasks: when the run is stopped, and when one of them is overdue.
//!
//! Neither a channel nor a timer of its own for each stream: a receive thread without timers waits for its next
//! event without arming the kernel's, which on a virtual machine costs more than reading the event.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::task::{Context, Waker};
use std::time::Duration;

use linktax_records::Nanos;

use crate::clock::{Clock, Monotonic};

/// How often deadlines are looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// A flag that every stream of a worker looks at whenever it is polled, and a deadline for each.
#[derive(Debug, Default)]
pub(crate) struct Cancel {
    set: Cell<bool>,
    slots: RefCell<Vec<Option<Waiting>>>,
}

#[derive(Debug)]
struct Waiting {
    waker: Waker,
    deadline: Nanos,
}

impl Cancel {
    /// Whether the streams should give up.
    pub(crate) fn is_set(&self) -> bool {
        self.set.get()
    }

    /// Tells every stream to give up.
    pub(crate) fn set(&self) {
        self.set.set(true);
        self.wake_where(|_| true);
    }

    /// Wakes the streams whose deadline has come; they look at the clock themselves.
    pub(crate) fn look(&self, now: Nanos) {
        self.wake_where(|waiting| waiting.deadline <= now);
    }

    fn wake_where(&self, due: impl Fn(&Waiting) -> bool) {
        for slot in self.slots.borrow_mut().iter_mut() {
            if let Some(waiting) = slot.take_if(|waiting| due(waiting)) {
                waiting.waker.wake();
            }
        }
    }

    /// Looks at the deadlines for ever, for an exchange outside a worker.
    pub(crate) async fn keep_looking(&self) -> Infallible {
        loop {
            tokio::time::sleep(LOOK).await;
            self.look(Monotonic.now());
        }
    }

    /// Whether the stream in `slot` will be woken at its deadline and on cancellation.
    pub(crate) fn is_registered(&self, slot: usize) -> bool {
        self.slots.borrow().get(slot).is_some_and(Option::is_some)
    }

    /// Notes whom to wake for the stream in `slot`, and when at the latest.
    pub(crate) fn register(&self, slot: usize, cx: &Context<'_>, deadline: Nanos) {
        let mut slots = self.slots.borrow_mut();
        if slots.len() <= slot {
            slots.resize_with(slot + 1, || None);
        }
        match &mut slots[slot] {
            Some(waiting) if waiting.waker.will_wake(cx.waker()) => waiting.deadline = deadline,
            entry => {
                *entry = Some(Waiting {
                    waker: cx.waker().clone(),
                    deadline,
                });
            }
        }
    }

    /// The stream in `slot` has ended.
    pub(crate) fn forget(&self, slot: usize) {
        if let Some(entry) = self.slots.borrow_mut().get_mut(slot) {
            *entry = None;
        }
    }
}
