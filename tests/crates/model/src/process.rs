//! One candidate: its process, with a production machine in it, and its reports.

use std::collections::VecDeque;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use incumbent::clock::Instant;
use incumbent::lock::{LockErrorKind, Request};
use incumbent::protocol::{Action, Elector, Event, LockFailure, RegisteredTerm, Response, State};

use crate::config::Config;
use crate::key::{Key, nonce};
use crate::lock::Time;

/// A seed from which the first draws are near the least, so that what is drawn at random comes as
/// early as it may.
pub static SEED: LazyLock<u64> = LazyLock::new(|| {
    let early = |seed: &u64| {
        let mut random = fastrand::Rng::with_seed(*seed);
        (0..4).all(|_| random.f64() < 0.1)
    };
    (0..).find(early).unwrap_or_default()
});

/// A term as its holder reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Term {
    None,
    Leading {
        deadline: Time,
    },
    /// Told to stop, and still at work.
    Stopping {
        deadline: Time,
        by: Time,
    },
}

/// How a state breaks a promise, besides two that lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breach {
    /// A token that is no greater than an earlier one.
    Token,
    /// A term that begins in a term, ends twice, is extended after its deadline and the like.
    Order,
    /// An entry given up before the work has stopped.
    Early,
    /// The checkpoint of a later term is written by a former one.
    Former,
    /// A save of the checkpoint that was acknowledged is gone.
    Lost,
    /// Two leaders know two histories of the checkpoint, or one another save than its own.
    Histories,
    /// A term begins with a checkpoint that is older than what was acknowledged.
    Older,
}

/// With its randomness as it was at its start.
fn reseeded(mut elector: Elector) -> Elector {
    elector.reseed(*SEED);
    elector
}

/// A candidate.
pub struct Process {
    pub who: usize,
    /// Which process this is, counted from 1; 0 before the first.
    pub life: u8,
    /// `None` while it is down.
    pub machine: Option<Elector>,
    pub term: Term,
    /// Work that would not stop may continue until here.
    pub zombie_until: Time,
    pub paused: bool,
    /// The request whose answer is awaited, and when it times out.
    pub request: Option<(u64, Time)>,
    /// What kind of request that is.
    pub asked: RequestKind,
    /// What its sentinel knows of its term.
    pub registered: Option<RegisteredTerm>,
}

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    Read,
    Write,
    Release,
    NotifyStepDown,
}

impl Clone for Process {
    fn clone(&self) -> Self {
        Self { machine: self.machine.clone().map(reseeded), ..*self }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{} {:?}", self.who, self.term)
    }
}

/// The clock that all candidates read: they never exchange an instant, so its origin means nothing.
pub fn local(now: Time) -> Instant {
    Instant::from_origin(ORIGIN + now)
}

const ORIGIN: Duration = Duration::from_secs(3600);

/// In the model's time.
pub fn time(local: Instant) -> Time {
    local.since_origin().saturating_sub(ORIGIN)
}

impl Process {
    pub fn down(who: usize) -> Self {
        Self {
            who,
            life: 0,
            machine: None,
            term: Term::None,
            zombie_until: Time::ZERO,
            paused: false,
            request: None,
            asked: RequestKind::Read,
            registered: None,
        }
    }

    /// The term to register.
    pub fn releasable(&self) -> Option<RegisteredTerm> {
        self.machine.as_ref().and_then(|machine| machine.releasable())
    }

    /// Whether its sentinel does not know the latest yet.
    pub fn registers(&self) -> bool {
        self.acts() && self.registered != self.releasable()
    }

    pub fn is_up(&self) -> bool {
        self.machine.is_some()
    }

    pub fn acts(&self) -> bool {
        self.is_up() && !self.paused
    }

    pub fn start(&mut self, config: &Config) {
        *self = Self { life: self.life + 1, ..Self::down(self.who) };
        self.machine = Some(reseeded(config.campaign(self.who, nonce(self.who, self.life))));
    }

    /// The process is gone, and its work with it.
    pub fn gone(&mut self) {
        *self = Self { life: self.life, ..Self::down(self.who) };
    }

    pub fn next_wake(&self) -> Option<Time> {
        self.machine.as_ref().and_then(|machine| machine.next_wake()).map(time)
    }

    /// By its own right, whatever it does with it.
    pub fn leads(&self, now: Time) -> bool {
        let by_term = match self.term {
            Term::None => false,
            Term::Leading { deadline } | Term::Stopping { deadline, .. } => now < deadline,
        };
        by_term || now < self.zombie_until
    }

