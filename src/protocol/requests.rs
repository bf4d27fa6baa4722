//! The request in flight, and the writes whose outcome is not known.

use std::collections::VecDeque;
use std::time::Duration;

use super::cool_down::CoolDownWait;
use super::types::{Event, LockFailure, Response};
use crate::lock::{LockErrorKind, Revision, Token};
use crate::time::clock::Instant;

/// The request in flight.
#[derive(Debug, Clone)]
pub(super) struct InFlightRequest {
    pub id: u64,
    pub sent: Instant,
    pub kind: RequestKind,
    /// What a write is to replace.
    pub over: Option<Revision>,
    /// Until when those candidates might lead whose entries had been seen by then.
    pub seen_leases_end: Instant,
    /// When it times out, whatever the lock promised.
    pub times_out_at: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    Read,
    Write {
        number: u64,
    },
    Release,
    /// A release that must be refused.
    Check,
    Notify,
}

/// A write whose outcome is not known yet.
#[derive(Debug, Clone)]
pub(super) struct WriteInDoubt {
    pub number: u64,
    pub sent: Instant,
    /// For a create: the wait it earns.
    pub wait: Option<Box<CoolDownWait>>,
}

/// A write to be.
pub(super) struct WriteDraft {
    pub expected: Option<Revision>,
    /// `None`: it begins a term.
    pub token: Option<Token>,
    pub since: Instant,
    pub life: Duration,
    pub timeout: Duration,
    /// For a create: its cool-down.
    pub wait: Option<CoolDownWait>,
    /// Whether candidates of higher priority may ask the writer to hand over.
    pub may_be_asked: bool,
}

/// Requests to the lock: at most one at a time.
#[derive(Debug, Clone, Default)]
pub(super) struct Requests {
    /// Boxed, as there is none almost always.
    pub in_flight: Option<Box<InFlightRequest>>,
    pub in_doubt: VecDeque<WriteInDoubt>,
    pub last_request: u64,
    pub last_write: u64,
    /// The last ones that were stored, or may have been: a stale read may show them. Not all up to
    /// one, as a twin whose clock is behind draws numbers in between.
    pub stored: Option<Box<[u64; 8]>>,
    /// The last write that was refused: a server may have stored it all the same.
    pub refused: u64,
    /// The write that began the last term.
    pub create: u64,
}

impl Requests {
    /// How many writes of unknown outcome are remembered.
    const MAX_IN_DOUBT: usize = 64;

    /// Notes a request that is sent now, and returns its id.
    pub fn send(
        &mut self,
        now: Instant,
        kind: RequestKind,
        over: Option<Revision>,
        times_out_at: Instant,
        seen_leases_end: Instant,
    ) -> u64 {
        self.last_request += 1;
        let id = self.last_request;
        let request = InFlightRequest { id, sent: now, kind, over, seen_leases_end, times_out_at };
        self.in_flight = Some(Box::new(request));
        id
    }

    /// Notes a write that is sent now, and returns its number: by the clock, so that a copy of this
    /// process draws other ones.
    pub fn add_write(&mut self, now: Instant, wait: Option<CoolDownWait>) -> u64 {
        let number = now.as_nanos().max(self.last_write.saturating_add(1));
        self.last_write = number;
        if self.in_doubt.len() == Self::MAX_IN_DOUBT {
            self.in_doubt.pop_front();
        }
        self.in_doubt.push_back(WriteInDoubt { number, sent: now, wait: wait.map(Box::new) });
        number
    }

    /// Whether a request is in flight.
    pub fn is_busy(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether a write is in flight.
    pub fn is_writing(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|r| matches!(r.kind, RequestKind::Write { .. }))
    }

    /// When the request in flight times out.
    pub fn times_out_at(&self) -> Option<Instant> {
        self.in_flight.as_ref().map(|request| request.times_out_at)
    }

    /// The request `id`, which is in flight no longer; `None` if it was dropped before.
    pub fn take(&mut self, id: u64) -> Option<InFlightRequest> {
        self.in_flight.take_if(|request| request.id == id).map(|request| *request)
    }

    /// Drops the request in flight.
    pub fn drop_in_flight(&mut self) {
        self.in_flight = None;
    }

    /// The failure of the request in flight if it has timed out, unless `event` is its response. A
    /// lock should respond within the timeout that it is given. One that hangs must not hang
    /// the candidate.
    pub fn timed_out(&self, now: Instant, event: &Event) -> Option<(u64, Response)> {
        let InFlightRequest { id, kind, times_out_at, .. } = self.in_flight.as_deref()?;
        let responded = matches!(event, Event::Response { id: of, .. } if of == id);
        if responded || now < *times_out_at {
            return None;
        }
        let hung = LockFailure::new(
            LockErrorKind::OutcomeUnknown,
            "the lock has not responded within the timeout it was given",
        );
        let response = match kind {
            RequestKind::Read => Response::Read(Err(hung)),
            RequestKind::Write { .. } => Response::Written(Err(hung)),
            RequestKind::Release | RequestKind::Check => Response::Released(Err(hung)),
            RequestKind::Notify => Response::Notified(Err(hung)),
        };
        Some((*id, response))
    }

    /// The write `number`, if its outcome is not known.
    pub fn in_doubt(&self, number: u64) -> Option<&WriteInDoubt> {
        self.in_doubt.iter().find(|write| write.number == number)
    }

    /// Whether this candidate sent the write `number`, as far as it can be in the lock.
    pub fn has_sent(&self, number: u64) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.contains(&number))
            || number == self.refused
            || self.in_doubt(number).is_some()
    }

    /// Whether the outcome of a write other than `number` is not known.
    pub fn has_other_in_doubt(&self, number: u64) -> bool {
        self.in_doubt.iter().any(|write| write.number != number)
    }

    /// Whether the outcome of any write is not known.
    pub fn has_in_doubt(&self) -> bool {
        !self.in_doubt.is_empty()
    }

    /// What the creates of unknown outcome earned.
    pub fn waits_in_doubt(&self) -> impl Iterator<Item = &CoolDownWait> {
        self.in_doubt.iter().filter_map(|write| write.wait.as_deref())
    }

    /// The outcome of the write `number` is known.
    pub fn resolve(&mut self, number: u64, is_stored: bool) {
        if is_stored {
            self.remember(number);
        } else {
            self.refused = number;
        }
        self.in_doubt.retain(|write| write.number != number);
        if self.in_doubt.is_empty() {
            self.in_doubt = VecDeque::new(); // takes no memory between two renewals
        }
    }

    /// The write `number` began a term.
    pub fn begin_term(&mut self, number: u64) {
        self.resolve_all(number);
        self.create = number;
    }

    /// The number of the write that began the last term.
    pub fn create(&self) -> u64 {
        self.create
    }

    /// The write `number` is in the lock: those before it were stored earlier, or never will be.
    pub fn resolve_all(&mut self, number: u64) {
        for write in std::mem::take(&mut self.in_doubt) {
            self.remember(write.number);
        }
        self.remember(number);
    }

    fn remember(&mut self, number: u64) {
        let stored = self.stored.get_or_insert_with(|| Box::new([number; 8]));
        if stored[0] != number {
            stored.rotate_right(1);
            stored[0] = number;
        }
    }
}
