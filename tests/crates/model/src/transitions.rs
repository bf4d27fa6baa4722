//! The transitions of the model: what may happen in a state, and the next state.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use incumbent::lock::{Content, Coverage, Hint, LockErrorKind, Request, Tombstone};
use incumbent::protocol::{Action, CheckpointRequest, Event};

use crate::config::Fault;
use crate::key::nonce;
use crate::lock::failed;
use crate::process::{Breach, Process, Term};
use crate::state::{Flight, Message, State};

/// A step. Numbers of messages are their places in the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    Tick,
    Start(usize),
    Wake(usize),
    /// A message arrives.
    Arrive(usize),
    /// The lock's own timeout for the request of a process passes.
    TimeOut(usize),
    WorkStops(usize),
    /// The lock frees the entry, or forgets a tombstone.
    Expire,
    Resume(usize),
    /// A sentinel learns what a process registered last.
    Register(usize),
    /// The next step of a release by a sentinel.
    Sentinel(usize),
    /// The timeout for a request of a sentinel passes.
    SentinelTimeOut(usize),
    /// The work of a term saves the checkpoint.
    Save(usize),
    /// A term waits no longer for the response to a request to the checkpoint.
    CheckpointTimeOut(usize),
    /// A fault that strikes a process.
    Strike(Fault, usize),
    /// A candidate hands over to another one.
    HandOver(usize, usize),
    /// A fault that strikes a message.
    Disturb(Fault, usize),
    /// A fault that strikes the entry.
    Remove(Fault),
}

/// How often something was seen, so that nothing holds by not happening.
#[derive(Debug, Default)]
pub struct Sights {
    /// Terms that began.
    pub terms: AtomicU64,
    /// Entries created over nothing, over a release, over an expiry's marker, over a delete.
    pub creates: [AtomicU64; 4],
    /// Step-down notices that a candidate received.
    pub notices: AtomicU64,
    /// Releases by sentinels that were stored, and that were refused.
    pub releases: [AtomicU64; 2],
    /// Claims of the checkpoint, and saves, that terms were told of.
    pub kept: [AtomicU64; 2],
    /// Writes of former terms to the checkpoint that were refused.
    pub late: AtomicU64,
}

pub(crate) fn count(sight: &AtomicU64) {
    sight.fetch_add(1, Ordering::Relaxed);
}

/// What may happen in `state`.
pub fn transitions(state: &State, moves: &mut Vec<Move>) {
    if state.breach.is_some() || state.leaders() > 1 {
        return;
    }
    for (who, process) in state.processes.iter().enumerate() {
        if !process.is_up() {
            moves.push(Move::Start(who));
            continue;
        }
        if process.paused {
            moves.push(Move::Resume(who));
        } else {
            if process.next_wake().is_some_and(|at| at <= state.now) {
                moves.push(Move::Wake(who));
            }
            if process.request.is_some_and(|(_, at)| at <= state.now) {
                moves.push(Move::TimeOut(who));
            }
            if matches!(process.term, Term::Stopping { .. }) {
                moves.push(Move::WorkStops(who));
            }
        }
        let may = |fault| match fault {
            Fault::Crash => true,
            Fault::Pause => !process.paused,
            Fault::Resign => process.acts() && state.holds(who),
            Fault::Stop => process.acts(),
            Fault::Stuck => process.acts() && matches!(process.term, Term::Stopping { .. }),
            _ => false,
        };
        let strikes = Fault::ALL.into_iter().filter(|fault| state.may(*fault) && may(*fault));
        moves.extend(strikes.map(|fault| Move::Strike(fault, who)));
        if state.may(Fault::HandOver) && process.acts() && state.holds(who) {
            let others = (0..state.processes.len()).filter(|other| *other != who);
            moves.extend(others.map(|to| Move::HandOver(who, to)));
        }
    }
    for (index, flight) in state.flights.iter().enumerate() {
        let reaches = match &flight.message {
            Message::Request { .. } => true,
            Message::OfSentinel { .. } | Message::ToSentinel { .. } => true,
            Message::Checkpoint { .. } => true,
            _ => state.processes[flight.who].acts(),
        };
        if reaches && !flight.held {
            moves.push(Move::Arrive(index));
        }
        let may = |fault| match (fault, &flight.message) {
            (Fault::Delay, _) => flight.left == 0,
            (Fault::Loss, message) => flight.left == 0 && !matches!(message, Message::Hint(_)),
            (Fault::Duplicate, Message::Request { request: Request::Write(_), .. }) => {
                flight.left == 0
            }
            (
                Fault::Duplicate,
                Message::Checkpoint { request: CheckpointRequest::Store { .. }, .. },
            ) => flight.left == 0,
            (Fault::Refusal, Message::Request { request, .. }) => {
                flight.left == 0 && matches!(request, Request::Write(_) | Request::Release(_))
            }
            (
                Fault::Duplicate | Fault::Refusal,
                Message::OfSentinel { request: Request::Release(_), .. },
            ) => flight.left == 0,
            _ => false,
        };
        let disturbs = Fault::ALL.into_iter().filter(|fault| state.may(*fault) && may(*fault));
        moves.extend(disturbs.map(|fault| Move::Disturb(fault, index)));
    }
    if state.lock.expires().is_some_and(|at| at <= state.now) {
        moves.push(Move::Expire);
    }
    if state.may(Fault::Delete) && state.lock.holds_entry() {
        moves.push(Move::Remove(Fault::Delete));
    }
    if state.may(Fault::Vanish) && state.lock.holds_entry() && !state.lock.vouches() {
        moves.push(Move::Remove(Fault::Vanish));
    }
    state.sentinel_moves(moves);
    state.checkpoint_moves(moves);
    if state.is_settled() && state.config.horizon.is_none_or(|horizon| state.tick < horizon) {
        moves.push(Move::Tick);
    }
}

