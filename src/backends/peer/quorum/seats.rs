//! Which start of each named voter holds its seat.
//!
//! A process cannot know whether the one whose name it bears has ended. So a start of a named voter votes only after the others have
//! given their word to refuse the earlier one from then on: those that hold a seat themselves, in such number that no majority is
//! left to the earlier one; or all of them, where too few hold one. `docs/peers.md` has the argument.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::acceptor::silence;
use super::wire::{Ballot, Body, Stamps};
use crate::time::clock::Instant;

/// How often a seat may be lost before the wait for the next try grows no more.
const MOST_DOUBLED: u32 = 5;
/// How many times an attempt asks for the others' word before it begins anew.
const TRIES: u32 = 8;

/// What one named voter knows of all seats, and how it comes to its own.
#[derive(Debug)]
pub(super) struct Seats {
    me: Arc<str>,
    names: BTreeSet<String>,
    lease: Duration,
    /// The latest stamp of each name that was heard of. It only grows; what is older is refused.
    known: Stamps,
    /// When this start began to ask for its seat, as others compare it.
    stamp: Ballot,
    stage: Stage,
    /// When to ask again.
    next: Option<Instant>,
    attempt: u64,
    /// How many times its seat went to another start.
    lost: u32,
}

#[derive(Debug)]
enum Stage {
    /// Does not ask: it has not begun, or another start has the seat.
    Waits,
    /// Asks who sits, and has been told this: by which stamp, and whether that one holds a seat.
    Asks(BTreeMap<String, (Ballot, bool)>),
    /// Asks these for their word, and has that of some.
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
        }
    }

    /// Begins to ask for its own seat. `wall_us`: only makes it likely that the stamp is later than an earlier start's.
    pub fn begin(&mut self, now: Instant, incarnation: u64, wall_us: u64) {
        if self.names.contains(&*self.me) {
            let after = self.known.get(&*self.me).map_or(0, |known| known.round.saturating_add(1));
            self.stamp = Ballot { round: wall_us.max(after).max(1), by: incarnation };
            self.known.insert(self.me.to_string(), self.stamp);
            self.ask(now);
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

    /// Whether this stamp is the latest of its name that was heard of.
    pub fn is_latest(&self, name: &str, stamp: Ballot) -> bool {
        self.known.get(name).is_none_or(|known| *known <= stamp)
    }

    /// What follows from what others know. Answers whether this start has lost its seat, or what it had of it, by that.
    #[must_use]
    pub fn learn(&mut self, now: Instant, told: &Stamps) -> bool {
        for (name, stamp) in told {
            if self.names.contains(name) && self.is_latest(name, *stamp) {
                self.known.insert(name.clone(), *stamp);
            }
        }
        if self.is_latest(&self.me, self.stamp) || matches!(self.stage, Stage::Waits) {
            return false;
        }
        // Two that live take the seat from each other ever more seldom.
        let wait = if self.sits() { silence(self.lease) } else { self.lease / 4 };
        self.next = Some(now + wait * (1 << self.lost.min(MOST_DOUBLED)));
        self.lost = self.lost.saturating_add(1);
        self.stage = Stage::Waits;
        true
    }

    /// Whether a round of these may have this voter's part: none of them may be known to have lost its seat.
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

    /// Another start asks for its seat: first who sits, then for the word of those that it names.
    pub fn asked(
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

    /// Another has said who it is.
    pub fn told(&mut self, now: Instant, name: &str, attempt: u64, stamp: Ballot, sits: bool) {
        let fits = attempt == self.attempt && self.names.contains(name) && *name != *self.me;
        if !fits || !self.is_latest(name, stamp) {
            return;
        }
        let (all, enough) = (self.names.len().saturating_sub(1), self.enough());
        let Stage::Asks(told) = &mut self.stage else { return };
        told.insert(name.to_owned(), (stamp, sits));
        let seated = told.iter().filter(|(_, (_, sits))| *sits).map(|(name, (s, _))| (name, *s));
        let seated: Stamps = seated.map(|(name, stamp)| (name.clone(), stamp)).collect();
        let among = if seated.len() >= enough {
            seated
        } else if told.len() >= all {
            told.iter().map(|(name, (stamp, _))| (name.clone(), *stamp)).collect()
        } else {
            return;
        };
        self.stage = Stage::Enters { among, given: BTreeSet::new(), tries: 0 };
        self.next = Some(now);
    }

    /// Another has given its word to the start of the stamp `to`: one that was given to an earlier start may come late, or be sent again
    /// by who recorded it. Answers whether this start holds the seat now.
    #[must_use]
    pub fn seconded(&mut self, name: &str, attempt: u64, to: Ballot, stamp: Ballot) -> bool {
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

    /// Its seat was refused to it, since one of those that it named has lost its own: it asks anew.
    pub fn refused(&mut self, now: Instant, stamp: Ballot) {
        if stamp == self.stamp && matches!(self.stage, Stage::Enters { .. }) {
            self.ask(now);
            self.next = Some(now + self.interval());
        }
    }

    /// What to say to all, if it is time.
    pub fn keep_time(&mut self, now: Instant) -> Option<Body> {
        if self.next.is_none_or(|next| now < next) {
            return None;
        }
        if let Stage::Enters { tries, .. } = &mut self.stage {
            *tries += 1;
            if *tries > TRIES {
                self.ask(now);
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

    /// Whether its seat went to another start, which it is to ask back now.
    pub fn asks_back(&self, now: Instant) -> bool {
        matches!(self.stage, Stage::Waits) && self.next.is_some_and(|next| next <= now)
    }

    /// Why this member has no vote yet; empty: it has.
    pub fn problem(&self) -> &'static str {
        match &self.stage {
            Stage::Sits => "",
            Stage::Waits if self.lost > 0 => {
                ": another process has taken the seat of this member's name: stop one of the two"
            }
            Stage::Waits => "",
            Stage::Asks(_) | Stage::Enters { .. } => {
                ": this member has no seat yet: start all voters, and let them hear each other"
            }
        }
    }

    fn ask(&mut self, now: Instant) {
        self.attempt += 1;
        self.stage = Stage::Asks(BTreeMap::new());
        self.next = Some(now);
    }

    /// How many that sit leave no majority to an earlier start.
    fn enough(&self) -> usize {
        let size = self.names.len();
        (size / 2 + 1).min(size.saturating_sub(1))
    }

    fn interval(&self) -> Duration {
        (self.lease / 20).clamp(Duration::from_millis(50), Duration::from_secs(1))
    }
}
