//! The seat of this voter, if voters have names.

use std::time::Duration;

use super::Voter;
use crate::backends::peer::quorum::acceptor::silence;
use crate::backends::peer::quorum::proposal::Stage;
use crate::backends::peer::quorum::seats::Seats;
use crate::backends::peer::quorum::wire::{Ballot, Body, Recipient, Stamps};
use crate::time::clock::Instant;

impl Voter {
    /// With named voters, this voter is silent until it has its seat, and then for as long as after
    /// a start.
    pub(super) fn request_seat(&mut self, now: Instant) {
        let wall = self.wall_us(now);
        if let Some(seats) = &mut self.seats {
            self.acceptor.set_votes_from(Instant::from_origin(Duration::MAX));
            if self.settings.votes {
                seats.begin(now, self.settings.incarnation, wall);
            }
        }
    }

    /// Returns the wall clock in microseconds.
    pub(super) fn wall_us(&self, now: Instant) -> u64 {
        let since = u64::try_from(now.since_origin().as_micros()).unwrap_or(u64::MAX);
        self.settings.origin_unix_us.saturating_add(since)
    }

    pub(super) fn promise(&mut self, now: Instant, name: &str, ballot: Ballot) -> Option<Body> {
        let promise = self.acceptor.prepare(now, name, ballot);
        match (promise, &self.seats) {
            (Some(Body::Promise { ballot, accepted, floor, .. }), Some(seats)) => {
                Some(Body::Promise { ballot, accepted, floor, seat: Some(seats.stamp()) })
            }
            (promise, _) => promise,
        }
    }

    /// Returns the known stamps, with which to refuse a round, if one of its voters has lost its
    /// seat.
    pub(super) fn refusal(&mut self, among: &Stamps) -> Option<Stamps> {
        let majority = self.majority();
        let seats = self.seats.as_mut()?;
        let fine = among.len() >= majority && seats.sits() && seats.takes_part(among);
        (!fine).then(|| seats.known().clone())
    }

    pub(super) fn on_seat_message(&mut self, now: Instant, id: &str, body: &Body) {
        let (Body::Sits { known, .. } | Body::Seconds { known, .. }) = body else { return };
        self.merge_stamps(now, known);
        let Some(seats) = &mut self.seats else { return };
        let sits = match body {
            Body::Sits { attempt, stamp, sits, .. } => {
                seats.on_seat(now, id, *attempt, *stamp, *sits);
                false
            }
            Body::Seconds { attempt, to, stamp, .. } => seats.on_grant(id, *attempt, *to, *stamp),
            _ => false,
        };
        if sits {
            self.acceptor.set_votes_from(now + silence(self.settings.lease));
        }
    }

    pub(super) fn merge_stamps(&mut self, now: Instant, known: &Stamps) {
        if self.seats.as_mut().is_some_and(|seats| seats.learn(now, known)) {
            self.acceptor.set_votes_from(Instant::from_origin(Duration::MAX));
        }
    }

    /// Returns whether a promise counts, by the seat of its voter. A voter that has lost its seat
    /// receives `Superseded`.
    pub(super) fn counts(
        &mut self,
        now: Instant,
        id: &str,
        from: Recipient,
        name: &str,
        seat: Option<Ballot>,
    ) -> bool {
        let (Some(seats), Some(stamp)) = (&self.seats, seat) else { return self.seats.is_none() };
        if !seats.is_latest(id, stamp) {
            let known = seats.known().clone();
            self.send(from, name, Body::Superseded { ballot: stamp, known });
            return false;
        }
        self.merge_stamps(now, &Stamps::from([(id.to_owned(), stamp)]));
        true
    }

    /// Restarts a round that rests on a lost seat.
    pub(super) fn superseded(&mut self, now: Instant, ballot: Ballot, name: &str) {
        let pause = self.resend_interval() / 4;
        let of = self.proposals.iter_mut().find(|p| p.ballot == ballot && *p.name == *name);
        if let Some(proposal) = of {
            proposal.stage = Stage::Pause;
            proposal.resend = now + pause;
        }
    }

    pub(super) fn run_seat_timers(&mut self, now: Instant) {
        if self.seats.as_ref().is_some_and(|seats| seats.retries(now)) {
            self.request_seat(now);
        }
        if let Some(body) = self.seats.as_mut().and_then(|seats| seats.poll_message(now)) {
            let envelope = self.envelope("", body);
            self.push_send(None, &envelope);
        }
    }

    /// Returns whether a stamp is the latest of its voter.
    pub(super) fn is_latest(&self, id: &str, seat: Option<Ballot>) -> bool {
        match (&self.seats, seat) {
            (Some(seats), Some(stamp)) => Seats::is_latest(seats, id, stamp),
            (seats, _) => seats.is_none(),
        }
    }
}
