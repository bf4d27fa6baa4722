//! The elections of a lock at one moment, and their last transitions.
//!
//! The model is pure: observations go in, with the moment at which they were made. If no server
//! ends the term of a holder that does not renew, the term ends here, once its record has not
//! changed for a lease on this host's clock, and a read has shown that: nobody is known not to
//! renew while the lock cannot be read.

mod commands;
mod election;
mod heard;
mod observation;
mod sets;
mod source;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use incumbent::CandidateInfo;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::election::{Candidates, Deadline, Stamp};
use self::sets::{SetSummary, sets};
use crate::lock::elections::{ElectionRecord, ElectionState, Holder, Vacancy};
use crate::output::time_format;

pub use self::commands::{Answer, Command, execute};
pub use self::election::{ElectionView, Transition, candidate_json, cool_down_json, lost, started};
pub use self::observation::{Moment, Observation, Origin};
pub use self::sets::{MemberView, SetView, ranges, set_of, shard_of, stated, summary};
pub use self::source::{Feed, LastRead, Source, forward};

/// The most transitions that a model keeps.
pub const TAIL: usize = 1000;
/// The most characters of an identity that the tail keeps.
const TAIL_IDENTITY: usize = 256;

/// How long an election is shown of which the lock has no record.
const KEPT: Duration = Duration::from_secs(600);

/// How a status was learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Provenance {
    /// As it was written.
    Live,
    /// By a read right after it was written.
    Confirmed,
    /// By a read, at some time after it was written.
    Read,
    /// By a read that found no entry.
    Absent,
}

/// The elections of a lock.
#[derive(Debug)]
pub struct Model {
    origin: Origin,
    elections: BTreeMap<String, ElectionView>,
    tail: VecDeque<Transition>,
    /// Whether all elections have been read.
    is_complete: bool,
    /// When the last read began.
    read_began: Option<Instant>,
}

impl Model {
    pub fn new(origin: Origin) -> Self {
        let (elections, tail) = (BTreeMap::new(), VecDeque::new());
        Self { origin, elections, tail, is_complete: false, read_began: None }
    }

    /// All elections that have or had a leader, by name.
    pub fn elections(&self) -> impl Iterator<Item = &ElectionView> + Clone {
        self.elections.values()
    }

    pub fn election(&self, name: &str) -> Option<&ElectionView> {
        self.elections.get(name)
    }

    /// The last transitions, the latest one last.
    pub fn transitions(&self) -> impl DoubleEndedIterator<Item = &Transition> {
        self.tail.iter()
    }

    /// The sets whose shards are among the elections.
    pub fn sets(&self) -> Vec<SetSummary> {
        sets(self.elections())
    }

    /// Takes an observation. Returns the transitions that it shows; the first ones are the current
    /// statuses.
    pub fn observe(&mut self, observed: Observation, now: Moment) -> Vec<Transition> {
        match observed {
            Observation::Written(status) => {
                self.take(status, now, Provenance::Live).into_iter().collect()
            }
            Observation::One { status: Some(status), is_new, .. } => {
                let provenance = if is_new { Provenance::Confirmed } else { Provenance::Read };
                self.take(status, now, provenance).into_iter().collect()
            }
            Observation::One { election, status: None, .. } => {
                self.lose(&election, now).into_iter().collect()
            }
            Observation::All(statuses, read) => {
                self.read_began = Some(read.began);
                self.take_all(statuses, now)
            }
            Observation::Unchanged(read) => {
                self.read_began = Some(read.began);
                Vec::new()
            }
        }
    }

    /// Until when each write is known; `None` before the first read.
    fn known_until(&self) -> Option<Instant> {
        Some(time_format::after(self.read_began?, self.origin.watched_for))
    }

    fn take_all(&mut self, statuses: Vec<ElectionRecord>, now: Moment) -> Vec<Transition> {
        let there: HashSet<String> =
            statuses.iter().map(|status| status.election.clone()).collect();
        let mut seen: Vec<Transition> = statuses
            .into_iter()
            .filter_map(|status| self.take(status, now, Provenance::Read))
            .collect();
        let names = self.elections.keys().filter(|name| !there.contains(*name));
        let gone: Vec<String> = names.cloned().collect();
        seen.extend(gone.iter().flat_map(|name| self.lose(name, now)));
        self.is_complete = true;
        seen
    }

    /// An election has no entry.
    fn lose(&mut self, name: &str, now: Moment) -> Option<Transition> {
        let known = self.elections.get_mut(name)?;
        let since = *known.gone_since.get_or_insert(now.at);
        known.holder()?;
        let state = ElectionState::Vacant(self.origin.cause_of_absence.clone());
        let status =
            ElectionRecord { state, written: Some(now.wall.into()), ..known.status.clone() };
        let seen = self.take(status, now, Provenance::Absent);
        if let Some(known) = self.elections.get_mut(name) {
            known.gone_since = Some(since);
        }
        seen
    }

