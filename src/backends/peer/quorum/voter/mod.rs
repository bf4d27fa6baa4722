//! One member of a quorum: its vote, and the requests of its own locks.
//!
//! Each election is a register that is written by consensus: CASPaxos (D. Rystsov, "CASPaxos: Replicated State Machines
//! without logs", 2018), whose acceptors keep nothing on disk. That is made good as in PaxosLease (M. Trencséni et al.,
//! "PaxosLease: Diskless Paxos for Leases", 2012): whoever begins keeps silent for longer than any lease, and what is older than a
//! lease is forgotten by all.

mod proposing;
mod seating;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::acceptor::{Acceptor, longest_round, silence};
use super::proposal::{Operation, Outcome, Proposal, QuorumError, Stage};
use super::seats::Seats;
use super::types::{VoterAction, VoterEvent, VoterSettings};
use super::wire::{Ballot, Body, Envelope, MAX_NAME_LEN, Recipient, hash_of};
use crate::lock::codec::ceil_millis;
use crate::lock::{Hint, Revision};
use crate::time::clock::Instant;

/// How often what was stored is told again, for those who missed it.
const TOLD_AGAIN: u8 = 2;
/// No group counts so far: whoever says so would leave no greater one.
const GREATEST: u64 = 1 << 60;
/// The most elections of which the last revision that was told is remembered.
const MAX_HEARD: usize = 1024;

/// One member of a quorum.
#[derive(Debug)]
pub struct Voter {
    settings: VoterSettings,
    acceptor: Acceptor,
    /// Where voters have names: which start of each counts.
    seats: Option<Seats>,
    /// A hash of those names.
    voters: u64,
    random: fastrand::Rng,
    /// The greatest round that was heard of.
    round: u64,
    /// Its requests, counted.
    asked: u64,
    proposals: Vec<Proposal>,
    /// When this member has heard of every election that somebody leads: each is told of at its renewals.
    knows_all: Instant,
    /// Who wants to know of all elections, and until when they wait for that.
    listings: Vec<(u64, Instant)>,
    /// Who has voted, and when last: more than there can be within a lease means that the quorum's size is wrong.
    seen: BTreeMap<u64, Instant>,
    /// The last revision that was told of each election, and when.
    heard: BTreeMap<String, (u64, Instant)>,
    again: Vec<Resend>,
    /// What this member says to itself.
    mine: VecDeque<Envelope>,
    actions: VecDeque<VoterAction>,
}

#[derive(Debug)]
struct Resend {
    at: Instant,
    left: u8,
    envelope: Envelope,
}

impl Voter {
    /// The event of democracy's under which voters speak.
    pub const EVENT: &'static str = super::wire::EVENT;

    /// A voter that has not begun.
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
            asked: 0,
            proposals: Vec::new(),
            knows_all: Instant::from_origin(Duration::MAX),
            listings: Vec::new(),
            seen: BTreeMap::new(),
            heard: BTreeMap::new(),
            again: Vec::new(),
            mine: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    /// Takes in what has happened at `now`, which never goes back.
    pub fn handle(&mut self, now: Instant, event: VoterEvent<'_>) {
        match event {
            VoterEvent::Start => {
                let lease = self.settings.lease;
                let votes_from = now + silence(lease);
                self.acceptor = Acceptor::new(self.settings.incarnation, votes_from, lease);
                self.knows_all = now + lease;
                self.ask_for_seat(now);
            }
            VoterEvent::Wake => {}
            VoterEvent::Received { id, from, said } => {
                if let Ok(envelope) = serde::Deserialize::deserialize(said) {
                    self.hear(now, id, Recipient::Address(from), envelope);
                }
            }
            VoterEvent::Propose { ticket, operation: Operation::Names, timeout, .. } => {
                self.listings.push((ticket, self.knows_all.min(now + timeout)));
            }
            VoterEvent::Propose { ticket, name, operation, timeout } => {
                self.asked += 1;
                let mut proposal = Proposal {
                    ticket,
                    name,
                    operation,
                    number: self.asked,
                    until: now + timeout,
                    attempts: 0,
                    given_up: 0,
                    sent_new: false,
                    mismatch: false,
                    replaced: None,
                    ballot: Ballot { round: 0, by: self.settings.incarnation },
                    began: now,
                    resend: now,
                    stage: Stage::Pause,
                };
                self.begin_round(now, &mut proposal);
                self.proposals.push(proposal);
            }
            VoterEvent::Concede(name, notice) => {
                self.say_all(&name, Body::conceded(&notice));
            }
        }
        let id = Arc::clone(&self.settings.id);
        while let Some(envelope) = self.mine.pop_front() {
            self.hear(now, &id, Recipient::Me, envelope);
        }
        self.keep_time(now);
        while let Some(envelope) = self.mine.pop_front() {
            self.hear(now, &id, Recipient::Me, envelope);
        }
    }

