//! The seats of named voters, as one of them keeps to them.

use std::time::Duration;

use super::Voter;
use crate::backends::peer::quorum::acceptor::silence;
use crate::backends::peer::quorum::proposal::Stage;
use crate::backends::peer::quorum::seats::Seats;
use crate::backends::peer::quorum::wire::{Ballot, Body, Recipient, Stamps};
use crate::time::clock::Instant;

impl Voter {
    /// Where voters have names, this one is silent until it has its seat, and for as long again as after a start.
    pub(super) fn ask_for_seat(&mut self, now: Instant) {
        let wall = self.wall_us(now);
        if let Some(seats) = &mut self.seats {
            self.acceptor.be_silent_until(Instant::from_origin(Duration::MAX));
            if self.settings.votes {
                seats.begin(now, self.settings.incarnation, wall);
            }
        }
    }

    /// The wall clock, in microseconds.
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

    /// What a round of these is refused with, if one of them has lost its seat.
    pub(super) fn refuses(&mut self, among: &Stamps) -> Option<Stamps> {
        let majority = self.majority();
        let seats = self.seats.as_mut()?;
        let fine = among.len() >= majority && seats.sits() && seats.takes_part(among);
        (!fine).then(|| seats.known().clone())
    }

    pub(super) fn hear_of_seat(&mut self, now: Instant, id: &str, body: &Body) {
        let (Body::Sits { known, .. } | Body::Seconds { known, .. }) = body else { return };
        self.learn_of_seats(now, known);
        let Some(seats) = &mut self.seats else { return };
        let sits = match body {
            Body::Sits { attempt, stamp, sits, .. } => {
                seats.told(now, id, *attempt, *stamp, *sits);
                false
            }
            Body::Seconds { attempt, to, stamp, .. } => seats.seconded(id, *attempt, *to, *stamp),
            _ => false,
        };
        if sits {
            self.acceptor.be_silent_until(now + silence(self.settings.lease));
        }
    }

    pub(super) fn learn_of_seats(&mut self, now: Instant, known: &Stamps) {
        if self.seats.as_mut().is_some_and(|seats| seats.learn(now, known)) {
            self.acceptor.be_silent_until(Instant::from_origin(Duration::MAX));
        }
    }

    /// Whether a promise counts, by the seat of its voter. Who has lost it is told so.
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
            self.say(from, name, Body::Superseded { ballot: stamp, known });
            return false;
        }
        self.learn_of_seats(now, &Stamps::from([(id.to_owned(), stamp)]));
        true
    }

    /// A round rests on a seat that is lost: another one is begun.
    pub(super) fn superseded(&mut self, now: Instant, ballot: Ballot, name: &str) {
        let pause = self.patience() / 4;
        let of = self.proposals.iter_mut().find(|p| p.ballot == ballot && *p.name == *name);
        if let Some(proposal) = of {
            proposal.stage = Stage::Pause;
            proposal.resend = now + pause;
        }
    }

    pub(super) fn keep_seat(&mut self, now: Instant) {
        if self.seats.as_ref().is_some_and(|seats| seats.asks_back(now)) {
            self.ask_for_seat(now);
        }
        if let Some(said) = self.seats.as_mut().and_then(|seats| seats.keep_time(now)) {
            let envelope = self.envelope("", said);
            self.put(None, &envelope);
        }
    }

    /// The stamps that count.
    pub(super) fn is_latest(&self, id: &str, seat: Option<Ballot>) -> bool {
        match (&self.seats, seat) {
            (Some(seats), Some(stamp)) => Seats::is_latest(seats, id, stamp),
            (seats, _) => seats.is_none(),
        }
    }
}
