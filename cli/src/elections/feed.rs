//! Every change of the elections of a lock, as it happens.
//!
//! Polling finds what no watcher reports: an entry that expired without a marker, changes during a
//! lost connection, and all changes of a lock without hints. If no server ends the term of a holder
//! that does not renew, the term ends here, once its record has not changed for a lease on this
//! host's clock.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::selected::{Elections, Watcher};
use super::status::{ElectionStatus, Holder, LeaderStatus};
use super::watcher::Update;
use crate::error::CliError;
use crate::time_format;

/// The poll interval if the watcher reports changes.
const WITH_UPDATES: Duration = Duration::from_secs(5);
/// The poll interval if it does not.
const WITHOUT_UPDATES: Duration = Duration::from_secs(1);

/// A change of an election.
#[derive(Debug, Clone)]
pub struct Event {
    pub election: String,
    pub time: OffsetDateTime,
    pub revision: u64,
    /// The former leader, if it was seen.
    pub before: Option<Holder>,
    pub now: LeaderStatus,
    /// Whether this is the first status, rather than a change.
    pub found: bool,
}

/// An up-to-date view of the elections of a lock.
pub struct Feed<'a> {
    elections: &'a Elections<'a>,
    only: Option<&'a str>,
    watcher: Watcher,
    ticks: Interval,
    known: HashMap<String, Known>,
    first: bool,
    waiting: VecDeque<Event>,
}

/// The last status of an election.
struct Known {
    status: ElectionStatus,
    /// Since when the record is unchanged.
    since: Instant,
    /// Whether the holder has not renewed in time.
    expired: bool,
}

impl Known {
    /// The holder, unless it has expired.
    fn holder(&self) -> Option<&Holder> {
        self.status.holder().filter(|_| !self.expired)
    }

    /// When the holder expires without another write; `None` if the server ends its term.
    fn expires_at(&self) -> Option<Instant> {
        Some(time_format::after(self.since, self.holder()?.lease?))
    }

    /// Whether the record is the same, although its object may have been written.
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
        let mut ticks =
            interval(if watcher.reports_every_change() { WITH_UPDATES } else { WITHOUT_UPDATES });
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (known, waiting) = Default::default();
        Ok(Self { elections, only, watcher, ticks, known, first: true, waiting })
    }

    /// The next change. The first events are the current statuses.
    ///
    /// An error does not end the feed: the next call continues.
    pub async fn next(&mut self) -> Result<Event, CliError> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(event);
            }
            let expiry = self.known.values().filter_map(Known::expires_at).min();
            tokio::select! {
                update = self.watcher.next() => match update {
                    Update::Status(status) => self.take(status),
                    Update::Recheck => self.poll().await?,
                    Update::Failed(failure) => return Err(failure),
                },
                _ = self.ticks.tick() => self.poll().await?,
                () = sleep_until(expiry.unwrap_or_else(Instant::now)), if expiry.is_some() => self.expire(),
            }
        }
    }

    async fn poll(&mut self) -> Result<(), CliError> {
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
        // Reads and updates may arrive out of order.
        if before.is_some_and(|before| {
            before.status.revision > status.revision
                || before.status.revision == status.revision && before.holder().is_none()
        }) {
            return;
        }
        let same = before.filter(|before| before.is_same_record(&status));
        let (since, expired) =
            same.map_or_else(|| (Instant::now(), false), |same| (same.since, same.expired));
        let held = before.and_then(Known::holder).cloned();
        let changed = match (&held, &status.state) {
            (Some(before), LeaderStatus::Held(now)) => !before.is_same_term(now),
            (None, LeaderStatus::Vacant(_)) => {
                before.is_none() && self.first && self.only.is_some()
            }
            _ => !expired,
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
        self.known.insert(status.election.clone(), Known { status, since, expired });
    }

    /// Ends the terms of holders that have not renewed in time.
    fn expire(&mut self) {
        let now = Instant::now();
        for known in self.known.values_mut().filter(|known| known.expires_at() <= Some(now)) {
            let Some(holder) = known.holder().cloned() else { continue };
            known.expired = true;
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
