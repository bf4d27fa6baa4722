//! The rounds that decide a member's own requests: promises of a majority, then its acceptance.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Voter;
use crate::backends::peer::quorum::acceptor::{MAX_ELECTIONS, longest_round};
use crate::backends::peer::quorum::proposal::{
    Accepting, Decision, Outcome, Promise, Proposal, QuorumError, Stage,
};
use crate::backends::peer::quorum::wire::{Ballot, Body, Recipient, Stamps};
use crate::lock::LockErrorKind;
use crate::time::clock::Instant;

/// The maximum number of doublings of the wait for a majority to accept.
const MAX_DOUBLINGS: u32 = 8;

impl Voter {
    #[allow(clippy::too_many_arguments, reason = "the parts of one message")]
    pub(super) fn on_response(
        &mut self,
        now: Instant,
        id: &str,
        from: Recipient,
        incarnation: u64,
        name: &str,
        ballot: Ballot,
        body: Body,
    ) {
        let at = self.proposals.iter().position(|p| p.ballot == ballot && *p.name == *name);
        let Some(at) = at.filter(|_| self.is_voter(id)) else { return };
        let mut proposal = self.proposals.swap_remove(at);
        let ended = match body {
            Body::Promise { accepted, floor, seat, .. } => {
                if !self.counts(now, id, from, name, seat) {
                    self.proposals.push(proposal);
                    return;
                }
                self.voted(now, incarnation);
                proposal.promised(id, Promise { from, incarnation, accepted, floor, seat });
                self.decide(now, &mut proposal)
            }
            Body::Accepted { .. } => {
                self.voted(now, incarnation);
                proposal.accepted(id, incarnation);
                self.finish(now, &mut proposal)
            }
            Body::Refused { promised, .. } => {
                self.round = self.round.max(promised.round);
                // The first proposer may finish. Two proposers that collide repeatedly back off
                // randomly, by at least round trips.
                let took = now.saturating_since(proposal.began);
                let took = took.clamp(self.resend_interval(), longest_round(self.settings.lease));
                let most = took * (proposal.attempts.min(8) + 1) / 2;
                let pause =
                    self.random.u64(1..=u64::try_from(most.as_micros()).unwrap_or(1).max(1));
                proposal.stage = Stage::Pause;
                proposal.resend = now + Duration::from_micros(pause);
                None
            }
            Body::Mismatch { .. } => {
                let refusal = ": other members have another quorum size, lease or list of voters";
                proposal.refusal = refusal.into();
                None
            }
            Body::Full { .. } => {
                let refusal = format!(
                    ": a voter remembers {MAX_ELECTIONS} elections and no more: end some, which it forgets after two leases, or use another group"
                );
                proposal.refusal = refusal.into();
                None
            }
            _ => None,
        };
        match ended {
            Some(answer) => self.answer(proposal.ticket, answer),
            None => self.proposals.push(proposal),
        }
    }

    fn voted(&mut self, now: Instant, incarnation: u64) {
        let lease = self.settings.lease;
        self.seen.retain(|_, last| now.saturating_since(*last) < lease);
        if self.seen.len() <= 2 * self.majority() {
            self.seen.insert(incarnation, now);
        }
    }

    fn is_crowded(&self) -> bool {
        self.seats.is_none()
            && self.seen.len() > usize::try_from(self.settings.size).unwrap_or(usize::MAX)
    }

    pub(super) fn begin_round(&mut self, now: Instant, proposal: &mut Proposal) {
        self.round = self.round.saturating_add(1);
        proposal.attempts = proposal.attempts.saturating_add(1);
        proposal.ballot.round = self.round;
        proposal.began = now;
        proposal.stage = Stage::Prepare(BTreeMap::new());
        proposal.resend = now + self.resend_interval();
        self.broadcast(&proposal.name, Body::Prepare { ballot: proposal.ballot });
    }

