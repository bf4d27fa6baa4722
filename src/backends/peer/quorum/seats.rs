//! Seats of named voters: which start of each name votes.
//!
//! A process cannot know whether the previous process of its name has ended. So a start of a named
//! voter votes only after other voters have agreed to refuse the previous start from then on: as
//! many voters that hold a seat themselves that the previous start cannot reach a majority, or all
//! others if too few hold a seat. `docs/peers.md` has the argument.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::acceptor::silence;
use super::wire::{Ballot, Body, Stamps};
use crate::time::clock::Instant;

/// The maximum number of doublings of the wait after a lost seat.
const MAX_DOUBLINGS: u32 = 5;
/// How many times an attempt requests the others' grants before it restarts.
const TRIES: u32 = 8;

/// What one named voter knows of all seats, and the state of its own seat.
#[derive(Debug)]
pub(super) struct Seats {
    me: Arc<str>,
    names: BTreeSet<String>,
    lease: Duration,
    /// The latest known stamp of each name. Stamps only grow; older ones are refused.
    known: Stamps,
    /// When this start requested its seat, as others compare it.
    stamp: Ballot,
    stage: Stage,
    /// When to send again.
    next: Option<Instant>,
    attempt: u64,
    /// How many times another start took its seat, the last time at `lost_at`.
    lost: u32,
    lost_at: Instant,
}

#[derive(Debug)]
enum Stage {
    /// Idle: it has not started, or another start has the seat.
    Waits,
    /// Queries the seats, and has received: the stamp of each voter, and whether it holds a seat.
    Asks(BTreeMap<String, (Ballot, bool)>),
    /// Requests grants of the voters in `among`, and has received those in `given`.
    Enters {
        among: Stamps,
        given: BTreeSet<String>,
        tries: u32,
    },
    Sits,
}

impl Seats {
    pub fn new(me: Arc<str>, names: BTreeSet<String>, lease: Duration) -> Self {
        Self {
            me,
            names,
            lease,
            known: Stamps::new(),
            stamp: Ballot { round: 0, by: 0 },
            stage: Stage::Waits,
            next: None,
            attempt: 0,
            lost: 0,
            lost_at: Instant::ORIGIN,
        }
    }

    /// Starts to request its own seat. `wall_us`: only makes it likely that the stamp is later than
    /// an earlier start's.
    pub fn begin(&mut self, now: Instant, incarnation: u64, wall_us: u64) {
        if self.names.contains(&*self.me) {
            let after = self.known.get(&*self.me).map_or(0, |known| known.round.saturating_add(1));
            self.stamp = Ballot { round: wall_us.max(after).max(1), by: incarnation };
            self.known.insert(self.me.to_string(), self.stamp);
            self.restart_request(now);
        }
    }

    pub fn sits(&self) -> bool {
        matches!(self.stage, Stage::Sits)
    }

    pub fn stamp(&self) -> Ballot {
        self.stamp
    }

    pub fn known(&self) -> &Stamps {
        &self.known
    }

    pub fn next_wake(&self) -> Option<Instant> {
        self.next
    }

    /// Returns whether this stamp is the latest known of its name.
    pub fn is_latest(&self, name: &str, stamp: Ballot) -> bool {
        self.known.get(name).is_none_or(|known| *known <= stamp)
    }

    /// Merges the stamps that others know. Returns whether this start has thereby lost its seat, or
    /// its progress towards one.
    #[must_use]
    pub fn learn(&mut self, now: Instant, stamps: &Stamps) -> bool {
        for (name, stamp) in stamps {
            if self.names.contains(name) && self.is_latest(name, *stamp) {
                self.known.insert(name.clone(), *stamp);
            }
        }
        if self.is_latest(&self.me, self.stamp) || matches!(self.stage, Stage::Waits) {
            return false;
        }
        // Two live starts of one name take the seat from each other at growing intervals. Each
        // waits for 32 silences at most, so after 128 without a loss the other one has ended.
        if now.saturating_since(self.lost_at) > silence(self.lease) * (4 << MAX_DOUBLINGS) {
            self.lost = 0;
        }
        self.lost_at = now;
        let wait = if self.sits() { silence(self.lease) } else { self.lease / 4 };
        self.next = Some(now + wait * (1 << self.lost.min(MAX_DOUBLINGS)));
        self.lost = self.lost.saturating_add(1);
        self.stage = Stage::Waits;
        true
    }

    /// Returns whether this voter may take part in a round with these voters: none of them may have
    /// lost its seat.
    #[must_use]
    pub fn takes_part(&mut self, among: &Stamps) -> bool {
        let latest = among
            .iter()
            .all(|(name, stamp)| self.names.contains(name) && self.is_latest(name, *stamp));
        if !latest || among.get(&*self.me) != Some(&self.stamp) {
            return false;
        }
        self.known.extend(among.iter().map(|(name, stamp)| (name.clone(), *stamp)));
        true
    }

    /// Handles the request of another start for its seat: first the query of seats, then the
    /// request for grants.
    pub fn on_enter(
        &mut self,
        name: &str,
        stamp: Ballot,
        attempt: u64,
        among: &Stamps,
    ) -> Option<Body> {
        if !self.names.contains(name) || *name == *self.me || self.stamp.round == 0 {
            return None;
        }
        if among.is_empty() {
            let known = self.known.clone();
            return Some(Body::Sits { attempt, stamp: self.stamp, sits: self.sits(), known });
        }
        if !among.contains_key(&*self.me) {
            return None;
        }
        if among.contains_key(name) || !self.is_latest(name, stamp) || !self.takes_part(among) {
            return Some(Body::Superseded { ballot: stamp, known: self.known.clone() });
        }
        self.known.insert(name.to_owned(), stamp);
        let known = self.known.clone();
        Some(Body::Seconds { attempt, to: stamp, stamp: self.stamp, known })
    }

