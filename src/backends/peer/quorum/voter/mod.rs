//! A member of a quorum: its vote, and the requests of its own locks.
//!
//! Each election is a register that is written by consensus: CASPaxos (D. Rystsov, "CASPaxos:
//! Replicated State Machines without logs", 2018), but the acceptors keep nothing on disk. As in
//! PaxosLease (M. Trencséni et al., "PaxosLease: Diskless Paxos for Leases", 2012), a restarted
//! acceptor is silent for longer than any lease, and all acceptors forget values older than a
//! lease.

mod proposing;
mod seating;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::acceptor::{Acceptor, MAX_ELECTIONS, longest_round, silence};
use super::proposal::{Operation, Outcome, Proposal, QuorumError, Stage};
use super::seats::Seats;
use super::types::{VoterAction, VoterEvent, VoterSettings};
use super::wire::{Ballot, Body, Envelope, MAX_NAME_LEN, Recipient, Value, hash_of};
use crate::lock::codec::ceil_millis;
use crate::lock::{Hint, Revision};
use crate::time::clock::Instant;

/// How often news is announced again, in case of lost messages.
const MAX_REPEATS: u8 = 2;
/// How many announcements of an election are distinguished: more than come while one is repeated.
const MAX_ANNOUNCEMENTS: usize = 32;
/// The maximum accepted number. No group counts that far: a greater number in a message would leave
/// no room for the next.
const MAX_NUMBER: u64 = 1 << 60;

/// One member of a quorum.
#[derive(Debug)]
pub struct Voter {
    settings: VoterSettings,
    acceptor: Acceptor,
    /// With named voters: which start of each name counts.
    seats: Option<Seats>,
    /// A hash of the voters' names.
    voters: u64,
    random: fastrand::Rng,
    /// The greatest known round.
    round: u64,
    /// The number of its requests.
    last_request: u64,
    proposals: Vec<Proposal>,
    /// When this member knows every election that has a leader: each is announced at its renewals.
    knows_all: Instant,
    /// Requests for the names of all elections, and when to answer them.
    listings: Vec<(u64, Instant)>,
    /// Which incarnations have voted, and when last: more than `size` within a lease mean that the
    /// quorum's size is wrong.
    seen: BTreeMap<u64, Instant>,
    /// The announced values of each election, oldest first: those of a lease before the last one.
    announced: BTreeMap<String, VecDeque<Announcement>>,
    /// When the old ones of them were forgotten the last time.
    forgot: Instant,
    again: Vec<Resend>,
    /// Messages of this member to itself.
    mine: VecDeque<Envelope>,
    actions: VecDeque<VoterAction>,
}

/// A stored value as members announced it first.
#[derive(Debug)]
struct Announcement {
    revision: u64,
    by: (u64, u64),
    at: Instant,
}

#[derive(Debug)]
struct Resend {
    at: Instant,
    left: u8,
    envelope: Envelope,
}

impl Voter {
    /// The democracy event that carries the messages of voters.
    pub const EVENT: &'static str = super::wire::EVENT;

