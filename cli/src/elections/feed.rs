//! Every change of the elections of a lock, as it happens.
//!
//! What is not heard is found by looking: an entry that expired without a marker, what happened while the connection was
//! lost, and everything in a lock that tells nothing. Where no server ends the term of a holder that does not renew, it
//! ends here when its record has not changed for a lease on our own clock.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::selected::{Ear, Offices};
use super::status::{Holder, Holding, Office};
use super::watcher::Heard;
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
    pub now: Holding,
    /// Whether this is how it was found, rather than a change.
    pub found: bool,
}

/// A view of the elections of a lock that keeps itself up to date.
pub struct Feed<'a> {
    offices: &'a Offices<'a>,
    only: Option<&'a str>,
    ear: Ear,
    ticks: Interval,
    known: HashMap<String, Known>,
    first: bool,
    waiting: VecDeque<Event>,
}

/// What was seen of an election.
struct Known {
    office: Office,
    /// Since when it is so.
    since: Instant,
    /// Whether its holder has not renewed in time.
    lapsed: bool,
}

impl Known {
    /// Who leads.
    fn holder(&self) -> Option<&Holder> {
        self.office.holder().filter(|_| !self.lapsed)
    }

    /// When its holder leads no more, unless something is written before; none where the server tells.
    fn lapses_at(&self) -> Option<Instant> {
        Some(time_format::after(self.since, self.holder()?.lease?))
    }

    /// Whether this is the same, however often the rest of what carries it was written.
    fn is_same_record(&self, office: &Office) -> bool {
        self.office.holding == office.holding && self.office.written == office.written
    }
}

impl<'a> Feed<'a> {
    /// Watches one election, or all.
    pub async fn open(offices: &'a Offices<'a>, only: Option<&'a str>) -> Result<Self, CliError> {
        let ear = offices.listen(only).await?;
        let mut ticks = interval(if ear.hears_all() { HEARD } else { UNHEARD });
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (known, waiting) = Default::default();
        Ok(Self { offices, only, ear, ticks, known, first: true, waiting })
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
                heard = self.ear.next() => match heard {
                    Heard::Office(office) => self.take(office),
                    Heard::Look => self.look().await?,
                    Heard::Failed(failure) => return Err(failure),
                },
                _ = self.ticks.tick() => self.look().await?,
                () = sleep_until(lapse.unwrap_or_else(Instant::now)), if lapse.is_some() => self.lapse(),
            }
        }
    }

    async fn look(&mut self) -> Result<(), CliError> {
        let offices = match self.only {
            Some(name) => self.offices.read(name).await?.into_iter().collect(),
            None => self.offices.all().await?,
        };
        let there: HashSet<String> = offices.iter().map(|office| office.election.clone()).collect();
        offices.into_iter().for_each(|office| self.take(office));
        let gone: Vec<Office> = (self.known.values())
            .filter(|known| known.holder().is_some() && !there.contains(&known.office.election))
            .map(|known| known.office.clone())
            .collect();
        for office in gone {
            let holding = Holding::Vacant(self.offices.cause_of_absence().to_owned());
            self.take(Office { holding, written: Some(OffsetDateTime::now_utc()), ..office });
        }
        self.first = false;
        Ok(())
    }

    fn take(&mut self, office: Office) {
        let before = self.known.get(&office.election);
        // Looking and hearing overtake each other.
        if before.is_some_and(|before| {
            before.office.revision > office.revision
                || before.office.revision == office.revision && before.holder().is_none()
        }) {
            return;
        }
        let same = before.filter(|before| before.is_same_record(&office));
        let (since, lapsed) =
            same.map_or_else(|| (Instant::now(), false), |same| (same.since, same.lapsed));
        let held = before.and_then(Known::holder).cloned();
        let changed = match (&held, &office.holding) {
            (Some(before), Holding::Held(now)) => !before.is_same_term(now),
            (None, Holding::Vacant(_)) => before.is_none() && self.first && self.only.is_some(),
            _ => !lapsed,
        };
        if changed {
            self.waiting.push_back(Event {
                election: office.election.clone(),
                time: office.written.unwrap_or_else(OffsetDateTime::now_utc),
                revision: office.revision,
                before: held,
                now: office.holding.clone(),
                found: self.first && before.is_none(),
            });
        }
        self.known.insert(office.election.clone(), Known { office, since, lapsed });
    }

    /// StopSignals the terms of those who have not renewed in time.
    fn lapse(&mut self) {
        let now = Instant::now();
        for known in self.known.values_mut().filter(|known| known.lapses_at() <= Some(now)) {
            let Some(holder) = known.holder().cloned() else { continue };
            known.lapsed = true;
            self.waiting.push_back(Event {
                election: known.office.election.clone(),
                time: OffsetDateTime::now_utc(),
                revision: known.office.revision,
                before: Some(holder),
                now: Holding::Vacant("expired".to_owned()),
                found: false,
            });
        }
    }
}