    /// Decides the value once a majority has promised.
    fn decide(
        &mut self,
        now: Instant,
        proposal: &mut Proposal,
    ) -> Option<Result<Outcome, QuorumError>> {
        let Stage::Prepare(promises) = &mut proposal.stage else { return None };
        promises.retain(|id, promise| self.is_latest(id, promise.seat));
        if promises.len() < self.majority() {
            return None;
        }
        if self.is_crowded() {
            let message = format!(
                "more than {} members vote within a lease: set the quorum's size to the maximum number of members that can run at once",
                self.settings.size
            );
            let kind = proposal.error_kind(LockErrorKind::Misconfigured);
            return Some(Err(QuorumError { kind, message }));
        }
        if proposal.began + longest_round(self.settings.lease) < now {
            self.begin_round(now, proposal);
            return None;
        }
        let latest = promises.values().filter_map(|promise| promise.accepted.as_ref());
        let latest = latest.max_by_key(|(ballot, _)| *ballot).cloned();
        let ballots = || promises.values().map(|p| p.accepted.as_ref().map(|(ballot, _)| *ballot));
        let settled = ballots().all(|ballot| ballot == latest.as_ref().map(|(ballot, _)| *ballot));
        let current = latest.map(|(_, value)| value);
        let me = (self.settings.incarnation, proposal.number);
        let wall = self.wall_us(now);
        let next = current.as_ref().map_or(1, |value| value.revision.saturating_add(1)).max(wall);
        let floor = promises.values().map(|promise| promise.floor).max().unwrap_or(0);
        let next = next.max(floor.saturating_add(1));
        let (value, done, previous) = match proposal.operation.decide(current, me, next, settled) {
            Decision::End(answer) => return Some(answer),
            Decision::Write { value, done, previous } => (*value, done, previous),
        };
        let previous = match previous {
            None if value.by == me => proposal.replaced,
            previous => previous,
        };
        proposal.replaced = previous.or(proposal.replaced);
        proposal.sent_new |= previous.is_some();
        let (mut set, mut seats) = (BTreeMap::new(), Stamps::new());
        if let Stage::Prepare(promises) = std::mem::replace(&mut proposal.stage, Stage::Pause) {
            for (id, promise) in promises {
                seats.extend(promise.seat.map(|seat| (id.clone(), seat)));
                set.insert(id, (promise.from, promise.incarnation));
            }
        }
        let accepted = BTreeSet::new();
        let timeout = self.accept_timeout(now, proposal);
        let since = now;
        let accepting = Accepting { set, accepted, seats, value, done, previous, since, timeout };
        proposal.stage = Stage::Accept(Box::new(accepting));
        self.send_accepts(now, proposal);
        None
    }

    /// How long to wait for a majority to accept: twice as long as the promises took, doubled after
    /// each abandoned round, so that a request also succeeds on a slow network. The limit is the
    /// longest round, because a promise expires then.
    fn accept_timeout(&self, now: Instant, proposal: &Proposal) -> Duration {
        let least = (self.resend_interval() * 4).max(now.saturating_since(proposal.began) * 2);
        let grown = least.saturating_mul(1 << proposal.abandoned.min(MAX_DOUBLINGS));
        grown.min(longest_round(self.settings.lease))
    }

    pub(super) fn send_accepts(&mut self, now: Instant, proposal: &mut Proposal) {
        let interval = self.resend_interval();
        let Stage::Accept(accepting) = &proposal.stage else { return };
        let Accepting { set, accepted, seats, value, .. } = &**accepting;
        let until = accepting.since + accepting.timeout;
        // Sent again a few times, but not when the round is abandoned.
        proposal.resend = (now + interval.max(accepting.timeout / 8)).min(until);
        let missing = set.iter().filter(|(id, _)| !accepted.contains(*id));
        for (_, (from, to)) in missing {
            let (ballot, to, value, seats) = (proposal.ballot, *to, value.clone(), seats.clone());
            self.send(*from, &proposal.name, Body::Accept { ballot, to, value, seats });
        }
    }

    /// Ends the request once a majority has accepted.
    fn finish(
        &mut self,
        now: Instant,
        proposal: &mut Proposal,
    ) -> Option<Result<Outcome, QuorumError>> {
        let Stage::Accept(accepting) = &proposal.stage else { return None };
        let Accepting { accepted, value, done, previous, .. } = &**accepting;
        if accepted.len() < self.majority() {
            return None;
        }
        let (value, done, previous) = (value.clone(), done.clone(), *previous);
        if let Some(previous) = previous {
            self.announce(now, &proposal.name, Body::Stored { value, previous });
        }
        Some(Ok(done))
    }
}
