//! Waiting for an instant of a clock.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;

use super::BootClock;
use super::Clock;
use super::Instant;
use super::Timers;
use super::alarm::{Slack, Ticket};

/// How long a piece of a sleep is on a clock whose timers are not known.
const PIECE: Duration = Duration::from_millis(500);

/// Waits until `clock` shows `at`.
///
/// On a [`BootClock`] it wakes at that instant, also when that passed while the machine was
/// suspended (on Linux and Android; elsewhere up to 500 ms after it woke up). A thread of its own,
/// one for the whole process, sees to that: no runtime need have a timer, and one that is blocked
/// delays no sleeper on another.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use std::time::Duration;
/// use incumbent::clock::{BootClock, Clock, sleep_until};
///
/// let at = BootClock.now() + Duration::from_millis(20);
/// sleep_until(BootClock, at).await;
/// assert!(BootClock.now() >= at);
/// # }
/// ```
///
/// # Cancel safety
/// Dropping the returned future ends the wait.
pub fn sleep_until<C: Clock>(clock: C, at: Instant) -> Sleep<C> {
    Sleep { clock, at, late: Slack::None, timer: Timer::None }
}

/// Sleeps until about `at`: it may wake late by a hundredth of the wait, and 5 ms at most, together
/// with others that are close. For thousands of sleepers that end no right.
pub(crate) fn sleep_until_about<C: Clock>(clock: C, at: Instant) -> Sleep<C> {
    Sleep { late: Slack::Coalesce, ..sleep_until(clock, at) }
}

/// What [`sleep_until`] returns.
#[must_use = "futures do nothing unless polled"]
pub struct Sleep<C> {
    clock: C,
    at: Instant,
    late: Slack,
    timer: Timer,
}

enum Timer {
    None,
    Alarm(Ticket),
    Tokio(Pin<Box<tokio::time::Sleep>>),
}

// Nothing in it is pinned in place.
impl<C> Unpin for Sleep<C> {}

impl<C: Clock> Sleep<C> {
    /// Waits for another instant from now on.
    pub fn reset(&mut self, at: Instant) {
        if at != self.at {
            (self.at, self.timer) = (at, Timer::None);
        }
    }

    fn by_alarm(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if matches!(&self.timer, Timer::Alarm(ticket) if ticket.is_for(at, cx)) {
            return Poll::Pending;
        }
        self.timer = match Ticket::new(at, self.late, cx) {
            Some(ticket) => Timer::Alarm(ticket),
            None => {
                cx.waker().wake_by_ref(); // looking again and again is better than never
                Timer::None
            }
        };
        Poll::Pending
    }

    fn by_tokio(&mut self, left: Duration, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Timer::Tokio(sleep) = &mut self.timer {
                if sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.timer = Timer::None;
                if self.clock.now() >= self.at {
                    return Poll::Ready(());
                }
            }
            self.timer = Timer::Tokio(Box::pin(tokio::time::sleep(left)));
        }
    }
}

impl<C: Clock> Future for Sleep<C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let left = this.at.saturating_since(this.clock.now());
        if left.is_zero() {
            this.timer = Timer::None;
            return Poll::Ready(());
        }
        let timers = this.clock.timers();
        if timers == Timers::Boot {
            return this.by_alarm(this.at, cx);
        }
        let left = if timers == Timers::Tokio { left } else { left.min(PIECE) };
        if Handle::try_current().is_ok() {
            return this.by_tokio(left, cx);
        }
        // Without a runtime: the other clock is looked at when a piece has passed on this one.
        let now = BootClock.now();
        let end = match &this.timer {
            Timer::Alarm(ticket) if ticket.at() > now => ticket.at(),
            _ => now + left.min(PIECE),
        };
        this.by_alarm(end, cx)
    }
}

partial_debug!(Sleep<C>, self, until: self.at);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::time::clock::TokioClock;

    /// Runs beside another clock, and offers no timer for its instants.
    #[derive(Debug, Clone, Copy)]
    struct Unknown<C>(C);

    impl<C: Clock> Clock for Unknown<C> {
        fn now(&self) -> Instant {
            self.0.now()
        }
    }

    fn plain() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    async fn passes(clock: impl Clock + Clone) {
        let at = clock.now() + Duration::from_millis(20);
        sleep_until(clock.clone(), at).await;
        assert!(clock.now() >= at);
    }

    #[test]
    fn it_needs_no_timer_of_the_runtime() {
        plain().block_on(passes(BootClock));
        plain().block_on(passes(Arc::new(BootClock) as Arc<dyn Clock>));
    }

    #[test]
    fn it_needs_no_runtime() {
        futures_util::FutureExt::now_or_never(sleep_until(BootClock, BootClock.now())).unwrap();
        futures_executor(passes(BootClock));
        futures_executor(passes(Unknown(BootClock)));
        futures_executor(passes(TokioClock::new()));
    }

    /// Polls on a plain thread.
    fn futures_executor(future: impl Future<Output = ()>) {
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut future = std::pin::pin!(future);
        while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
            std::thread::park();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn paused_time_passes_at_once() {
        let day = Duration::from_secs(86_400);
        for _ in 0..2 {
            let clock = TokioClock::new();
            sleep_until(clock, clock.now() + day).await;
            let clock = Unknown(clock);
            sleep_until(clock, clock.now() + day / 24).await;
        }
    }

    #[test]
    fn one_that_is_reset_wakes_at_the_new_instant() {
        plain().block_on(async {
            let start = BootClock.now();
            let mut sleep = sleep_until(BootClock, start + Duration::from_secs(3600));
            assert!(futures_util::poll!(&mut sleep).is_pending());
            sleep.reset(start + Duration::from_millis(20));
            sleep.await;
            assert!(BootClock.now() >= start + Duration::from_millis(20));
        });
    }
}