impl State {
    /// Whether it has something to resign from.
    fn holds(&self, who: usize) -> bool {
        self.processes[who].machine.as_ref().is_some_and(|machine| {
            machine.deadline().is_some() || machine.leader().is_some_and(|leader| leader.is_me)
        })
    }

    /// Makes a move. The actions of the machines are appended to `told`, if wanted.
    pub fn make(&mut self, step: Move, sights: &Sights, told: &mut Option<Vec<String>>) {
        match step {
            Move::Tick => self.pass(),
            Move::Start(who) => {
                Arc::make_mut(&mut self.processes[who]).start(&self.config.clone());
                self.feed(who, Event::Start, sights, told);
                if self.config.hints {
                    let hint = Hint::Coverage(Coverage::Full);
                    self.feed(who, Event::Hint(hint), sights, told);
                }
            }
            Move::Wake(who) => self.feed(who, Event::Wake, sights, told),
            Move::Arrive(index) => self.arrive(index, sights, told),
            Move::TimeOut(who) => self.time_out(who, sights, told),
            Move::WorkStops(who) => {
                self.process(who).ended(true);
                self.feed(who, Event::TermEnded { work_stopped: true }, sights, told);
            }
            Move::Expire => {
                if Arc::make_mut(&mut self.lock).expire(self.now) {
                    self.stored();
                }
            }
            Move::Resume(who) => self.process(who).paused = false,
            Move::Register(who) => {
                let term = self.processes[who].releasable();
                self.process(who).registered = term;
            }
            Move::Sentinel(index) => self.sentinel_steps(index),
            Move::SentinelTimeOut(index) => self.sentinel_times_out(index),
            Move::Save(index) => self.saves(index),
            Move::CheckpointTimeOut(index) => {
                let who = self.keepers[index].who;
                if let Some(event) = self.checkpoint_times_out(index, sights) {
                    self.feed(who, event, sights, told);
                }
            }
            Move::Strike(fault, who) => {
                self.spend(fault);
                match fault {
                    Fault::Crash => self.dies(who),
                    Fault::Pause => self.process(who).paused = true,
                    Fault::Resign => self.feed(who, Event::Resign, sights, told),
                    Fault::Stop => self.feed(who, Event::Stop, sights, told),
                    Fault::Stuck => {
                        self.process(who).ended(false);
                        self.feed(who, Event::TermEnded { work_stopped: false }, sights, told);
                    }
                    _ => {}
                }
            }
            Move::HandOver(who, to) => {
                self.spend(Fault::HandOver);
                let to = nonce(to, self.processes[to].life);
                let identity = "other".into();
                self.feed(who, Event::HandOver { to, identity }, sights, told);
            }
            Move::Disturb(fault, index) => {
                self.spend(fault);
                self.disturb(fault, index);
            }
            Move::Remove(Fault::Vanish) => {
                self.spend(Fault::Vanish);
                Arc::make_mut(&mut self.lock).vanish();
            }
            Move::Remove(fault) => {
                self.spend(fault);
                Arc::make_mut(&mut self.lock).delete(self.now);
                self.stored();
            }
        }
        self.prune();
    }

    fn process(&mut self, who: usize) -> &mut Process {
        Arc::make_mut(&mut self.processes[who])
    }

    fn pass(&mut self) {
        self.tick += 1;
        self.now += self.config.tick;
        self.flights
            .retain(|flight| flight.left > 0 || !matches!(flight.message, Message::Hint(_)));
        for flight in self.flights.iter_mut().filter(|flight| flight.left > 0) {
            let flight = Arc::make_mut(flight);
            flight.left -= 1;
            flight.held = false;
        }
    }

