//! The memory of one voter.

use std::collections::BTreeMap;
use std::time::Duration;

use super::wire::{Ballot, Body, Value};
use crate::clock::Instant;

/// The most elections that are remembered.
const MOST_ELECTIONS: usize = 1024;

/// What a voter has promised and accepted since it began. It is in memory only: a voter that begins again has forgotten
/// it, and so keeps silent for a lease.
#[derive(Debug)]
pub(super) struct Acceptor {
    incarnation: u64,
    /// From when on it votes.
    votes_from: Instant,
    /// Longer than any lease.
    lease: Duration,
    slots: BTreeMap<String, Slot>,
}

#[derive(Debug)]
struct Slot {
    promised: Ballot,
    accepted: Option<(Ballot, Value)>,
    touched: Instant,
}

impl Acceptor {
    pub fn new(incarnation: u64, votes_from: Instant, lease: Duration) -> Self {
        Self { incarnation, votes_from, lease, slots: BTreeMap::new() }
    }

    pub fn votes(&self, now: Instant) -> bool {
        self.votes_from <= now
    }

    pub fn prepare(&mut self, now: Instant, name: &str, ballot: Ballot) -> Option<Body> {
        if !self.votes(now) {
            return Some(Body::NotYet { ballot });
        }
        let Some(slot) = self.slots.get_mut(name) else {
            if !self.make_room(now) {
                return None;
            }
            let slot = Slot { promised: ballot, accepted: None, touched: now };
            self.slots.insert(name.to_owned(), slot);
            return Some(Body::Promise { ballot, accepted: None });
        };
        if ballot < slot.promised {
            return Some(Body::Refused { ballot, promised: slot.promised });
        }
        slot.promised = ballot;
        slot.touched = now;
        Some(Body::Promise { ballot, accepted: slot.accepted.clone() })
    }

    /// Accepts only what this incarnation itself has promised, and nothing later: a promise that was forgotten binds nobody,
    /// so it must be good for nothing.
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
        slot.accepted = Some((ballot, value));
        slot.touched = now;
        Some(Body::Accepted { ballot })
    }

    /// Forgets what nobody has touched for so long that no right to lead can rest on it, if need be.
    fn make_room(&mut self, now: Instant) -> bool {
        if self.slots.len() < MOST_ELECTIONS {
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
