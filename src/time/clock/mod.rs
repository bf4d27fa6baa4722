//! Instants that keep counting while the machine is suspended.
//!
//! A lease is a promise about elapsed time, so it must not stretch while a laptop lid is closed or
//! a virtual machine is paused. [`std::time::Instant`] stops during suspension on Linux;
//! [`Instant`] does not.

mod alarm;
mod sleep;
mod wake_timer;

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::Arc;
use std::time::Duration;

use crate::util::since_unix_epoch;
pub(crate) use sleep::sleep_until_about;
pub use sleep::{Sleep, sleep_until};

/// Returns the wall clock at the clock's origin, since the Unix epoch.
pub(crate) fn unix_time_at_origin(clock: &dyn Clock) -> Duration {
    since_unix_epoch().saturating_sub(clock.now().since_origin())
}

/// Nanoseconds, written as the duration that they are.
#[cfg(feature = "_history")]
pub(crate) mod nanos_as_duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(nanos: &u64, to: S) -> Result<S::Ok, S::Error> {
        Duration::from_nanos(*nanos).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        Duration::deserialize(from).map(super::nanos)
    }
}

/// A point in time on a [`Clock`], as a duration since an origin that only that clock knows (on
/// Linux: boot).
///
/// Instants of different machines, or of different clocks, cannot be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "_history", derive(serde::Serialize, serde::Deserialize))]
pub struct Instant(
    /// In nanoseconds, which 64 bits count for 584 years: half the memory of a duration.
    #[cfg_attr(feature = "_history", serde(with = "nanos_as_duration"))]
    u64,
);

impl Instant {
    /// The clock's origin.
    pub const ORIGIN: Self = Self(0);

    /// The instant `since_origin` after the clock's origin.
    pub const fn from_origin(since_origin: Duration) -> Self {
        Self(nanos(since_origin))
    }

    /// How long after the clock's origin this instant is.
    pub const fn since_origin(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Nanoseconds since the origin.
    pub(crate) fn as_nanos(self) -> u64 {
        self.0
    }

    /// The instant `nanos` nanoseconds after the origin.
    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// How long after `earlier` this instant is; zero when it is not after it.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// In nanoseconds, at most as many as an [`Instant`] counts.
pub(crate) const fn nanos(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(duration.subsec_nanos() as u64)
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{:.6}s", self.since_origin().as_secs_f64())
    }
}

/// The clock of a candidate.
///
/// It must never run backwards, must run at the rate of real time (to one part in a thousand), and
/// must continue while the machine is suspended.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Instant;

    /// Which timers wake at its instants: for the clocks of this module.
    #[doc(hidden)]
    fn timers(&self) -> Timers {
        Timers::Any
    }
}

/// What wakes at the instants of a [`Clock`].
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timers {
    /// What counts as [`BootClock`] does.
    Boot,
    /// Those of tokio.
    Tokio,
    /// It is not known: the clock is polled.
    Any,
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Instant {
        (**self).now()
    }

    fn timers(&self) -> Timers {
        (**self).timers()
    }
}

/// The clock of this machine, which continues while it is suspended: `CLOCK_BOOTTIME` on Linux,
/// Android and OpenBSD, `CLOCK_MONOTONIC` on macOS and iOS, and [`std::time::Instant`] on Windows.
///
/// On other systems, such as FreeBSD and NetBSD, it is [`std::time::Instant`], which may stop in
/// suspension: there a leader that was suspended may believe for up to a lease after it wakes that
/// it still leads, so fence its writes with the token.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

impl Clock for BootClock {
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "openbsd"))]
    fn now(&self) -> Instant {
        use rustix::time::{ClockId, DynamicClockId, clock_gettime, clock_gettime_dynamic};
        let now = clock_gettime_dynamic(DynamicClockId::Boottime)
            .unwrap_or_else(|_| clock_gettime(ClockId::Monotonic)); // kernels before 2.6.39
        since_origin(now)
    }

    // `std` reads `CLOCK_UPTIME_RAW` there, which stops in suspension.
    #[cfg(target_vendor = "apple")]
    fn now(&self) -> Instant {
        since_origin(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic))
    }

    #[cfg(not(any(
        target_os = "linux",
        target_os = "android",
        target_os = "openbsd",
        target_vendor = "apple"
    )))]
    fn now(&self) -> Instant {
        use std::sync::LazyLock;
        static ORIGIN: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
        Instant::from_origin(ORIGIN.elapsed())
    }

    fn timers(&self) -> Timers {
        Timers::Boot
    }
}

#[cfg(any(
    target_os = "linux",
    target_os = "android",
    target_os = "openbsd",
    target_vendor = "apple"
))]
fn since_origin(now: rustix::time::Timespec) -> Instant {
    Instant::from_origin(Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    ))
}

/// A clock that follows tokio's, and so stops while tokio's time is paused.
///
/// For tests of one's own code with `tokio::time::pause`: an election on a
/// [`MemoryLock`](crate::memory::MemoryLock) then runs through hours in milliseconds. It does not
/// count time in suspension: never use it in production.
#[derive(Debug, Clone, Copy)]
pub struct TokioClock {
    origin: tokio::time::Instant,
}

impl TokioClock {
    /// A clock whose origin is now.
    pub fn new() -> Self {
        Self { origin: tokio::time::Instant::now() }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        // An hour of room before the origin, so that subtracting a lease from an early instant does
        // not saturate.
        Instant::from_origin(self.origin.elapsed() + Duration::from_secs(3600))
    }

    fn timers(&self) -> Timers {
        Timers::Tokio
    }
}
