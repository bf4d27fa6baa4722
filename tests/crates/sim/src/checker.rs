//! What must hold at every step, whatever happens.

use std::collections::VecDeque;
use std::time::Duration;

use incumbent::lock::Token;

use crate::server::Time;

/// More requests than this in a second of one candidate are a loop without a delay.
const REQUESTS_A_SECOND: usize = 60;
/// More wake-ups than this in a second are one too.
const WAKES_A_SECOND: usize = 400;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Term {
    None,
    Leading {
        deadline: Time,
    },
    /// Told to stop, and still at work.
    Stopping {
        deadline: Time,
    },
}

#[derive(Debug)]
struct Seat {
    /// Of which election it is.
    key: usize,
    term: Term,
    /// Work that would not stop may continue until here.
    zombie_until: Time,
    requests: VecDeque<Time>,
    wakes: VecDeque<Time>,
}

#[derive(Debug, Default)]
pub struct Checker {
    seats: Vec<Seat>,
    /// Seats of candidates that are not of this library: leading or not.
    peers: Vec<bool>,
    /// The greatest one of each election so far.
    last_tokens: Vec<Option<Token>>,
    /// Whether every term must have a greater token: not where the lock forgets what it has given
    /// out.
    tokens_grow: bool,
    /// Until when no promise is made that one leads at most.
    excused_until: Time,
    pub terms: u64,
    pub peer_terms: u64,
    /// Drains that ended with the work, rather than with the term.
    pub drains: u64,
    pub requests: u64,
    /// Requests to create an entry.
    pub creates: u64,
    /// Hints that the server sent to candidates.
    pub deliveries: u64,
    pub violation: Option<String>,
}

impl Checker {
    /// `keys`: of which election each candidate is.
    pub fn new(keys: impl Iterator<Item = usize>, peers: usize, tokens_grow: bool) -> Self {
        let seat = |key| Seat {
            key,
            term: Term::None,
            zombie_until: Time::ZERO,
            requests: VecDeque::new(),
            wakes: VecDeque::new(),
        };
        let seats: Vec<_> = keys.map(seat).collect();
        let elections = seats.iter().map(|seat| seat.key + 1).max().unwrap_or(1);
        Self {
            seats,
            peers: vec![false; peers],
            last_tokens: vec![None; elections],
            tokens_grow,
            ..Self::default()
        }
    }

