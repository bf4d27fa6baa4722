//! What wakes the thread of the alarm.

use std::time::Duration;

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) use self::timerfd::WakeTimer;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) use self::fallback::WakeTimer;

impl WakeTimer {
    /// Without a timer that counts time in suspension: how late the end of one is noticed.
    pub const MAX_WAIT: Duration = Duration::from_millis(500);
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod timerfd {
    use std::os::fd::OwnedFd;
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use rustix::io::{Errno, read};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };

    use crate::time::clock::Instant;

    /// A `timerfd`; none where the system refuses one (too many files are open, a sandbox).
    #[derive(Clone)]
    pub struct WakeTimer(Option<Arc<OwnedFd>>);

    impl WakeTimer {
        pub fn new() -> Self {
            let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC);
            Self(timer.ok().map(Arc::new))
        }

        /// Whether it wakes who waits for it.
        pub fn is_supported(&self) -> bool {
            self.0.is_some()
        }

        pub fn ring_at(&self, at: Instant) {
            let Some(timer) = &self.0 else { return };
            let at = at.since_origin().max(Duration::from_nanos(1)); // zero would silence it
            let it_value = Timespec {
                tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: at.subsec_nanos().into(),
            };
            let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
            let times = Itimerspec { it_interval, it_value };
            let _ = timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &times); // every instant is valid
        }

        pub fn wait(&self) {
            let Some(timer) = &self.0 else { return };
            match read(timer, &mut [0; 8]) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => thread::sleep(Self::MAX_WAIT / 10),
            }
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod fallback {
    use crate::time::clock::Instant;

    #[derive(Clone)]
    pub struct WakeTimer;

    impl WakeTimer {
        pub fn new() -> Self {
            Self
        }

        pub fn is_supported(&self) -> bool {
            false
        }

        pub fn ring_at(&self, _at: Instant) {}

        pub fn wait(&self) {}
    }
}
