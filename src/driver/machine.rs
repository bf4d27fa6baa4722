//! The state machine that a driver runs: an elector on one lock, or on several.

use std::time::Duration;

#[cfg(feature = "_history")]
use crate::driver::record::{HistoryWriter, Output};
use crate::lock::{Capabilities, Need, Pause, Readiness, Token};
use crate::protocol::{
    Action, Drain, Elector, Event, Leader, MemberSettings, MultiElector, PreviousTerm, Settings,
    State, Timing, WaitReason,
};
use crate::time::clock::Instant;

pub(crate) struct StateMachine {
    electors: Electors,
    pub drain: Drain,
    #[cfg(feature = "_history")]
    history: Option<Box<HistoryWriter>>,
}

#[allow(clippy::large_enum_variant, reason = "one lock is the rule, and costs no allocation")]
enum Electors {
    Single(Elector),
    Multi(Box<MultiElector>),
}

impl StateMachine {
    /// `None` if no lock is required.
    pub fn new(mut parts: Vec<MemberSettings>, drain: Drain) -> Option<Self> {
        let elector =
            |part: MemberSettings| (Elector::new(part.settings, part.capabilities), part.need);
        let electors = match (parts.pop(), parts.is_empty()) {
            (Some(part), true) if part.need == Need::Required => Electors::Single(elector(part).0),
            (last, _) => {
                let electors = parts.into_iter().chain(last).map(elector).collect();
                Electors::Multi(Box::new(MultiElector::new(electors)?))
            }
        };
        Some(Self {
            electors,
            drain,
            #[cfg(feature = "_history")]
            history: None,
        })
    }

    /// Has everything that it takes in and returns written down.
    #[cfg(feature = "_history")]
    pub fn recorded(self, history: Option<HistoryWriter>) -> Self {
        Self { history: history.map(Box::new), ..self }
    }

    /// `lock`: the lock that the hint, response or capabilities belong to.
    pub fn handle(&mut self, now: Instant, lock: usize, event: Event) {
        #[cfg(feature = "_history")]
        if let Some(mut history) = self.history.take() {
            self.handle_unrecorded(now, lock, event.clone());
            history.write_step(now, lock, event, self.output());
            self.history = Some(history);
            return;
        }
        self.handle_unrecorded(now, lock, event);
    }

    fn handle_unrecorded(&mut self, now: Instant, lock: usize, event: Event) {
        match &mut self.electors {
            Electors::Single(elector) => elector.handle(now, event),
            Electors::Multi(multi) => multi.handle(now, lock, event),
        }
    }

    /// Takes what is to be returned. Nothing that is decided later depends on when that is done.
    #[cfg(feature = "_history")]
    pub fn output(&mut self) -> Output {
        let actions = std::iter::from_fn(|| self.poll_action()).collect();
        Output { actions, wake: self.next_wake(), state: self.state() }
    }

    /// The next thing to do, and on which lock.
    pub fn poll_action(&mut self) -> Option<(usize, Action)> {
        #[cfg(feature = "_history")]
        if let Some(history) = &mut self.history {
            return history.poll_action();
        }
        match &mut self.electors {
            Electors::Single(elector) => elector.poll_action().map(|action| (0, action)),
            Electors::Multi(multi) => multi.poll_action(),
        }
    }

    /// Whether a few hints of the lock are not enough for it.
    pub fn wants_all_hints(&self, now: Instant, lock: usize) -> bool {
        self.elector(lock).is_some_and(|elector| elector.wants_all_hints(now))
    }

    /// Whether it keeps the time of Choria's candidates on the lock.
    pub fn with_choria(&self, lock: usize) -> bool {
        self.elector(lock).is_some_and(|elector| elector.settings().with_choria)
    }

    /// The shortest time that a request to a lock took, and the timing there, where that leaves no
    /// margin.
    pub fn slow_lock(&self) -> Option<(Duration, Timing)> {
        let slow = |elector: &Elector| {
            let (round_trip, timing) = (elector.round_trip()?, elector.settings().timing);
            (!timing.bears(round_trip)).then_some((round_trip, timing))
        };
        match &self.electors {
            Electors::Single(elector) => slow(elector),
            Electors::Multi(multi) => multi.electors().find_map(slow),
        }
    }