    fn take(
        &mut self,
        mut status: ElectionRecord,
        now: Moment,
        provenance: Provenance,
    ) -> Option<Transition> {
        let before = self.elections.remove(&status.election);
        // A write that is told may be an old one, while a read is always later than what was
        // learned before: a lower revision is that of a lock that was made anew, or restored.
        if let Some(known) = &before
            && provenance == Provenance::Live
            && (known.status.revision > status.revision
                || known.status.revision == status.revision && known.holder().is_none())
        {
            self.elections.extend(before.map(|known| (status.election, known)));
            return None;
        }
        // The trace of a release expires too, on a server that ends entries.
        if let Some(cause) = before.as_ref().and_then(ElectionView::cause)
            && status.is_expired()
        {
            status.state = ElectionState::Vacant(cause.clone());
        }
        let written_at = status.written.map(time_format::utc);
        let same = before.as_ref().filter(|known| known.is_same_record(&status));
        let unchanged_since = same.map_or(now.at, |same| same.unchanged_since);
        let is_expired = same.is_some_and(|same| same.is_expired);
        let held = before.as_ref().and_then(ElectionView::holder);
        let is_change = match (held, &status.state) {
            (Some(before), ElectionState::Held(now)) => !before.is_same_term(now),
            (None, ElectionState::Vacant(_)) => {
                before.is_none() && !self.is_complete && self.origin.is_named
            }
            _ => !is_expired,
        };
        let stamp = Stamp {
            seen: Some(now.at).filter(|_| before.is_some() || self.is_complete),
            lock: written_at
                .filter(|_| self.origin.has_lock_times && provenance != Provenance::Absent),
        };
        let earlier = before.as_ref().and_then(|known| known.vacancy);
        let transition = is_change.then(|| Transition {
            election: status.election.clone(),
            time: written_at.unwrap_or(now.wall),
            revision: status.revision,
            before: held.cloned(),
            now: status.state.clone(),
            found: !self.is_complete && before.is_none(),
            leaderless: (earlier.filter(|_| status.holder().is_some()))
                .and_then(|begun| begun.until(&stamp)),
            unrenewed: (before.as_ref().filter(|_| held.is_some() && status.is_expired()))
                .and_then(|known| known.written.until(&stamp)),
        });
        let is_same_write = |known: &&ElectionView| known.status.revision == status.revision;
        let (deadline, written) = match before.as_ref().filter(is_same_write) {
            Some(known) => (known.deadline, known.written),
            None => (self.deadline(&status, now, provenance), stamp),
        };
        let vacancy = match &status.state {
            ElectionState::Vacant(_) => earlier.or(Some(stamp)),
            ElectionState::Held(_) => earlier.filter(|_| is_expired),
        };
        let candidates = before.and_then(|known| known.candidates);
        let name = status.election.clone();
        let view = ElectionView {
            status,
            unchanged_since,
            is_expired,
            deadline,
            written,
            vacancy,
            candidates,
            gone_since: None,
        };
        self.elections.insert(name, view);
        transition.inspect(|transition| self.keep(transition))
    }

    /// When the term ends without another renewal.
    fn deadline(
        &self,
        status: &ElectionRecord,
        now: Moment,
        provenance: Provenance,
    ) -> Option<Deadline> {
        let holder = status.holder()?;
        let lease = holder.ttl.or(holder.lease).or(self.origin.lease)?;
        let age = status
            .written
            .filter(|_| provenance == Provenance::Read)
            .map(|written| now.age(time_format::utc(written)));
        let left = lease.saturating_sub(age.unwrap_or_default());
        Some(Deadline { at: time_format::after(now.at, left), lease })
    }

    /// Ends the terms of holders that have not renewed in time, and forgets elections of which the
    /// lock has had no record for long, unless they were selected by name.
    pub fn expire(&mut self, now: Moment) -> Vec<Transition> {
        let mut seen = Vec::new();
        if !self.origin.is_named {
            let is_kept = |since| now.at < time_format::after(since, KEPT);
            self.elections.retain(|_, known| known.gone_since.is_none_or(is_kept));
        }
        let Some(until) = self.known_until().map(|until| until.min(now.at)) else { return seen };
        for known in self.elections.values_mut() {
            let Some(end) = known.expires_at().filter(|end| *end <= until) else { continue };
            let Some(holder) = known.holder().cloned() else { continue };
            known.is_expired = true;
            known.vacancy = Some(Stamp { seen: Some(end), lock: None });
            seen.push(Transition {
                election: known.name().to_owned(),
                time: now.wall_at(end).unwrap_or(now.wall),
                revision: known.status.revision,
                before: Some(holder),
                now: ElectionState::Vacant(Vacancy::Expired),
                found: false,
                leaderless: None,
                unrenewed: known.status.holder().and_then(|holder| holder.lease),
            });
        }
        seen.iter().for_each(|transition| self.keep(transition));
        seen
    }

    /// When the next holder expires, if that is known without another read.
    pub fn next_expiry(&self) -> Option<Instant> {
        let known_until = self.known_until()?;
        let ends = self.elections.values().filter_map(ElectionView::expires_at);
        ends.min().filter(|end| *end <= known_until)
    }

    /// Takes the answers to a roll call.
    pub fn take_roll(&mut self, name: &str, roll: Vec<CandidateInfo>, now: Moment) {
        if let Some(known) = self.elections.get_mut(name) {
            known.candidates = Some(Candidates::new(now, roll));
        }
    }

    /// The elections, the sets and the tail of transitions.
    pub fn json(&self, now: Moment) -> Value {
        json!({
            "time": time_format::rfc3339(now.wall),
            "elections": self.elections().map(|known| known.json(now)).collect::<Vec<_>>(),
            "sets": self.sets().iter().map(SetSummary::json).collect::<Vec<_>>(),
            "transitions": self.tail.iter().map(Transition::json).collect::<Vec<_>>(),
        })
    }

    /// Adds a change to the tail.
    fn keep(&mut self, transition: &Transition) {
        if transition.found {
            return;
        }
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        let mut kept = transition.clone();
        kept.before.as_mut().into_iter().for_each(truncate);
        if let ElectionState::Held(holder) = &mut kept.now {
            truncate(holder);
        }
        self.tail.push_back(kept);
    }
}

fn truncate(holder: &mut Holder) {
    if let Some((end, _)) = holder.identity.char_indices().nth(TAIL_IDENTITY) {
        holder.identity.truncate(end);
    }
}