    /// What to do next.
    pub fn poll_action(&mut self) -> Option<VoterAction> {
        self.actions.pop_front()
    }

    /// When to wake this up.
    pub fn next_wake(&self) -> Option<Instant> {
        let proposals = self.proposals.iter().map(|proposal| proposal.resend.min(proposal.until));
        let listings = self.listings.iter().map(|(_, at)| *at);
        let seat = self.seats.as_ref().and_then(Seats::next_wake);
        proposals.chain(listings).chain(self.again.iter().map(|again| again.at)).chain(seat).min()
    }

    /// Whether this member votes: not before it has been there for one and a half leases, or has had its seat for so long.
    pub fn votes(&self, now: Instant) -> bool {
        self.is_voter(&self.settings.id) && self.settings.votes && self.acceptor.votes(now)
    }

    /// Why it does not; empty: it does, or never will.
    fn silent(&self, now: Instant) -> &'static str {
        if !self.settings.votes || self.votes(now) {
            return "";
        }
        let seats = self.seats.as_ref().map_or("", Seats::problem);
        match seats {
            "" => ": this member began a short time ago, and does not vote yet",
            problem => problem,
        }
    }

    fn majority(&self) -> usize {
        usize::try_from(self.settings.size / 2 + 1).unwrap_or(usize::MAX)
    }

    /// How long to wait for an answer before asking again.
    fn patience(&self) -> Duration {
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

    fn say(&mut self, to: Recipient, name: &str, body: Body) {
        let envelope = self.envelope(name, body);
        match to {
            Recipient::Me => self.mine.push_back(envelope),
            Recipient::Address(to) => self.put(Some(to), &envelope),
        }
    }

    fn say_all(&mut self, name: &str, body: Body) {
        let envelope = self.envelope(name, body);
        self.put(None, &envelope);
        self.mine.push_back(envelope);
    }

    fn put(&mut self, to: Option<SocketAddr>, envelope: &Envelope) {
        if let Ok(said) = serde_json::to_value(envelope) {
            self.actions.push_back(VoterAction::Send { to, said });
        }
    }

    /// Whether the member's vote counts.
    fn is_voter(&self, id: &str) -> bool {
        self.settings.voters.as_ref().is_none_or(|voters| voters.contains(id))
    }

    fn hear(&mut self, now: Instant, id: &str, from: Recipient, envelope: Envelope) {
        let Envelope { size, lease_ms, voters, incarnation, name, body } = envelope;
        if name.len() > MAX_NAME_LEN || body.greatest() > GREATEST {
            return;
        }
        let same = size == self.settings.size
            && lease_ms == ceil_millis(self.settings.lease)
            && voters == self.voters;
        let me = self.settings.votes && self.is_voter(&self.settings.id);
        let answer = match body {
            Body::Prepare { ballot } | Body::Accept { ballot, .. } if !same => {
                Some(Body::Mismatch { ballot })
            }
            Body::Prepare { .. } | Body::Accept { .. } if !me => None,
            Body::Prepare { ballot } => {
                self.round = self.round.max(ballot.round);
                self.promise(now, &name, ballot)
            }
            Body::Accept { ballot, to, value, seats } => match self.refuses(&seats) {
                Some(known) => Some(Body::Superseded { ballot, known }),
                None => self.acceptor.accept(now, &name, ballot, to, value),
            },
            Body::Enter { .. }
            | Body::Sits { .. }
            | Body::Seconds { .. }
            | Body::Superseded { .. }
                if !same =>
            {
                None
            }
            Body::Enter { stamp, attempt, among } => {
                let seats = self.seats.as_mut().filter(|_| me);
                seats.and_then(|seats| seats.asked(id, stamp, attempt, &among))
            }
            Body::Sits { .. } | Body::Seconds { .. } => {
                self.hear_of_seat(now, id, &body);
                None
            }
            Body::Superseded { ballot, known } => {
                self.learn_of_seats(now, &known);
                self.superseded(now, ballot, &name);
                if let Some(seats) = &mut self.seats {
                    seats.refused(now, ballot);
                }
                None
            }
            Body::Stored { .. } | Body::Conceded { .. } => {
                self.pass_on(now, &name, &body);
                None
            }
            Body::Promise { ballot, .. }
            | Body::Accepted { ballot }
            | Body::Refused { ballot, .. }
            | Body::NotYet { ballot }
            | Body::Mismatch { ballot } => {
                if ballot.by == self.settings.incarnation {
                    self.answered(now, id, from, incarnation, &name, ballot, body);
                }
                None
            }
        };
        if let Some(answer) = answer {
            self.say(from, &name, answer);
        }
    }

    /// Tells those who stand here what others have said of the election.
    fn pass_on(&mut self, now: Instant, name: &str, body: &Body) {
        let hint = match body {
            Body::Stored { value, previous } => {
                let known = self.heard.get(name).map_or(0, |(revision, _)| *revision);
                if value.revision <= known {
                    return;
                }
                if self.heard.len() >= MAX_HEARD && known == 0 {
                    self.heard.pop_first();
                }
                self.heard.insert(name.to_owned(), (value.revision, now));
                let previous = Some(previous.map(Revision));
                Hint::Stored { record: value.record(), previous, age: None }
            }
            body => match body.notice() {
                Some(notice) => Hint::SteppedDown(notice),
                None => return,
            },
        };
        self.actions.push_back(VoterAction::Hint { name: name.into(), hint });
    }

    fn keep_time(&mut self, now: Instant) {
        for mut again in std::mem::take(&mut self.again) {
            if again.at <= now {
                self.put(None, &again.envelope);
                again.left = again.left.saturating_sub(1);
                again.at = now + self.patience() * 4;
            }
            if again.left > 0 {
                self.again.push(again);
            }
        }
        self.keep_seat(now);
        for (ticket, at) in std::mem::take(&mut self.listings) {
            if at <= now {
                self.answer(ticket, Ok(Outcome::Names(self.names(now))));
            } else {
                self.listings.push((ticket, at));
            }
        }
        for mut proposal in std::mem::take(&mut self.proposals) {
            if proposal.until <= now {
                let answer = Err(proposal.gave_up(self.majority(), self.silent(now)));
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
                        proposal.resend = now + self.patience();
                        self.say_all(&proposal.name, Body::Prepare { ballot: proposal.ballot });
                    }
                    Stage::Accept(accepting) if accepting.since + accepting.patience <= now => {
                        proposal.given_up = proposal.given_up.saturating_add(1);
                        self.begin_round(now, &mut proposal);
                    }
                    Stage::Accept(_) => self.send_accepts(now, &mut proposal),
                }
            }
            self.proposals.push(proposal);
        }
    }

    /// The elections of which it has heard lately.
    fn names(&self, now: Instant) -> Vec<String> {
        let lately = |told: Instant| now.saturating_since(told) < self.settings.lease * 2;
        let heard = self.heard.iter().filter(|(_, (_, told))| lately(*told));
        heard.map(|(name, _)| name.clone()).collect()
    }

    fn answer(&mut self, ticket: u64, answer: Result<Outcome, QuorumError>) {
        self.actions.push_back(VoterAction::Answer { ticket, answer });
    }
}
