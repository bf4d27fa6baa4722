//! One thread that wakes every sleeper of the process at instants of [`BootClock`].
//!
//! tokio's timers stop while the machine is suspended, and a runtime that is blocked or shut down
//! wakes no task. On Linux the thread waits for a `timerfd` on `CLOCK_BOOTTIME`, which is due at
//! the instant itself, also when that passed during suspension. It runs while there are sleepers,
//! and ends with the last one.
//!
//! It wakes sleepers together that may be late a little, and are close to each other. Thousands of
//! elections would otherwise wake the thread, and with it the workers of a runtime, one by one.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use super::BootClock;
use super::Clock;
use super::Instant;
use super::wake_timer::WakeTimer;

static ALARM: Alarm = Alarm::new();

/// A sleeper may be woken late by this part of its wait.
const LATE_PART: u32 = 100;
/// How late it may be woken at most.
const MAX_LATE: Duration = Duration::from_millis(5);

pub(super) struct Alarm {
    state: Mutex<State>,
    /// Where there is no better timer: notifies the thread of an earlier deadline.
    sooner: Condvar,
}

struct State {
    /// By when they are to be woken at the latest.
    sleepers: BTreeMap<Key, Sleeper>,
    next_id: u64,
    /// Of the thread, while it runs.
    timer: Option<WakeTimer>,
    /// When it rings next.
    rings: Instant,
}

/// Whether a sleeper may be woken late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slack {
    None,
    /// By [`LATE_PART`] of its wait, and [`MAX_LATE`] at most.
    Coalesce,
}

/// The latest instant to wake a sleeper, in nanoseconds, and the sleeper's number.
type Key = (u64, u64);

struct Sleeper {
    /// When it wakes at the earliest, in nanoseconds.
    at: u64,
    waker: Waker,
}

/// One sleeper. Its drop forgets the sleeper.
pub(super) struct Ticket {
    alarm: &'static Alarm,
    key: Key,
    /// As in [`Sleeper`].
    at: u64,
    waker: Waker,
}

impl Ticket {
    /// A sleeper who is woken at `at`; `None` where the system has no thread to spare.
    pub fn new(at: Instant, slack: Slack, cx: &Context<'_>) -> Option<Self> {
        ALARM.ticket(at, slack, cx)
    }

    /// When it wakes.
    pub fn at(&self) -> Instant {
        Instant::from_nanos(self.at)
    }

    /// Whether it wakes this task at `at`. It may be used up if that has passed.
    pub fn is_for(&self, at: Instant, cx: &Context<'_>) -> bool {
        self.at == at.as_nanos() && self.waker.will_wake(cx.waker())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Dropped after the lock is given back: with a waker its task may go, and other sleepers
        // with that.
        let _sleeper = self.alarm.state().sleepers.remove(&self.key);
    }
}

impl Alarm {
    const fn new() -> Self {
        let state =
            State { sleepers: BTreeMap::new(), next_id: 0, timer: None, rings: Instant::ORIGIN };
        Self { state: Mutex::new(state), sooner: Condvar::new() }
    }

    fn ticket(&'static self, at: Instant, slack: Slack, cx: &Context<'_>) -> Option<Ticket> {
        let waker = cx.waker().clone();
        let kept = waker.clone();
        let late = match slack {
            Slack::None => Duration::ZERO,
            Slack::Coalesce => at.saturating_since(BootClock.now()) / LATE_PART,
        };
        let rings = at + late.min(MAX_LATE);
        let at = at.as_nanos();
        let mut state = self.state();
        let key = (rings.as_nanos(), state.next_id);
        state.next_id = state.next_id.wrapping_add(1);
        match &state.timer {
            Some(_) if state.rings <= rings => {}
            Some(timer) => {
                timer.ring_at(rings);
                state.rings = rings;
                self.sooner.notify_one();
            }
            None => {
                let timer = WakeTimer::new();
                let own = timer.clone();
                let thread = thread::Builder::new().name("incumbent-clock".into());
                let thread = thread.stack_size(256 * 1024).spawn(move || self.run(&own));
                thread.ok()?;
                (state.timer, state.rings) = (Some(timer), Instant::ORIGIN);
            }
        }
        state.sleepers.insert(key, Sleeper { at, waker });
        drop(state);
        Some(Ticket { alarm: self, key, at, waker: kept })
    }