    /// What it takes the lock for.
    pub fn capabilities(&self, lock: usize) -> Option<&Capabilities> {
        self.elector(lock).map(Elector::capabilities)
    }

    pub fn next_wake(&self) -> Option<Instant> {
        match &self.electors {
            Electors::Single(elector) => elector.next_wake(),
            Electors::Multi(multi) => multi.next_wake(),
        }
    }

    pub fn state(&self) -> State {
        match &self.electors {
            Electors::Single(elector) => elector.state(),
            Electors::Multi(multi) => multi.state(),
        }
    }

    fn elector(&self, lock: usize) -> Option<&Elector> {
        match &self.electors {
            Electors::Single(elector) => Some(elector),
            Electors::Multi(multi) => multi.electors().nth(lock),
        }
    }

    /// The elector on the first required lock.
    fn first(&self) -> &Elector {
        match &self.electors {
            Electors::Single(elector) => elector,
            Electors::Multi(multi) => multi.first(),
        }
    }

    /// The leader, as last seen on the first required lock.
    pub fn leader(&self) -> Option<&Leader> {
        self.first().leader()
    }

    /// The pause of the election, as known on the first required lock.
    pub fn pause(&self, now: Instant) -> Option<Pause> {
        self.first().pause(now)
    }

    /// When that pause ends.
    pub fn pause_ends(&self, now: Instant) -> Option<Instant> {
        self.first().pause_ends(now)
    }

    /// How the term before ended, as this candidate saw it on the first required lock. Where it saw
    /// nothing, there was no entry.
    pub fn previous_term(&self) -> PreviousTerm {
        self.first().previous_term().unwrap_or(PreviousTerm::Deleted)
    }

    /// When this candidate will lead, if it keeps what it holds, and the last thing that it waits
    /// for; `None` unless it waits.
    pub fn cool_down(&self) -> Option<(Instant, WaitReason)> {
        match &self.electors {
            Electors::Single(elector) => elector.cool_down(),
            Electors::Multi(multi) => {
                let waits = multi.electors().filter_map(Elector::cool_down);
                waits.max_by_key(|(at, _)| *at)
            }
        }
    }

    /// Whether it takes part, rather than only watches.
    pub fn is_eligible(&self) -> bool {
        match &self.electors {
            Electors::Single(elector) => elector.settings().eligible,
            Electors::Multi(multi) => multi.is_eligible(),
        }
    }

    /// Whether a required lock refuses its writes.
    pub fn is_refused(&self) -> bool {
        match &self.electors {
            Electors::Single(elector) => elector.is_refused(),
            Electors::Multi(multi) => multi.is_refused(),
        }
    }

    /// How ready it is to lead: sick while it is refused.
    pub fn readiness(&self) -> Readiness {
        if self.is_refused() { Readiness::Unhealthy } else { self.settings().readiness }
    }

    /// The settings on the first required lock.
    pub fn settings(&self) -> &Settings {
        self.first().settings()
    }

    /// How long before its deadline a term ends, at the latest.
    pub fn least_grace(&self) -> Duration {
        let grace = |elector: &Elector| elector.settings().timing.grace();
        match &self.electors {
            Electors::Single(elector) => grace(elector),
            Electors::Multi(multi) => multi.electors().map(grace).min().unwrap_or_default(),
        }
    }

    /// The term on each lock whose entry may be released once this process is dead.
    #[cfg(all(feature = "sentinel", unix))]
    pub fn releasable(&self) -> impl Iterator<Item = Option<crate::protocol::RegisteredTerm>> {
        let (single, multi) = match &self.electors {
            Electors::Single(elector) => (Some(elector), None),
            Electors::Multi(multi) => (None, Some(multi.electors())),
        };
        single.into_iter().chain(multi.into_iter().flatten()).map(Elector::releasable)
    }

    /// The tokens of a term on several locks, as they are now; `None` where there is one lock.
    pub fn tokens(&self) -> Option<Vec<Option<Token>>> {
        match &self.electors {
            Electors::Single(_) => None,
            Electors::Multi(multi) => Some(multi.tokens()),
        }
    }
}