    /// Creates a voter that has not started.
    pub fn new(settings: VoterSettings) -> Self {
        let VoterSettings { id, voters, lease, .. } = &settings;
        let seats = |names: &BTreeSet<String>| Seats::new(Arc::clone(id), names.clone(), *lease);
        Self {
            seats: voters.as_ref().map(seats),
            voters: voters.as_ref().map_or(0, hash_of),
            acceptor: Acceptor::new(
                settings.incarnation,
                Instant::from_origin(Duration::MAX),
                settings.lease,
            ),
            random: fastrand::Rng::with_seed(settings.incarnation),
            settings,
            round: 0,
            last_request: 0,
            proposals: Vec::new(),
            knows_all: Instant::from_origin(Duration::MAX),
            listings: Vec::new(),
            seen: BTreeMap::new(),
            announced: BTreeMap::new(),
            forgot: Instant::ORIGIN,
            again: Vec::new(),
            mine: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    /// Handles an event at `now`, which never goes back.
    pub fn handle(&mut self, now: Instant, event: VoterEvent<'_>) {
        match event {
            VoterEvent::Start => {
                let lease = self.settings.lease;
                let votes_from = now + silence(lease);
                self.acceptor = Acceptor::new(self.settings.incarnation, votes_from, lease);
                self.knows_all = now + lease;
                self.request_seat(now);
            }
            VoterEvent::Wake => {}
            VoterEvent::Received { id, from, message } => {
                if let Ok(envelope) = serde::Deserialize::deserialize(message) {
                    self.receive(now, id, Recipient::Address(from), envelope);
                }
            }
            VoterEvent::Propose { ticket, operation: Operation::Names, timeout, .. } => {
                self.listings.push((ticket, self.knows_all.min(now + timeout)));
            }
            VoterEvent::Propose { ticket, name, operation, timeout } => {
                self.last_request += 1;
                let mut proposal = Proposal {
                    ticket,
                    name,
                    operation,
                    number: self.last_request,
                    until: now + timeout,
                    attempts: 0,
                    abandoned: 0,
                    sent_new: false,
                    refusal: "".into(),
                    replaced: None,
                    ballot: Ballot { round: 0, by: self.settings.incarnation },
                    began: now,
                    resend: now,
                    stage: Stage::Pause,
                };
                self.begin_round(now, &mut proposal);
                self.proposals.push(proposal);
            }
            VoterEvent::NotifyStepDown(name, notice) => {
                self.announce(now, &name, Body::conceded(&notice));
            }
            VoterEvent::Stop => {
                for again in std::mem::take(&mut self.again) {
                    self.push_send(None, &again.envelope);
                }
            }
        }
        let id = Arc::clone(&self.settings.id);
        while let Some(envelope) = self.mine.pop_front() {
            self.receive(now, &id, Recipient::Me, envelope);
        }
        self.run_timers(now);
        while let Some(envelope) = self.mine.pop_front() {
            self.receive(now, &id, Recipient::Me, envelope);
        }
    }

    /// Returns the next action.
    pub fn poll_action(&mut self) -> Option<VoterAction> {
        self.actions.pop_front()
    }

    /// Returns when to send [`VoterEvent::Wake`].
    pub fn next_wake(&self) -> Option<Instant> {
        let proposals = self.proposals.iter().map(|proposal| proposal.resend.min(proposal.until));
        let listings = self.listings.iter().map(|(_, at)| *at);
        let seat = self.seats.as_ref().and_then(Seats::next_wake);
        proposals.chain(listings).chain(self.again.iter().map(|again| again.at)).chain(seat).min()
    }

    /// Returns whether this member votes: not until one and a half leases after its start, or after
    /// it got its seat.
    pub fn votes(&self, now: Instant) -> bool {
        self.is_voter(&self.settings.id) && self.settings.votes && self.acceptor.votes(now)
    }

    /// Returns why this member does not vote; empty: it votes, or is read-only.
    fn silent(&self, now: Instant) -> &'static str {
        if !self.settings.votes || self.votes(now) {
            return "";
        }
        if !self.is_voter(&self.settings.id) {
            return ": this member's id is not among the voters: set id";
        }
        let seats = self.seats.as_ref().map_or("", Seats::problem);
        match seats {
            "" => ": this member started recently and does not vote yet",
            problem => problem,
        }
    }

    fn majority(&self) -> usize {
        usize::try_from(self.settings.size / 2 + 1).unwrap_or(usize::MAX)
    }

    /// How long to wait for a response before sending again.
    fn resend_interval(&self) -> Duration {
        (self.settings.lease / 40).clamp(Duration::from_millis(20), Duration::from_millis(250))
    }

    fn envelope(&self, name: &str, body: Body) -> Envelope {
        Envelope {
            size: self.settings.size,
            lease_ms: ceil_millis(self.settings.lease),
            voters: self.voters,
            incarnation: self.settings.incarnation,
            name: name.to_owned(),
            body,
        }
    }

    fn send(&mut self, to: Recipient, name: &str, body: Body) {
        let envelope = self.envelope(name, body);
        match to {
            Recipient::Me => self.mine.push_back(envelope),
            Recipient::Address(to) => self.push_send(Some(to), &envelope),
        }
    }

    fn broadcast(&mut self, name: &str, body: Body) {
        let envelope = self.envelope(name, body);
        self.push_send(None, &envelope);
        self.mine.push_back(envelope);
    }

    /// Broadcasts news, now and a few times more, in case of lost messages.
    fn announce(&mut self, now: Instant, name: &str, body: Body) {
        let (at, envelope) = (now + self.resend_interval(), self.envelope(name, body.clone()));
        self.again.push(Resend { at, left: MAX_REPEATS, envelope });
        self.broadcast(name, body);
    }

    fn push_send(&mut self, to: Option<SocketAddr>, envelope: &Envelope) {
        if let Ok(message) = serde_json::to_value(envelope) {
            self.actions.push_back(VoterAction::Send { to, message });
        }
    }

    /// Returns whether the member's vote counts.
    fn is_voter(&self, id: &str) -> bool {
        self.settings.voters.as_ref().is_none_or(|voters| voters.contains(id))
    }

    fn receive(&mut self, now: Instant, id: &str, from: Recipient, envelope: Envelope) {
        let Envelope { size, lease_ms, voters, incarnation, name, body } = envelope;
        if name.len() > MAX_NAME_LEN || body.greatest() > MAX_NUMBER || !body.is_bounded() {
            return;
        }
        let same = size == self.settings.size
            && lease_ms == ceil_millis(self.settings.lease)
            && voters == self.voters;
        let me = self.settings.votes && self.is_voter(&self.settings.id);
        let answer = match body {
            Body::Prepare { .. } | Body::Accept { .. } if !me => None,
            Body::Prepare { ballot } | Body::Accept { ballot, .. } if !same => {
                Some(Body::Mismatch { ballot })
            }
            Body::Prepare { ballot } => {
                self.round = self.round.max(ballot.round);
                self.promise(now, &name, ballot)
            }
            Body::Accept { ballot, to, value, seats } => match self.refusal(&seats) {
                Some(known) => Some(Body::Superseded { ballot, known }),
                None => self.acceptor.accept(now, &name, ballot, to, value),
            },
            Body::Enter { .. }
            | Body::Sits { .. }
            | Body::Seconds { .. }
            | Body::Superseded { .. }
            | Body::Conceded { .. }
                if !same =>
            {
                None
            }
            Body::Enter { stamp, attempt, among } => {
                let seats = self.seats.as_mut().filter(|_| me);
                seats.and_then(|seats| seats.on_enter(id, stamp, attempt, &among))
            }
            Body::Sits { .. } | Body::Seconds { .. } => {
                self.on_seat_message(now, id, &body);
                None
            }
            Body::Superseded { ballot, known } => {
                self.merge_stamps(now, &known);
                self.superseded(now, ballot, &name);
                if let Some(seats) = &mut self.seats {
                    seats.refused(now, ballot);
                }
                None
            }
            Body::Stored { .. } | Body::Conceded { .. } => {
                self.forward_hint(now, &name, &body);
                None
            }
            Body::Promise { ballot, .. }
            | Body::Accepted { ballot }
            | Body::Refused { ballot, .. }
            | Body::NotYet { ballot }
            | Body::Mismatch { ballot }
            | Body::Full { ballot } => {
                if ballot.by == self.settings.incarnation {
                    self.on_response(now, id, from, incarnation, &name, ballot, body);
                }
                None
            }
        };
        if let Some(answer) = answer {
            self.send(from, &name, answer);
        }
    }

    /// Sends the news of other members about an election to this member's subscribers as a hint.
    fn forward_hint(&mut self, now: Instant, name: &str, body: &Body) {
        let hint = match body {
            Body::Stored { value, previous } => match self.announced(now, name, value) {
                Some(true) => {
                    let previous = Some(previous.map(Revision));
                    Hint::Stored { record: value.record(), previous, age: None }
                }
                Some(false) => Hint::Recheck,
                None => return,
            },
            body => match body.notice() {
                Some(notice) => Hint::SteppedDown(notice),
                None => return,
            },
        };
        self.actions.push_back(VoterAction::Hint { name: name.into(), hint });
    }

    /// Forgets the elections of which nothing was announced for a lease. Not with each message, as
    /// anybody can announce new names.
    fn forget_announcements(&mut self, now: Instant) {
        let lease = self.settings.lease;
        if now.saturating_since(self.forgot) < lease / 4 {
            return;
        }
        self.forgot = now;
        let last = |known: &VecDeque<Announcement>| known.back().map(|last| last.at);
        self.announced
            .retain(|_, known| last(known).is_some_and(|at| now.saturating_since(at) < lease));
    }

    /// Returns whether an announced value is the newest; `None`: it is repeated. One that seems to
    /// be older is a reason to read: the newer one may be forged, or of before the voters started
    /// anew.
    fn announced(&mut self, now: Instant, name: &str, value: &Value) -> Option<bool> {
        if self.announced.len() >= MAX_ELECTIONS && !self.announced.contains_key(name) {
            self.forget_announcements(now);
            if self.announced.len() >= MAX_ELECTIONS {
                return Some(false);
            }
        }
        let known = self.announced.entry(name.to_owned()).or_default();
        known.retain(|known| now.saturating_since(known.at) < self.settings.lease);
        if known.iter().any(|known| (known.revision, known.by) == (value.revision, value.by)) {
            return None;
        }
        let newest = known.iter().all(|known| known.revision < value.revision);
        if known.len() >= MAX_ANNOUNCEMENTS {
            known.pop_front();
        }
        known.push_back(Announcement { revision: value.revision, by: value.by, at: now });
        Some(newest)
    }

    fn run_timers(&mut self, now: Instant) {
        for mut again in std::mem::take(&mut self.again) {
            if again.at <= now {
                self.push_send(None, &again.envelope);
                again.left = again.left.saturating_sub(1);
                again.at = now + self.resend_interval() * 4;
            }
            if again.left > 0 {
                self.again.push(again);
            }
        }
        self.run_seat_timers(now);
        for (ticket, at) in std::mem::take(&mut self.listings) {
            if at <= now {
                self.answer(ticket, Ok(Outcome::Names(self.names(now))));
            } else {
                self.listings.push((ticket, at));
            }
        }
        for mut proposal in std::mem::take(&mut self.proposals) {
            if proposal.until <= now {
                let answer = Err(proposal.timeout_error(self.majority(), self.silent(now)));
                self.answer(proposal.ticket, answer);
                continue;
            }
            if proposal.resend <= now {
                match &proposal.stage {
                    Stage::Pause => self.begin_round(now, &mut proposal),
                    Stage::Prepare(_)
                        if proposal.began + longest_round(self.settings.lease) < now =>
                    {
                        self.begin_round(now, &mut proposal);
                    }
                    Stage::Prepare(_) => {
                        proposal.resend = now + self.resend_interval();
                        self.broadcast(&proposal.name, Body::Prepare { ballot: proposal.ballot });
                    }
                    Stage::Accept(accepting) if accepting.since + accepting.timeout <= now => {
                        proposal.abandoned = proposal.abandoned.saturating_add(1);
                        self.begin_round(now, &mut proposal);
                    }
                    Stage::Accept(_) => self.send_accepts(now, &mut proposal),
                }
            }
            self.proposals.push(proposal);
        }
    }

    /// Returns the elections that were announced recently.
    fn names(&self, now: Instant) -> Vec<String> {
        let lately = |at: Instant| now.saturating_since(at) < self.settings.lease * 2;
        let last =
            |known: &VecDeque<Announcement>| known.back().is_some_and(|last| lately(last.at));
        let announced = self.announced.iter().filter(|(_, known)| last(known));
        announced.map(|(name, _)| name.clone()).collect()
    }

    fn answer(&mut self, ticket: u64, answer: Result<Outcome, QuorumError>) {
        self.actions.push_back(VoterAction::Answer { ticket, answer });
    }
}
