//! Every change of the elections of a lock, as it happens.
//!
//! What is not heard is found by looking: an entry that expired without a marker, what happened while the connection was
//! lost, and everything in a lock that tells nothing. Where no server ends the term of a holder that does not renew, it
//! ends here when its record has not changed for a lease on our own clock.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::selected::{Elections, Watcher};
use super::status::{ElectionStatus, Holder, LeaderStatus};
use super::watcher::Update;
use crate::error::CliError;
use crate::time_format;

/// How often is looked where changes are heard.
const HEARD: Duration = Duration::from_secs(5);
/// How often is looked where they are not.
const UNHEARD: Duration = Duration::from_secs(1);

/// What happened in an election.
#[derive(Debug, Clone)]
pub struct Event {
    pub election: String,
    pub time: OffsetDateTime,
    pub revision: u64,
    /// Who led before, as far as was seen.
    pub before: Option<Holder>,
    pub now: LeaderStatus,
    /// Whether this is how it was found, rather than a change.
    pub found: bool,
}

/// A view of the elections of a lock that keeps itself up to date.
pub struct Feed<'a> {
    elections: &'a Elections<'a>,
    only: Option<&'a str>,
    watcher: Watcher,
    ticks: Interval,
    known: HashMap<String, Known>,
    first: bool,
    waiting: VecDeque<Event>,
}

/// What was seen of an election.
struct Known {
    status: ElectionStatus,
    /// Since when it is so.
    since: Instant,
    /// Whether its holder has not renewed in time.
    lapsed: bool,
}

impl Known {
    /// Who leads.
    fn holder(&self) -> Option<&Holder> {
        self.status.holder().filter(|_| !self.lapsed)
    }

    /// When its holder leads no more, unless something is written before; none where the server tells.
    fn lapses_at(&self) -> Option<Instant> {
        Some(time_format::after(self.since, self.holder()?.lease?))
    }

    /// Whether this is the same, however often the rest of what carries it was written.
    fn is_same_record(&self, status: &ElectionStatus) -> bool {
        self.status.state == status.state && self.status.written == status.written
    }
}

impl<'a> Feed<'a> {
    /// Watches one election, or all.
    pub async fn open(
        elections: &'a Elections<'a>,
        only: Option<&'a str>,
    ) -> Result<Self, CliError> {
        let watcher = elections.watch(only).await?;
        let mut ticks = interval(if watcher.reports_every_change() { HEARD } else { UNHEARD });
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (known, waiting) = Default::default();
        Ok(Self { elections, only, watcher, ticks, known, first: true, waiting })
    }

    /// The next change. The first ones tell what is found.
    ///
    /// An error does not end it: the next call goes on.
    pub async fn next(&mut self) -> Result<Event, CliError> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(event);
            }
            let lapse = self.known.values().filter_map(Known::lapses_at).min();
            tokio::select! {
                heard = self.watcher.next() => match heard {
                    Update::Status(status) => self.take(status),
                    Update::Recheck => self.look().await?,
                    Update::Failed(failure) => return Err(failure),
                },
                _ = self.ticks.tick() => self.look().await?,
                () = sleep_until(lapse.unwrap_or_else(Instant::now)), if lapse.is_some() => self.lapse(),
            }
        }
    }

    async fn look(&mut self) -> Result<(), CliError> {
        let elections = match self.only {
            Some(name) => self.elections.read(name).await?.into_iter().collect(),
            None => self.elections.list().await?,
        };
        let there: HashSet<String> =
            elections.iter().map(|status| status.election.clone()).collect();
        elections.into_iter().for_each(|status| self.take(status));
        let gone: Vec<ElectionStatus> = (self.known.values())
            .filter(|known| known.holder().is_some() && !there.contains(&known.status.election))
            .map(|known| known.status.clone())
            .collect();
        for status in gone {
            let state = LeaderStatus::Vacant(self.elections.cause_of_absence().to_owned());
            self.take(ElectionStatus { state, written: Some(OffsetDateTime::now_utc()), ..status });
        }
        self.first = false;
        Ok(())
    }

    fn take(&mut self, status: ElectionStatus) {
        let before = self.known.get(&status.election);
        // Looking and hearing overtake each other.
        if before.is_some_and(|before| {
            before.status.revision > status.revision
                || before.status.revision == status.revision && before.holder().is_none()
        }) {
            return;
        }
        let same = before.filter(|before| before.is_same_record(&status));
        let (since, lapsed) =
            same.map_or_else(|| (Instant::now(), false), |same| (same.since, same.lapsed));
        let held = before.and_then(Known::holder).cloned();
        let changed = match (&held, &status.state) {
            (Some(before), LeaderStatus::Held(now)) => !before.is_same_term(now),
            (None, LeaderStatus::Vacant(_)) => {
                before.is_none() && self.first && self.only.is_some()
            }
            _ => !lapsed,
        };
        if changed {
            self.waiting.push_back(Event {
                election: status.election.clone(),
                time: status.written.unwrap_or_else(OffsetDateTime::now_utc),
                revision: status.revision,
                before: held,
                now: status.state.clone(),
                found: self.first && before.is_none(),
            });
        }
        self.known.insert(status.election.clone(), Known { status, since, lapsed });
    }

    /// StopSignals the terms of those who have not renewed in time.
    fn lapse(&mut self) {
        let now = Instant::now();
        for known in self.known.values_mut().filter(|known| known.lapses_at() <= Some(now)) {
            let Some(holder) = known.holder().cloned() else { continue };
            known.lapsed = true;
            self.waiting.push_back(Event {
                election: known.status.election.clone(),
                time: OffsetDateTime::now_utc(),
                revision: known.status.revision,
                before: Some(holder),
                now: LeaderStatus::Vacant("expired".to_owned()),
                found: false,
            });
        }
    }
}