    fn run(&self, timer: &WakeTimer) {
        let mut state = self.state();
        loop {
            let due = state.take_due(BootClock.now());
            if !due.is_empty() {
                drop(state);
                for sleeper in due {
                    // A waker that panics is of no concern to the others.
                    let _ = catch_unwind(AssertUnwindSafe(|| sleeper.waker.wake()));
                }
                state = self.state();
                continue;
            }
            let Some((&(latest, _), _)) = state.sleepers.first_key_value() else {
                state.timer = None;
                return;
            };
            let at = Instant::from_nanos(latest);
            state.rings = at;
            timer.ring_at(at);
            state = if timer.is_supported() {
                drop(state);
                timer.wait();
                self.state()
            } else {
                let left = at.saturating_since(BootClock.now()).min(WakeTimer::MAX_WAIT);
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
    /// Takes all who may be woken, once one of them must be.
    fn take_due(&mut self, now: Instant) -> Vec<Sleeper> {
        let must = self.sleepers.keys().next().is_some_and(|(latest, _)| *latest <= now.as_nanos());
        if !must {
            return Vec::new();
        }
        let may = ..=((now + MAX_LATE).as_nanos(), u64::MAX);
        let due = self.sleepers.range(may).filter(|(_, sleeper)| sleeper.at <= now.as_nanos());
        let mut due: Vec<_> = due.map(|(key, sleeper)| (sleeper.at, *key)).collect();
        due.sort_unstable();
        due.into_iter().filter_map(|(_, key)| self.sleepers.remove(&key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::Wake;

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
        alarm.ticket(at, Slack::None, &Context::from_waker(waker)).expect("a thread")
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
    fn only_those_who_may_be_woken_late_are() {
        let (alarm, cx) = (alarm(), Context::from_waker(Waker::noop()));
        let at = BootClock.now() + Duration::from_secs(60);
        let latest = |late| alarm.ticket(at, late, &cx).expect("a thread").key.0;
        assert_eq!(latest(Slack::None), at.as_nanos());
        assert_eq!(latest(Slack::Coalesce), (at + MAX_LATE).as_nanos());
    }

    #[test]
    fn close_timers_fire_together_and_never_early() {
        let mut state =
            State { sleepers: BTreeMap::new(), next_id: 0, timer: None, rings: Instant::ORIGIN };
        for (latest, at) in [(10, 9), (12, 8), (13, 11), (20, 10), (14, 7)] {
            let sleeper = Sleeper { at, waker: Waker::noop().clone() };
            state.sleepers.insert((latest, latest), sleeper);
        }
        let mut due = |now| -> Vec<_> {
            let due = state.take_due(Instant::from_nanos(now));
            due.iter().map(|sleeper| sleeper.at).collect()
        };
        assert!(due(9).is_empty());
        assert_eq!(due(10), [7, 8, 9, 10]);
        assert!(due(12).is_empty());
        assert_eq!(due(13), [11]);
    }

    #[test]
    fn an_earlier_sleeper_does_not_wait_for_a_later_one() {
        let (alarm, (woken_by, woken)) = (alarm(), mpsc::channel());
        let waker = Waker::from(std::sync::Arc::new(Recorder(woken_by, "soon")));
        let _never = sleep(alarm, Instant::from_origin(Duration::MAX), Waker::noop());
        while !alarm.state().rings.as_nanos().eq(&u64::MAX) {
            thread::yield_now(); // until the thread waits for the later one
        }
        let _soon = sleep(alarm, BootClock.now() + Duration::from_millis(5), &waker);
        assert_eq!(woken.recv_timeout(Duration::from_secs(60)), Ok("soon"));
    }

    #[test]
    fn the_thread_ends_when_nobody_sleeps_and_starts_again() {
        let alarm = alarm();
        for _ in 0..2 {
            let ticket = sleep(alarm, BootClock.now() + Duration::from_millis(5), Waker::noop());
            assert!(alarm.state().timer.is_some());
            while alarm.state().timer.is_some() {
                thread::yield_now();
            }
            drop(ticket);
            assert!(alarm.state().sleepers.is_empty());
        }
    }
}