    /// Hands the machine an event. Answers what it wants done.
    pub fn feed(&mut self, now: Time, event: Event) -> VecDeque<Action> {
        let mut actions = VecDeque::new();
        let Some(machine) = &mut self.machine else { return actions };
        machine.handle(local(now), event);
        while let Some(action) = machine.poll_action() {
            actions.push_back(action);
        }
        actions
    }

    /// Records a request to the lock.
    pub fn record_request(&mut self, now: Time, id: u64, request: &Request) {
        let timeout = match request {
            Request::Read { timeout } => *timeout,
            Request::Write(write) => write.timeout,
            Request::Release(release) => release.timeout,
            Request::NotifyStepDown(_) => Duration::from_millis(250),
        };
        self.asked = match request {
            Request::Read { .. } => RequestKind::Read,
            Request::Write(_) => RequestKind::Write,
            Request::Release(_) => RequestKind::Release,
            Request::NotifyStepDown(_) => RequestKind::NotifyStepDown,
        };
        self.request = Some((id, now + timeout));
    }

    /// The lock gives up waiting for the answer.
    pub fn times_out(&mut self) -> Option<Event> {
        let (id, _) = self.request.take()?;
        let failure = LockFailure::new(LockErrorKind::OutcomeUnknown, "timed out");
        let answer = match self.asked {
            RequestKind::Read => Response::Read(Err(failure)),
            RequestKind::Write => Response::Written(Err(failure)),
            RequestKind::Release => Response::Released(Err(failure)),
            RequestKind::NotifyStepDown => Response::Notified(Err(failure)),
        };
        Some(Event::Response { id, response: answer })
    }

    /// Whether its state is the one that it reported.
    pub fn is_consistent(&self) -> bool {
        let says = self.machine.as_ref().map(|machine| machine.state()) == Some(State::Leader);
        says == matches!(self.term, Term::Leading { .. })
    }

    /// Records what the machine reports of its term.
    pub fn record_action(&mut self, now: Time, action: &Action) -> Result<(), Breach> {
        self.term = match (action, self.term) {
            (Action::Begin { deadline, .. }, Term::None)
                if now < time(*deadline) && now >= self.zombie_until =>
            {
                Term::Leading { deadline: time(*deadline) }
            }
            (Action::Extend { deadline }, Term::Leading { deadline: before })
                if now < before && before <= time(*deadline) =>
            {
                Term::Leading { deadline: time(*deadline) }
            }
            (Action::End { by, .. }, Term::Leading { deadline }) => {
                Term::Stopping { deadline, by: time(*by) }
            }
            (Action::Begin { .. } | Action::Extend { .. } | Action::End { .. }, _) => {
                return Err(Breach::Order);
            }
            (_, term) => term,
        };
        Ok(())
    }

    /// Its work has stopped, or would not.
    pub fn ended(&mut self, stopped: bool) {
        if let (Term::Stopping { deadline, .. }, false) = (self.term, stopped) {
            self.zombie_until = self.zombie_until.max(deadline);
        }
        self.term = Term::None;
    }

    /// What a sentinel may know of it: the phases do not take down whether a term has begun that is
    /// over.
    pub fn sketch_registration(&self, key: &mut Key) {
        key.campaign(nonce(self.who, self.life));
        for (tag, term) in [(60, self.registered), (61, self.releasable())] {
            if let Some(term) = term {
                key.plain(tag);
                key.token(term.token.0);
            }
        }
    }

    pub fn sketch(&self, now: Time, key: &mut Key) {
        use incumbent::protocol::FingerprintSink;
        let Self { who, life, machine, term, zombie_until, paused, request, asked, registered: _ } =
            self;
        let nonce = nonce(*who, *life);
        key.write_for(nonce);
        key.nonce(nonce);
        key.plain(u64::from(*paused));
        key.duration(zombie_until.saturating_sub(now));
        match term {
            Term::None => key.plain(0),
            Term::Leading { deadline } => {
                key.plain(1);
                key.duration(deadline.saturating_sub(now));
            }
            Term::Stopping { deadline, by } => {
                key.plain(2);
                key.duration(deadline.saturating_sub(now));
                key.duration(by.saturating_sub(now));
            }
        }
        if let Some((_, times_out)) = request {
            key.plain(1 + *asked as u64);
            key.duration(times_out.saturating_sub(now));
        }
        if let Some(machine) = machine {
            machine.fingerprint(local(now), key);
        }
    }
}
