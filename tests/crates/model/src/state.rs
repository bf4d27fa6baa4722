//! A state of the model: the lock, the candidates and what is under way between them.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use incumbent::lock::{Hint, Request, Token};
use incumbent::protocol::{CheckpointRequest, CheckpointResponse, Response};
use incumbent_sim::Shelf;

use crate::checkpoint::CheckpointTerm;
use crate::config::{Config, Fault};
use crate::key::{Key, nonce};
use crate::lock::{Entrance, Time};
use crate::process::{Breach, Process, Term};
use crate::sentinel::Run;

/// What is under way.
#[derive(Debug, Clone)]
pub enum Message {
    /// To the lock.
    Request { id: u64, request: Request },
    /// From the lock.
    Reply { id: u64, answer: Response },
    /// From the lock.
    Hint(Hint),
    /// From a sentinel to the lock.
    OfSentinel { twin: u8, id: u64, request: Request },
    /// From the lock to a sentinel.
    ToSentinel { twin: u8, id: u64, answer: Response },
    /// From a term to the checkpoint of the lock.
    Checkpoint { token: Token, id: u64, request: CheckpointRequest },
    /// From there to the term.
    OfCheckpoint { token: Token, id: u64, response: CheckpointResponse },
}

/// A message from or to a process.
#[derive(Debug, Clone)]
pub struct Flight {
    pub who: usize,
    pub life: u8,
    /// For how many more ticks it may be under way; 0: it arrives in this one.
    pub left: u8,
    /// It was delayed in this very tick.
    pub held: bool,
    pub message: Message,
}

/// A state.
#[derive(Debug, Clone)]
pub struct State {
    /// Ticks since the beginning. No part of the key.
    pub tick: u32,
    pub now: Time,
    pub config: Arc<Config>,
    pub lock: Arc<Entrance>,
    pub processes: Vec<Arc<Process>>,
    pub flights: Vec<Arc<Flight>>,
    /// Releases that sentinels have begun.
    pub runs: Vec<Arc<Run>>,
    pub shelf: Arc<Shelf>,
    /// What terms do with the checkpoint.
    pub keepers: Vec<Arc<CheckpointTerm>>,
    /// Faults that may still come.
    pub faults: u8,
    /// Which have come, a bit each, where each may come once.
    pub spent: u16,
    pub last_token: u64,
    pub breach: Option<Breach>,
}

impl State {
    pub fn first(config: &Arc<Config>) -> Self {
        let lock = Entrance::new(config);
        Self {
            tick: 0,
            now: Time::ZERO,
            lock: Arc::new(lock),
            processes: (0..config.leases.len()).map(|who| Arc::new(Process::down(who))).collect(),
            flights: Vec::new(),
            runs: Vec::new(),
            shelf: Arc::default(),
            keepers: Vec::new(),
            faults: config.faults,
            spent: 0,
            last_token: 0,
            breach: None,
            config: Arc::clone(config),
        }
    }

    /// How many lead.
    pub fn leaders(&self) -> usize {
        self.processes.iter().filter(|process| process.leads(self.now)).count()
    }

    /// Whether this fault may still come.
    pub fn may(&self, fault: Fault) -> bool {
        self.faults > 0 && self.spent & 1 << fault as u16 == 0 && self.config.kinds.contains(&fault)
    }

    /// A fault comes.
    pub fn spend(&mut self, fault: Fault) {
        self.faults -= 1;
        self.spent |= u16::from(self.config.once) << fault as u16;
    }