    pub fn fail(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    /// Nothing is promised until then.
    pub fn excuse(&mut self, until: Time) {
        self.excused_until = self.excused_until.max(until);
    }

    pub fn last_token(&self, key: usize) -> Option<Token> {
        self.last_tokens[key]
    }

    /// The next token may be any.
    pub fn excuse_token(&mut self, key: usize) {
        self.last_tokens[key] = None;
    }

    fn leads(&self, who: usize, now: Time) -> bool {
        let seat = &self.seats[who];
        let by_term = match seat.term {
            Term::None => false,
            Term::Leading { deadline } | Term::Stopping { deadline } => now < deadline,
        };
        by_term || now < seat.zombie_until
    }

    pub fn is_leading(&self, who: usize) -> bool {
        matches!(self.seats[who].term, Term::Leading { .. })
    }

    /// Whether there is a leader, including candidates of other libraries.
    pub fn has_leader(&self) -> bool {
        (0..self.seats.len()).any(|who| self.is_leading(who)) || self.peers.contains(&true)
    }

    fn sole(&mut self, who: usize, now: Time) {
        if now < self.excused_until {
            return;
        }
        for other in (0..self.seats.len()).filter(|other| *other != who) {
            if self.seats[other].key == self.seats[who].key && self.leads(other, now) {
                self.fail(format!("candidates {who} and {other} both lead"));
            }
        }
    }

    pub fn begin(&mut self, who: usize, now: Time, token: Token, deadline: Time) {
        self.terms += 1;
        if self.seats[who].term != Term::None {
            self.fail(format!("candidate {who} begins a term within a term"));
        }
        if now < self.seats[who].zombie_until && now >= self.excused_until {
            self.fail(format!("candidate {who} leads beside its own work that would not stop"));
        }
        if deadline <= now {
            self.fail(format!("candidate {who} begins after its deadline"));
        }
        let promised = self.tokens_grow && now >= self.excused_until;
        let last = self.last_tokens[self.seats[who].key];
        if promised && last.is_some_and(|last| token <= last) {
            self.fail(format!("token {token} of candidate {who} is no greater than the last"));
        }
        let last = if promised { Some(token) } else { last.max(Some(token)) };
        self.last_tokens[self.seats[who].key] = last;
        self.seats[who].term = Term::Leading { deadline };
        self.sole(who, now);
    }

    pub fn extend(&mut self, who: usize, now: Time, deadline: Time) {
        match self.seats[who].term {
            Term::Leading { deadline: before } if now < before && deadline >= before => {}
            term => self.fail(format!("candidate {who} extends {term:?} at {now:?}")),
        }
        self.seats[who].term = Term::Leading { deadline };
        self.sole(who, now);
    }

    pub fn end(&mut self, who: usize) {
        match self.seats[who].term {
            Term::Leading { deadline } => self.seats[who].term = Term::Stopping { deadline },
            term => self.fail(format!("candidate {who} ends a term that is {term:?}")),
        }
    }

    pub fn ended(&mut self, who: usize, work_stopped: bool) {
        match self.seats[who].term {
            Term::Stopping { deadline } if !work_stopped => {
                self.seats[who].zombie_until = self.seats[who].zombie_until.max(deadline);
            }
            Term::Stopping { .. } => {}
            term => self.fail(format!("candidate {who} ended a term that is {term:?}")),
        }
        self.seats[who].term = Term::None;
    }

    /// Its clock is stopped for this long: by that clock its term is over as much later.
    pub fn set_on(&mut self, who: usize, now: Time, span: Duration) {
        self.seats[who].each_end_after(now, |end| *end += span);
    }

    /// That was for so much less.
    pub fn set_back(&mut self, who: usize, now: Time, span: Duration) {
        self.seats[who].each_end_after(now, |end| *end = (*end - span).max(now));
    }

    /// The process is gone, and its work with it.
    pub fn gone(&mut self, who: usize) {
        self.seats[who].term = Term::None;
        self.seats[who].zombie_until = Time::ZERO;
    }

    /// The process is gone, and its work is dead at `until`.
    pub fn orphaned(&mut self, who: usize, until: Time) {
        let seat = &mut self.seats[who];
        let ends = match seat.term {
            Term::None => seat.zombie_until,
            Term::Leading { deadline } | Term::Stopping { deadline } => {
                deadline.max(seat.zombie_until)
            }
        };
        seat.term = Term::None;
        seat.zombie_until = ends.min(until);
    }

    /// A sentinel has released the entry of a term of this candidate.
    pub fn released_after_crash(&mut self, who: usize, now: Time) {
        if now >= self.excused_until && self.leads(who, now) {
            self.fail(format!("the term of candidate {who} is released while its work runs"));
        }
    }

    pub fn peer(&mut self, which: usize, leads: bool, now: Time) {
        self.peer_terms += u64::from(leads);
        self.peers[which] = leads;
        self.beside_peers(now);
    }

    /// No candidate of ours leads beside one of theirs, not even one that is cut off: its deadline
    /// is sooner than theirs can win.
    pub fn beside_peers(&mut self, now: Time) {
        if self.peers.contains(&true)
            && let Some(who) = (0..self.seats.len()).find(|who| self.leads(*who, now))
        {
            self.fail(format!("candidate {who} leads beside one that is not of this library"));
        }
    }

    pub fn request(&mut self, who: usize, now: Time, gives_up: bool) {
        self.requests += 1;
        if gives_up && self.seats[who].term != Term::None {
            self.fail(format!("candidate {who} gives up its entry before its work has ended"));
        }
        if too_many(&mut self.seats[who].requests, now, REQUESTS_A_SECOND) {
            self.fail(format!("candidate {who} sends requests without a delay"));
        }
    }

    pub fn wake(&mut self, who: usize, now: Time) {
        if too_many(&mut self.seats[who].wakes, now, WAKES_A_SECOND) {
            self.fail(format!("candidate {who} wakes without a delay"));
        }
    }
}

impl Seat {
    fn each_end_after(&mut self, now: Time, change: impl Fn(&mut Time)) {
        let term = match &mut self.term {
            Term::None => None,
            Term::Leading { deadline } | Term::Stopping { deadline } => Some(deadline),
        };
        let ends = term.into_iter().chain([&mut self.zombie_until]);
        ends.filter(|end| now < **end).for_each(change);
    }
}

fn too_many(log: &mut VecDeque<Time>, now: Time, limit: usize) -> bool {
    log.push_back(now);
    if log.len() > limit {
        log.pop_front();
        return log.front().is_some_and(|first| now < *first + Duration::from_secs(1));
    }
    false
}
