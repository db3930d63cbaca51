//! A waker that is deaf while its task is being polled.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

/// Passes wake-ups on to a task, except those that the task causes itself while it is being polled.
///
/// A connection and the body it fills live in one task here, and each wakes the other for every frame. Their task
/// polls both until neither moves, so such a wake-up would only have it polled once more for nothing, for every
/// event of every stream. Whatever it polls must therefore never wake it *instead of* making progress, as tokio's
/// cooperative budget does: poll without that.
#[derive(Debug, Default)]
pub(crate) struct QuietWaker {
    polling: AtomicBool,
    task: Mutex<Option<Waker>>,
}

impl QuietWaker {
    /// The task of `cx` is about to poll.
    pub(crate) fn begin(&self, cx: &Context<'_>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        match &*task {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            _ => *task = Some(cx.waker().clone()),
        }
        self.polling.store(true, Ordering::Release);
    }

    /// The poll is over: wake-ups count again.
    pub(crate) fn end(&self) {
        self.polling.store(false, Ordering::Release);
    }
}

impl Wake for QuietWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.polling.load(Ordering::Acquire) {
            return;
        }
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waker) = &*task {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn deaf_only_while_polling() {
        let count = Arc::new(Count::default());
        let task = Waker::from(Arc::clone(&count));
        let quiet = Arc::new(QuietWaker::default());
        let waker = Waker::from(Arc::clone(&quiet));
        waker.wake_by_ref();
        quiet.begin(&Context::from_waker(&task));
        waker.wake_by_ref();
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        quiet.end();
        waker.wake_by_ref();
        waker.wake();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }
}
