//! Every change of the elections of a bucket, as it happens.
//!
//! Stored writes are heard by a plain subscription where the bucket repeats them, as campaigners hear them. What that
//! does not tell is found by looking: an entry that expired without a marker, what happened while the connection was
//! lost, and everything in a bucket that repeats nothing.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use async_nats::{Message, Subscriber};
use futures_util::StreamExt;
use time::OffsetDateTime;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::office::{Holder, Holding, Office, Offices};
use crate::failure::{Code, Failure, one_line};
use crate::when;

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

/// A view of the elections of a bucket that keeps itself up to date.
pub struct Feed<'a> {
    offices: &'a Offices<'a>,
    only: Option<&'a str>,
    heard: Subscriber,
    /// What the subjects begin with that are heard, and whether only stored writes are.
    prefix: String,
    stored: bool,
    ticks: Interval,
    known: HashMap<String, Office>,
    first: bool,
    waiting: std::collections::VecDeque<Event>,
}

impl<'a> Feed<'a> {
    /// Watches one election, or all.
    pub async fn open(offices: &'a Offices<'a>, only: Option<&'a str>) -> Result<Self, Failure> {
        let bucket = offices.bucket();
        let info = offices.store.stream.cached_info();
        let repeated = info.config.republish.as_ref().map(|repeat| repeat.destination.clone());
        let stored = repeated.is_some();
        let all = repeated.unwrap_or_else(|| format!("$KV.{bucket}.>"));
        let prefix = all.strip_suffix('>').unwrap_or(&all).to_owned();
        let subject = only.map_or(all, |name| format!("{prefix}{name}"));
        let heard = offices.session.client().subscribe(subject).await.map_err(|error| {
            Failure::new(Code::Failed, format!("watch of bucket {bucket}: {}", one_line(&error)))
        })?;
        let mut ticks = interval(if stored { HEARD } else { UNHEARD });
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (known, waiting) = Default::default();
        Ok(Self { offices, only, heard, prefix, stored, ticks, known, first: true, waiting })
    }

    /// The next change. The first ones tell what is found.
    ///
    /// An error does not end it: the next call goes on.
    pub async fn next(&mut self) -> Result<Event, Failure> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(event);
            }
            tokio::select! {
                message = self.heard.next() => match message {
                    Some(message) if self.stored => self.hear(&message),
                    // Heard before it is stored, or refused: a reason to look.
                    Some(_) => self.look().await?,
                    None => {
                        let message = "the connection to the server ended";
                        return Err(Failure::new(Code::Unreachable, message));
                    }
                },
                _ = self.ticks.tick() => self.look().await?,
            }
        }
    }

    fn hear(&mut self, message: &Message) {
        let Some(headers) = &message.headers else { return };
        let header = |name: &str| headers.get(name).map(|value| value.as_str());
        // Concessions come here, too, and are not stored.
        let stream = format!("KV_{}", self.offices.bucket());
        let stored = header("Nats-Stream") == Some(&stream);
        let revision = header("Nats-Sequence").and_then(|text| text.parse().ok());
        let name = message.subject.as_str().strip_prefix(&self.prefix);
        if let (true, Some(revision), Some(name)) = (stored, revision, name) {
            let now = OffsetDateTime::now_utc();
            let time = header("Nats-Time-Stamp").and_then(when::parse).unwrap_or(now);
            self.take(Office::of_message(name, revision, time, headers, &message.payload));
        }
    }

    async fn look(&mut self) -> Result<(), Failure> {
        let offices = match self.only {
            Some(name) => self.offices.read(name).await?.into_iter().collect(),
            None => self.offices.all().await?,
        };
        let there: HashSet<String> = offices.iter().map(|office| office.election.clone()).collect();
        offices.into_iter().for_each(|office| self.take(office));
        let gone: Vec<Office> = self
            .known
            .values()
            .filter(|office| !there.contains(&office.election))
            .cloned()
            .collect();
        for office in gone {
            let expired = Holding::Vacant("expired".to_owned());
            if office.holder().is_some() {
                let written = OffsetDateTime::now_utc();
                self.take(Office { holding: expired, written, ..office });
            }
        }
        self.first = false;
        Ok(())
    }

    fn take(&mut self, office: Office) {
        let before = self.known.get(&office.election);
        // Looking and hearing overtake each other.
        if before.is_some_and(|before| {
            before.revision > office.revision
                || before.revision == office.revision && before.holder().is_none()
        }) {
            return;
        }
        let held = before.and_then(Office::holder).cloned();
        let changed = match (&held, &office.holding) {
            (Some(before), Holding::Held(now)) => !before.is_same_term(now),
            (None, Holding::Vacant(_)) => before.is_none() && self.first && self.only.is_some(),
            _ => true,
        };
        if changed {
            self.waiting.push_back(Event {
                election: office.election.clone(),
                time: office.written,
                revision: office.revision,
                before: held,
                now: office.holding.clone(),
                found: self.first && before.is_none(),
            });
        }
        self.known.insert(office.election.clone(), office);
    }
}