    fn disturb(&mut self, fault: Fault, index: usize) {
        let delay = self.config.delay;
        let flight = Arc::make_mut(&mut self.flights[index]);
        match fault {
            Fault::Loss => drop(self.flights.swap_remove(index)),
            Fault::Delay => (flight.left, flight.held) = (delay, true),
            Fault::Duplicate => {
                let again = Flight { left: delay, held: true, ..flight.clone() };
                self.flights.push(Arc::new(again));
            }
            Fault::Refusal => {
                if let Message::Request { id, request } = &flight.message {
                    let answer = failed(request, LockErrorKind::Conflict);
                    flight.message = Message::Reply { id: *id, answer };
                } else if let Message::OfSentinel { twin, id, request } = &flight.message {
                    let answer = failed(request, LockErrorKind::Conflict);
                    flight.message = Message::ToSentinel { twin: *twin, id: *id, answer };
                }
            }
            _ => {}
        }
    }

    fn arrive(&mut self, index: usize, sights: &Sights, told: &mut Option<Vec<String>>) {
        let flight = self.flights.swap_remove(index);
        let (who, life) = (flight.who, flight.life);
        match &flight.message {
            Message::Request { id, request } => {
                if let Request::Write(write) = request
                    && write.mark.token.is_none()
                {
                    count(&sights.creates[self.vacancy()]);
                }
                let (answer, stored) = Arc::make_mut(&mut self.lock).apply(self.now, request);
                if let Some(told) = told {
                    told.push(format!("answers {answer:?}"));
                }
                if stored {
                    self.stored();
                }
                if let Request::NotifyStepDown(notice) = request {
                    self.hint(&Hint::SteppedDown(*notice));
                }
                self.send(who, life, Message::Reply { id: *id, answer });
            }
            Message::Reply { id, answer } => {
                self.process(who).request = None;
                let event = Event::Response { id: *id, response: answer.clone() };
                self.feed(who, event, sights, told);
            }
            Message::Hint(hint) => {
                if matches!(hint, Hint::SteppedDown(_)) {
                    count(&sights.notices);
                }
                self.feed(who, Event::Hint(hint.clone()), sights, told);
            }
            Message::OfSentinel { .. } | Message::ToSentinel { .. } => {
                self.sentinel_message(&flight, sights);
            }
            Message::Checkpoint { .. } | Message::OfCheckpoint { .. } => {
                if let Some(event) = self.checkpoint_message(&flight, sights) {
                    self.feed(who, event, sights, told);
                }
            }
        }
    }

    fn vacancy(&self) -> usize {
        match self.lock.last.as_ref().map(|last| &last.record.content) {
            Some(Content::Vacant(Tombstone::Released { .. })) => 1,
            Some(Content::Vacant(Tombstone::Expired)) => 2,
            Some(Content::Vacant(Tombstone::Deleted)) => 3,
            _ => 0,
        }
    }

    fn time_out(&mut self, who: usize, sights: &Sights, told: &mut Option<Vec<String>>) {
        if let Some(event) = self.process(who).times_out() {
            self.feed(who, event, sights, told);
        }
    }

    fn send(&mut self, who: usize, life: u8, message: Message) {
        self.flights.push(Arc::new(Flight { who, life, left: 0, held: false, message }));
    }

    /// Something was stored: delivers hints.
    pub(crate) fn stored(&mut self) {
        let Some(last) = self.lock.last.clone() else { return };
        self.hint(&Hint::Stored { record: last.record, previous: last.previous, age: None });
    }

    fn hint(&mut self, hint: &Hint) {
        if !self.config.hints {
            return;
        }
        for who in 0..self.processes.len() {
            if self.processes[who].is_up() {
                let life = self.processes[who].life;
                self.send(who, life, Message::Hint(hint.clone()));
            }
        }
    }

    /// Hands a machine an event, and does what it answers.
    fn feed(&mut self, who: usize, event: Event, sights: &Sights, told: &mut Option<Vec<String>>) {
        let now = self.now;
        let actions = self.process(who).feed(now, event);
        for action in actions {
            if let Some(told) = told {
                told.push(format!("{action:?}"));
            }
            self.perform(who, action, sights);
        }
        if !self.processes[who].is_consistent() && self.processes[who].is_up() {
            self.breach.get_or_insert(Breach::Order);
        }
    }

    fn perform(&mut self, who: usize, action: Action, sights: &Sights) {
        let now = self.now;
        if let Err(breach) = self.process(who).record_action(now, &action) {
            self.breach.get_or_insert(breach);
        }
        match action {
            Action::Begin { token, .. } => {
                count(&sights.terms);
                if token.0 <= self.last_token {
                    self.breach.get_or_insert(Breach::Token);
                }
                self.last_token = token.0;
                self.claims(who, token);
            }
            Action::End { .. } => self.claims_no_more(who),
            Action::Request { id, request } => {
                let gives_up = matches!(request, Request::Release(_) | Request::NotifyStepDown(_));
                if gives_up && self.processes[who].term != Term::None {
                    self.breach.get_or_insert(Breach::Early);
                }
                self.process(who).record_request(now, id, &request);
                let life = self.processes[who].life;
                self.send(who, life, Message::Request { id, request });
            }
            Action::Finished => {
                if self.processes[who].term != Term::None {
                    self.breach.get_or_insert(Breach::Order);
                }
                self.dies(who);
            }
            _ => {}
        }
    }
}
