//! A quorum of peers in the place of a server: a voter in each process, and what they send each
//! other.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{Content, Reading, Release, Request};
use incumbent::peer::quorum::{
    Operation, Outcome, QuorumError, Voter, VoterAction, VoterEvent, VoterSettings,
};
use incumbent::protocol::Response;
use serde_json::Value;

use crate::server::{failed, failure};
use crate::world::{Inner, SimEvent, World};

const NAME: &str = "my_app";
/// The ticket of an operator's read, and of the eviction that follows.
const EVICTION: u64 = u64::MAX;

/// A quorum and its network.
#[derive(Debug, Clone, Copy)]
pub struct QuorumSetup {
    /// How many voters it has.
    pub size: usize,
    /// Whether voters have names. Then less than half of the seats have two processes, of which the
    /// one that started first was replaced and still runs.
    pub named: bool,
    /// How many of a hundred messages are lost.
    pub lost: u8,
    /// The least time that a message takes: a write takes four, and a candidate gives it 250 ms.
    pub late_ms: u8,
}

impl QuorumSetup {
    pub fn processes(self) -> usize {
        if self.named { self.size + (self.size - 1) / 2 } else { self.size }
    }
}

/// The voter of a process.
#[derive(Debug)]
pub(super) struct Host {
    voter: Voter,
    id: String,
    /// The requests of its candidate that it has not answered.
    requests: HashMap<u64, Request>,
    wake: u64,
}

/// A message of a voter.
#[derive(Debug, Clone)]
pub(super) struct Datagram {
    from: usize,
    to: usize,
    /// What its sender called itself.
    id: String,
    message: Arc<Value>,
}

fn address(process: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], process as u16))
}

impl World {
    /// A process starts, and its voter with it, if there is a quorum.
    pub(super) fn voter_starts(&mut self, at: usize) {
        let Some(QuorumSetup { size, named, .. }) = self.scenario.quorum else { return };
        let name = |seat: usize| format!("m{seat}");
        let keeps = named || self.time.random.bool();
        let process = &self.processes[at];
        let mut id = name(at % size);
        if !keeps {
            id = format!("{id}-{}", process.life);
        }
        let voter = Voter::new(VoterSettings {
            id: id.as_str().into(),
            size: size as u32,
            voters: named.then(|| (0..size).map(name).collect()),
            votes: true,
            lease: self.scenario.bucket_ttl,
            incarnation: self.time.random.u64(..),
            origin_unix_us: process.origin_unix_ms() * 1000,
        });
        let host = Host { voter, id, requests: HashMap::new(), wake: 0 };
        self.processes[at].voter = Some(Box::new(host));
        self.tell_voter(at, VoterEvent::Start);
    }

    /// Hands a voter an event, and does what it answers.
    fn tell_voter(&mut self, at: usize, event: VoterEvent<'_>) {
        let now = self.local(at);
        let Some(host) = &mut self.processes[at].voter else { return };
        host.voter.handle(now, event);
        while let Some(action) =
            self.processes[at].voter.as_mut().and_then(|it| it.voter.poll_action())
        {
            match action {
                VoterAction::Send { to, message } => {
                    let message = Arc::new(message);
                    let others = (0..self.processes.len()).filter(|other| *other != at);
                    for other in others.filter(|it| to.is_none_or(|to| to == address(*it))) {
                        self.send_datagram(at, other, &message);
                    }
                }
                VoterAction::Answer { ticket, answer } => self.voter_answers(at, ticket, answer),
                VoterAction::Hint { hint, .. } => self.later(at, Duration::ZERO, Inner::Hint(hint)),
            }
        }
        let Some(host) = &mut self.processes[at].voter else { return };
        host.wake += 1;
        let (wake, next) = (host.wake, host.voter.next_wake());
        if let Some(next) = next {
            let after = self.until_timer(at, next).max(Duration::from_micros(10));
            self.later(at, after, Inner::VoterWakes { wake });
        }
    }

    pub(super) fn voter_wakes(&mut self, at: usize, wake: u64) {
        if self.processes[at].voter.as_ref().is_some_and(|host| host.wake == wake) {
            self.tell_voter(at, VoterEvent::Wake);
        }
    }

