//! One thread that wakes every sleeper of the process at instants of [`BootClock`].
//!
//! tokio's timers stop while the machine is suspended, and a runtime that is blocked or shut down
//! wakes no task. On Linux the thread waits for a `timerfd` on `CLOCK_BOOTTIME`, which is due at
//! the instant itself, also when that passed during suspension. It runs while there are sleepers,
//! and ends with the last one.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::thread;

use super::BootClock;
use super::Clock;
use super::Instant;
use super::bell::Bell;

static ALARM: Alarm = Alarm::new();

pub(super) struct Alarm {
    state: Mutex<State>,
    /// Where there is no better bell: notifies the thread of an earlier deadline.
    sooner: Condvar,
}

struct State {
    sleepers: BTreeMap<(Instant, u64), Waker>,
    next_id: u64,
    /// Of the thread, while it runs.
    bell: Option<Bell>,
    /// When it rings next.
    rings: Instant,
}

/// One sleeper. Its drop forgets the sleeper.
pub(super) struct Ticket {
    alarm: &'static Alarm,
    key: (Instant, u64),
    waker: Waker,
}

impl Ticket {
    /// A sleeper who is woken at `at`; `None` where the system has no thread to spare.
    pub fn new(at: Instant, cx: &Context<'_>) -> Option<Self> {
        ALARM.ticket(at, cx)
    }

    /// When it wakes.
    pub fn at(&self) -> Instant {
        self.key.0
    }

    /// Whether it wakes this task at `at`. It may be used up if that has passed.
    pub fn is_for(&self, at: Instant, cx: &Context<'_>) -> bool {
        self.key.0 == at && self.waker.will_wake(cx.waker())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Dropped after the lock is given back: with a waker its task may go, and other sleepers
        // with that.
        let _waker = self.alarm.state().sleepers.remove(&self.key);
    }
}

impl Alarm {
    const fn new() -> Self {
        let state =
            State { sleepers: BTreeMap::new(), next_id: 0, bell: None, rings: Instant::ORIGIN };
        Self { state: Mutex::new(state), sooner: Condvar::new() }
    }

    fn ticket(&'static self, at: Instant, cx: &Context<'_>) -> Option<Ticket> {
        let waker = cx.waker().clone();
        let kept = waker.clone();
        let mut state = self.state();
        let key = (at, state.next_id);
        state.next_id = state.next_id.wrapping_add(1);
        match &state.bell {
            Some(_) if state.rings <= at => {}
            Some(bell) => {
                bell.ring_at(at);
                state.rings = at;
                self.sooner.notify_one();
            }
            None => {
                let bell = Bell::new();
                let own = bell.clone();
                let thread = thread::Builder::new().name("incumbent-clock".into());
                let thread = thread.stack_size(256 * 1024).spawn(move || self.run(&own));
                thread.ok()?;
                (state.bell, state.rings) = (Some(bell), Instant::ORIGIN);
            }
        }
        state.sleepers.insert(key, waker);
        drop(state);
        Some(Ticket { alarm: self, key, waker: kept })
    }

    fn run(&self, bell: &Bell) {
        let mut state = self.state();
        loop {
            let due = state.take_due(BootClock.now());
            if !due.is_empty() {
                drop(state);
                for waker in due {
                    // A waker that panics is of no concern to the others.
                    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
                }
                state = self.state();
                continue;
            }
            let Some((&(at, _), _)) = state.sleepers.first_key_value() else {
                state.bell = None;
                return;
            };
            state.rings = at;
            bell.ring_at(at);
            state = if bell.is_heard() {
                drop(state);
                bell.wait();
                self.state()
            } else {
                let left = at.saturating_since(BootClock.now()).min(Bell::LONGEST_WAIT);
                let waited = self.sooner.wait_timeout(state, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take_due(&mut self, now: Instant) -> Vec<Waker> {
        let mut due = Vec::new();
        while let Some(first) = self.sleepers.first_entry()
            && first.key().0 <= now
        {
            due.push(first.remove());
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    struct Recorder(mpsc::Sender<&'static str>, &'static str);

    impl Wake for Recorder {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.send(self.1).expect("the test listens");
        }
    }

    struct Panics;

    impl Wake for Panics {
        fn wake(self: std::sync::Arc<Self>) {
            panic!("a waker of a test");
        }
    }

    fn alarm() -> &'static Alarm {
        Box::leak(Box::new(Alarm::new()))
    }

    fn sleep(alarm: &'static Alarm, at: Instant, waker: &Waker) -> Ticket {
        alarm.ticket(at, &Context::from_waker(waker)).expect("a thread")
    }

    #[test]
    fn sleepers_wake_in_the_order_of_their_instants() {
        let (alarm, (woken_by, woken)) = (alarm(), mpsc::channel());
        let named = |name| Waker::from(std::sync::Arc::new(Recorder(woken_by.clone(), name)));
        let now = BootClock.now();
        let _late = sleep(alarm, now + Duration::from_millis(60), &named("late"));
        let _panics = sleep(alarm, now, &Waker::from(std::sync::Arc::new(Panics)));
        drop(sleep(alarm, now + Duration::from_millis(30), &named("gone")));
        let _soon = sleep(alarm, now + Duration::from_millis(20), &named("soon"));
        for expected in ["soon", "late"] {
            assert_eq!(woken.recv_timeout(Duration::from_secs(60)), Ok(expected));
        }
        assert!(now + Duration::from_millis(60) <= BootClock.now());
    }

    #[test]
    fn an_earlier_sleeper_does_not_wait_for_a_later_one() {
        let (alarm, (woken_by, woken)) = (alarm(), mpsc::channel());
        let waker = Waker::from(std::sync::Arc::new(Recorder(woken_by, "soon")));
        let _never = sleep(alarm, Instant::from_origin(Duration::MAX), Waker::noop());
        while !alarm.state().rings.since_origin().eq(&Duration::MAX) {
            thread::yield_now(); // until the thread waits for the later one
        }
        let _soon = sleep(alarm, BootClock.now() + Duration::from_millis(5), &waker);
        assert_eq!(woken.recv_timeout(Duration::from_secs(60)), Ok("soon"));
    }

    #[test]
    fn the_thread_ends_when_nobody_sleeps_and_comes_back_for_the_next() {
        let alarm = alarm();
        for _ in 0..2 {
            let ticket = sleep(alarm, BootClock.now() + Duration::from_millis(5), Waker::noop());
            assert!(alarm.state().bell.is_some());
            while alarm.state().bell.is_some() {
                thread::yield_now();
            }
            drop(ticket);
            assert!(alarm.state().sleepers.is_empty());
        }
    }
}