    /// Handles the response to a query of seats.
    pub fn on_seat(&mut self, now: Instant, name: &str, attempt: u64, stamp: Ballot, sits: bool) {
        let fits = attempt == self.attempt && self.names.contains(name) && *name != *self.me;
        if !fits || !self.is_latest(name, stamp) {
            return;
        }
        let (all, enough) = (self.names.len().saturating_sub(1), self.enough());
        let Stage::Asks(received) = &mut self.stage else { return };
        received.insert(name.to_owned(), (stamp, sits));
        let seated =
            received.iter().filter(|(_, (_, sits))| *sits).map(|(name, (s, _))| (name, *s));
        let seated: Stamps = seated.map(|(name, stamp)| (name.clone(), stamp)).collect();
        let among = if seated.len() >= enough {
            seated
        } else if received.len() >= all {
            received.iter().map(|(name, (stamp, _))| (name.clone(), *stamp)).collect()
        } else {
            return;
        };
        self.stage = Stage::Enters { among, given: BTreeSet::new(), tries: 0 };
        self.next = Some(now);
    }

    /// Handles a grant to the start with the stamp `to`: a grant to an earlier start may arrive
    /// late, or be replayed. Returns whether this start holds the seat now.
    #[must_use]
    pub fn on_grant(&mut self, name: &str, attempt: u64, to: Ballot, stamp: Ballot) -> bool {
        let Stage::Enters { among, given, .. } = &mut self.stage else { return false };
        if attempt != self.attempt || to != self.stamp || among.get(name) != Some(&stamp) {
            return false;
        }
        given.insert(name.to_owned());
        if given.len() < among.len() {
            return false;
        }
        (self.stage, self.next) = (Stage::Sits, None);
        true
    }

    /// Handles a refusal because a voter in `among` has lost its own seat: this start restarts its
    /// request.
    pub fn refused(&mut self, now: Instant, stamp: Ballot) {
        if stamp == self.stamp && matches!(self.stage, Stage::Enters { .. }) {
            self.restart_request(now);
            self.next = Some(now + self.interval());
        }
    }

    /// Returns the next message to all voters, if it is due.
    pub fn poll_message(&mut self, now: Instant) -> Option<Body> {
        if self.next.is_none_or(|next| now < next) {
            return None;
        }
        if let Stage::Enters { tries, .. } = &mut self.stage {
            *tries += 1;
            if *tries > TRIES {
                self.restart_request(now);
            }
        }
        self.next = Some(now + self.interval());
        let among = match &self.stage {
            Stage::Asks(_) => Stamps::new(),
            Stage::Enters { among, .. } => among.clone(),
            Stage::Waits | Stage::Sits => return None,
        };
        Some(Body::Enter { stamp: self.stamp, attempt: self.attempt, among })
    }

    /// Returns whether another start took the seat and it is time to request it again.
    pub fn retries(&self, now: Instant) -> bool {
        matches!(self.stage, Stage::Waits) && self.next.is_some_and(|next| next <= now)
    }

    /// Returns why this member has no vote yet; empty: it has one.
    pub fn problem(&self) -> &'static str {
        match &self.stage {
            Stage::Sits => "",
            Stage::Waits if self.lost > 0 => {
                ": another process took the seat of this member's name: stop one of the two"
            }
            Stage::Waits => "",
            Stage::Asks(_) | Stage::Enters { .. } => {
                ": this member has no seat yet: start all voters, and check that they reach each other"
            }
        }
    }

    fn restart_request(&mut self, now: Instant) {
        self.attempt += 1;
        self.stage = Stage::Asks(BTreeMap::new());
        self.next = Some(now);
    }

    /// How many voters with a seat leave no majority to an earlier start.
    fn enough(&self) -> usize {
        let size = self.names.len();
        (size / 2 + 1).min(size.saturating_sub(1))
    }

    fn interval(&self) -> Duration {
        (self.lease / 20).clamp(Duration::from_millis(50), Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_requested_back_later_each_time_while_two_run() {
        let lease = Duration::from_secs(1);
        let names = ["a", "b", "c"].map(String::from).into();
        let mut seats = Seats::new("a".into(), names, lease);
        let mut now = Instant::from_origin(Duration::from_secs(100));
        let mut lose_after = |silences: u32| {
            seats.begin(now, 1, 1);
            seats.stage = Stage::Sits;
            now = now + silence(lease) * silences;
            let other = Ballot { round: seats.stamp.round + 1, by: 2 };
            assert!(seats.learn(now, &Stamps::from([("a".to_owned(), other)])));
            let wait = seats.next_wake().expect("it requests its seat again").saturating_since(now);
            now = now + wait;
            wait
        };
        for (sat, expected) in [(1, 1), (1, 2), (2, 4), (4, 8), (8, 16), (16, 32), (33, 32)] {
            assert_eq!(lose_after(sat), silence(lease) * expected);
        }
        assert_eq!(lose_after(128), silence(lease), "the other one has ended");
    }
}
