//! The acceptor: the promises and accepted values of one voter.

use std::collections::BTreeMap;
use std::time::Duration;

use super::wire::{Ballot, Body, Value};
use crate::time::clock::Instant;

/// The maximum number of remembered elections, each of a kilobyte or two.
pub(super) const MAX_ELECTIONS: usize = 16_384;

/// What a voter has promised and accepted since it started. It is kept in memory only: a restarted
/// voter has lost it, and so stays silent for a lease.
#[derive(Debug)]
pub(super) struct Acceptor {
    incarnation: u64,
    /// When it starts to vote.
    votes_from: Instant,
    /// The maximum lease: how long an accepted value is remembered.
    lease: Duration,
    slots: BTreeMap<String, Slot>,
}

#[derive(Debug)]
struct Slot {
    promised: Ballot,
    promised_at: Instant,
    accepted: Option<Accepted>,
    /// The greatest revision that was ever accepted.
    floor: u64,
    touched: Instant,
}

#[derive(Debug)]
struct Accepted {
    ballot: Ballot,
    value: Value,
    at: Instant,
}

/// How long a round may take from its start to the last promise that counts, and again from a
/// promise to its use.
///
/// A promise that a voter has lost can still be used elsewhere, in a ballot higher than those of
/// later rounds, which the voter would have refused. Rounds are so short, and voters silent for so
/// long, that no voter remembers what such a round wrote when the voter votes again.
pub(super) fn longest_round(lease: Duration) -> Duration {
    lease / 4
}

/// How long a restarted voter is silent: 1.51 leases. A lease, in which all forget what they have
/// accepted; twice the longest round, as a promise that this voter has lost may be used so late;
/// and a hundredth, as clocks drift.
pub(super) fn silence(lease: Duration) -> Duration {
    lease + longest_round(lease) * 2 + lease / 100
}

impl Acceptor {
    pub fn new(incarnation: u64, votes_from: Instant, lease: Duration) -> Self {
        Self { incarnation, votes_from, lease, slots: BTreeMap::new() }
    }

    pub fn votes(&self, now: Instant) -> bool {
        self.votes_from <= now
    }

    /// Sets when this voter starts to vote.
    pub fn set_votes_from(&mut self, votes_from: Instant) {
        self.votes_from = votes_from;
    }

    pub fn prepare(&mut self, now: Instant, name: &str, ballot: Ballot) -> Option<Body> {
        if !self.votes(now) {
            return Some(Body::NotYet { ballot });
        }
        let Some(slot) = self.slots.get_mut(name) else {
            if !self.evict_unused(now) {
                return Some(Body::Full { ballot });
            }
            let slot =
                Slot { promised: ballot, promised_at: now, accepted: None, floor: 0, touched: now };
            self.slots.insert(name.to_owned(), slot);
            return Some(Body::Promise { ballot, accepted: None, floor: 0, seat: None });
        };
        if ballot < slot.promised {
            return Some(Body::Refused { ballot, promised: slot.promised });
        }
        if ballot > slot.promised {
            slot.promised = ballot;
            slot.promised_at = now; // of the first request: a repeated one does not renew the promise
        }
        slot.touched = now;
        slot.accepted.take_if(|accepted| accepted.at + self.lease < now);
        let accepted = slot.accepted.as_ref().map(|a| (a.ballot, a.value.clone()));
        Some(Body::Promise { ballot, accepted, floor: slot.floor, seat: None })
    }

    /// Accepts a value only for the current promise of this incarnation: a promise that a voter has
    /// lost binds no voter, so no value may rest on it.
    pub fn accept(
        &mut self,
        now: Instant,
        name: &str,
        ballot: Ballot,
        to: u64,
        value: Value,
    ) -> Option<Body> {
        if to != self.incarnation || !self.votes(now) {
            return Some(Body::NotYet { ballot });
        }
        let slot = self.slots.get_mut(name)?;
        if ballot != slot.promised {
            let promised = slot.promised;
            return (ballot < promised).then_some(Body::Refused { ballot, promised });
        }
        if slot.promised_at + longest_round(self.lease) < now {
            return Some(Body::NotYet { ballot });
        }
        slot.floor = slot.floor.max(value.revision);
        slot.accepted = Some(Accepted { ballot, value, at: now });
        slot.touched = now;
        Some(Body::Accepted { ballot })
    }

    /// Forgets the election that was unused longest, if the memory is full and the election was
    /// unused for two leases: no leadership can rest on it.
    fn evict_unused(&mut self, now: Instant) -> bool {
        if self.slots.len() < MAX_ELECTIONS {
            return true;
        }
        let old = self.slots.iter().min_by_key(|(_, slot)| slot.touched);
        let old = old.filter(|(_, slot)| slot.touched + self.lease * 2 < now);
        match old.map(|(name, _)| name.clone()) {
            Some(name) => self.slots.remove(&name).is_some(),
            None => false,
        }
    }
}
