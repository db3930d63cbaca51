//! One alarm at an absolute time, as exact as the system allows.

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// A timer file descriptor in the runtime's poll set.
    pub(crate) struct Alarm(AsyncFd<OwnedFd>);

    impl Alarm {
        pub(crate) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            #[allow(
                deprecated,
                reason = "its successor is `unsafe` for the sake of types that lie about their descriptor; an `OwnedFd` cannot"
            )]
            let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
            Ok(Alarm(fd))
        }

        /// Rings at `ns`; replaces the time set before.
        pub(crate) fn set(&self, ns: u64) -> io::Result<()> {
            // All zeros would switch the timer off.
            let ns = ns.max(1);
            let at = Timespec {
                tv_sec: (ns / 1_000_000_000) as i64,
                tv_nsec: (ns % 1_000_000_000) as i64,
            };
            let once = Itimerspec {
                it_interval: Timespec::default(),
                it_value: at,
            };
            timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::ABSTIME, &once)?;
            Ok(())
        }

        /// Waits until it rings.
        pub(crate) async fn ring(&self) -> io::Result<()> {
            // The descriptor is never read: setting the next time also clears the count of expirations,
            // and readiness is edge-triggered, so the next expiration is reported without that call.
            self.0.readable().await?.clear_ready();
            Ok(())
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::cell::Cell;
    use std::io;
    use std::time::Duration;

    use tokio::sync::Notify;

    use crate::clock::now_ns;

    /// The runtime's own timer, good to a millisecond.
    pub(crate) struct Alarm {
        at: Cell<u64>,
        changed: Notify,
    }

    impl Alarm {
        pub(crate) fn new() -> io::Result<Self> {
            Ok(Alarm {
                at: Cell::new(u64::MAX),
                changed: Notify::new(),
            })
        }

        pub(crate) fn set(&self, ns: u64) -> io::Result<()> {
            self.at.set(ns);
            self.changed.notify_one();
            Ok(())
        }

        pub(crate) async fn ring(&self) -> io::Result<()> {
            loop {
                let left = self.at.get().saturating_sub(now_ns());
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_nanos(left)) => {
                        self.at.set(u64::MAX);
                        return Ok(());
                    }
                    () = self.changed.notified() => {}
                }
            }
        }
    }
}

pub(crate) use system::Alarm;