    fn send_datagram(&mut self, from: usize, to: usize, message: &Arc<Value>) {
        let (Some(host), Some(setup)) = (&self.processes[from].voter, self.scenario.quorum) else {
            return;
        };
        let now = self.time.now;
        // An outage is one of the network between them.
        if now < self.processes[from].faults.cut_out_until || !self.servers[0].is_up(now) {
            return;
        }
        let datagram = Datagram { from, to, id: host.id.clone(), message: Arc::clone(message) };
        let least = Duration::from_millis(u64::from(setup.late_ms));
        for after in self.time.passages(f64::from(setup.lost) / 100.0) {
            self.time.after(least + after, SimEvent::Datagram(datagram.clone()));
        }
    }

    /// It may have been sent to an earlier process.
    pub(super) fn voter_receives(&mut self, datagram: Datagram) {
        let (now, to) = (self.time.now, datagram.to);
        let process = &self.processes[to];
        if process.faults.is_paused(now) {
            return self.time.at(process.faults.paused_until, SimEvent::Datagram(datagram));
        }
        // A member takes what has its own identifier for an echo.
        let heeds = process.voter.as_ref().is_some_and(|host| host.id != datagram.id);
        if heeds && now >= process.faults.cut_in_until {
            let Datagram { from, id, message, .. } = &datagram;
            self.tell_voter(to, VoterEvent::Received { id, from: address(*from), message });
        }
    }

    /// A candidate sends its voter a request.
    pub(super) fn ask_voter(&mut self, who: usize, id: u64, request: Request, timeout: Duration) {
        let operation = match request.clone() {
            Request::Read { .. } => Operation::Read,
            Request::Write(write) => Operation::Write(write),
            Request::Release(release) => Operation::Release(release),
            Request::NotifyStepDown(notice) => {
                self.tell_voter(who, VoterEvent::NotifyStepDown(NAME.into(), notice));
                let answer = Response::Notified(Ok(()));
                let told = Inner::Response { id, answer, from_server: false };
                return self.later(who, Duration::ZERO, told);
            }
        };
        if let Some(host) = &mut self.processes[who].voter {
            host.requests.insert(id, request);
        }
        self.propose(who, id, operation, timeout);
    }

    fn propose(&mut self, at: usize, ticket: u64, operation: Operation, timeout: Duration) {
        let name = NAME.into();
        self.tell_voter(at, VoterEvent::Propose { ticket, name, operation, timeout });
    }

    fn voter_answers(&mut self, who: usize, ticket: u64, answer: Result<Outcome, QuorumError>) {
        if ticket == EVICTION {
            let lease = self.scenario.bucket_ttl;
            if let Ok(Outcome::Read(Reading::Found(record))) = &answer
                && let Some(eviction) = Release::evicting(record, lease, true, lease)
            {
                self.propose(who, EVICTION, Operation::Release(eviction), lease);
            }
            return;
        }
        let host = self.processes[who].voter.as_mut();
        let Some(request) = host.and_then(|host| host.requests.remove(&ticket)) else { return };
        let candidate = &mut self.candidates[who];
        let answer = match (answer, &request) {
            (Ok(Outcome::Written(revision)), Request::Write(write)) => {
                candidate.applied(write.mark.write.number);
                Response::Written(Ok(revision))
            }
            (Ok(Outcome::Written(_)), Request::Release(_)) => Response::Released(Ok(())),
            (Ok(Outcome::Read(reading)), Request::Read { .. }) => {
                if let Reading::Found(record) = &reading
                    && let Content::Held(entry) = &record.content
                    && let Some(mark) = entry.mark.as_ref()
                    && mark.write.nonce == candidate.nonce()
                {
                    candidate.applied(mark.write.number);
                }
                Response::Read(Ok(reading))
            }
            (Ok(other), request) => unreachable!("{other:?} to {request:?}"),
            (Err(error), request) => failed(request, failure(error.kind, &error.message)),
        };
        self.later(who, Duration::ZERO, Inner::Response { id: ticket, answer, from_server: false });
    }

    /// An operator evicts the leader, by a voter that runs.
    pub(super) fn quorum_evicts(&mut self) {
        let at = self.time.random.usize(..self.processes.len());
        if !self.processes[at].faults.is_paused(self.time.now) {
            self.propose(at, EVICTION, Operation::Read, self.scenario.bucket_ttl);
        }
    }
}
