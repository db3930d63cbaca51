//! Stopping a worker's streams from its control task, without a channel to poll per event.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};

/// A flag that every stream of a worker looks at whenever it is polled; setting it wakes them all.
#[derive(Debug, Default)]
pub(crate) struct Cancel {
    set: Cell<bool>,
    wakers: RefCell<Vec<Option<Waker>>>,
}

impl Cancel {
    /// Whether the streams should give up.
    pub(crate) fn is_set(&self) -> bool {
        self.set.get()
    }

    /// Tells every stream to give up.
    pub(crate) fn set(&self) {
        self.set.set(true);
        for waker in self.wakers.borrow_mut().iter_mut().filter_map(Option::take) {
            waker.wake();
        }
    }

    /// Notes whom to wake for the stream in `slot`; free when nothing changed.
    pub(crate) fn register(&self, slot: usize, cx: &Context<'_>) {
        let mut wakers = self.wakers.borrow_mut();
        if wakers.len() <= slot {
            wakers.resize(slot + 1, None);
        }
        match &mut wakers[slot] {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            entry => *entry = Some(cx.waker().clone()),
        }
    }
}