    /// Whether time may pass: whatever must happen in this tick has.
    pub fn is_settled(&self) -> bool {
        let late = self.config.tick * u32::from(self.config.late);
        let overdue = |at: Option<Time>| at.is_some_and(|at| at + late <= self.now);
        let waits = self.processes.iter().any(|process| {
            let stopping = match process.term {
                Term::Stopping { by, .. } => Some(by),
                _ => None,
            };
            process.acts() && (overdue(process.next_wake()) || overdue(stopping))
        });
        let arrives = self.flights.iter().any(|flight| {
            let hint = matches!(flight.message, Message::Hint(_)); // which may get lost
            let of_process =
                matches!(flight.message, Message::Reply { .. } | Message::OfCheckpoint { .. });
            flight.left == 0 && !hint && (!of_process || self.processes[flight.who].acts())
        });
        !waits && !arrives && !overdue(self.lock.expires())
    }

    /// Drops what can have no effect: responses that are not awaited, hints to processes that are
    /// gone.
    pub fn prune(&mut self) {
        self.prune_keepers();
        let mut flights = std::mem::take(&mut self.flights);
        flights.retain(|flight| {
            let process = &self.processes[flight.who];
            let awaited = process.request.map(|(id, _)| id);
            match &flight.message {
                Message::Request { .. } | Message::OfSentinel { .. } => true,
                Message::ToSentinel { twin, id, .. } => self.sentinel_awaits(flight, *twin, *id),
                Message::Reply { id, .. } => process.life == flight.life && awaited == Some(*id),
                Message::Hint(_) => process.life == flight.life && process.is_up(),
                Message::Checkpoint { request: CheckpointRequest::Store { .. }, .. } => true,
                Message::Checkpoint { .. } | Message::OfCheckpoint { .. } => {
                    self.keepers.iter().any(|keeping| keeping.awaits(flight))
                }
            }
        });
        self.flights = flights;
    }

    /// Identifies the state: equal for all that differ in names and dates only.
    pub fn key(&self) -> u64 {
        let mut key = Key::default();
        self.lock.sketch(self.now, &mut key);
        key.shelf(&self.shelf);
        key.plain(u64::from(self.faults) << 16 | u64::from(self.spent));
        key.plain(self.breach.map_or(9, |breach| breach as u64));
        key.token(self.last_token);
        if let Some(horizon) = self.config.horizon {
            key.plain(u64::from(horizon - self.tick));
        }
        key.part();
        for process in &self.processes {
            process.sketch(self.now, &mut key);
            key.part();
        }
        for flight in &self.flights {
            let Flight { who, life, left, held, message } = &**flight;
            let writer = nonce(*who, *life);
            key.campaign(writer);
            key.plain(u64::from(*left) << 1 | u64::from(*held));
            match message {
                Message::Request { id, request } => {
                    let awaited = self.processes[*who].request.map(|(id, _)| id);
                    key.plain(u64::from(awaited == Some(*id)));
                    key.request(request);
                }
                Message::Reply { id: _, answer } => {
                    key.plain(2);
                    key.answer(answer);
                }
                Message::Hint(hint) => {
                    key.plain(3);
                    key.hint(hint);
                }
                Message::OfSentinel { twin, id, request } => {
                    key.plain(40 + u64::from(*twin));
                    key.plain(u64::from(self.sentinel_awaits(flight, *twin, *id)));
                    key.request(request);
                }
                Message::ToSentinel { twin, id: _, answer } => {
                    key.plain(45 + u64::from(*twin));
                    key.answer(answer);
                }
                Message::Checkpoint { token: _, id: _, request } => {
                    let awaited = self.keepers.iter().any(|keeping| keeping.awaits(flight));
                    key.plain(80 + u64::from(awaited));
                    key.checkpoint_request(request);
                }
                Message::OfCheckpoint { token: _, id: _, response } => {
                    key.plain(82);
                    key.checkpoint_response(response);
                }
            }
            key.part();
        }
        for run in &self.runs {
            run.sketch(self.now, &mut key);
            key.part();
        }
        for keeping in &self.keepers {
            keeping.sketch(&mut key);
            key.part();
        }
        for process in self.processes.iter().filter(|it| self.config.sentinels > 0 && it.is_up()) {
            process.sketch_registration(&mut key);
            key.part();
        }
        key.finish(&self.config.orders)
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.key());
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
