//! The past of an election: its terms, the gaps without a leader, and statistics of both.
//!
//! [`History`] is pure: it is computed from recorded transitions ([`Event`]) and from the times in
//! which every transition was seen ([`Period`]). Two sources have them:
//!
//! - [`Recording`] reads the file of `incumbent record`. Each call opens the file, reads one
//!   consistent state of it and closes it, beside a recorder that writes.
//!   [`Recording::transitions`] returns what serializes as a line of `election watch -o json`
//!   ([`Transition::json`]), and [`Recording::history`] what `election history -o json` prints
//!   ([`History::json`]).
//! - [`stored`] reads what the bucket of an election still stores.
//!
//! [`RunHistory`] is the past of the jobs of an election: the runs that were recorded, and how many
//! were not.
//!
//! [`Transition::json`]: crate::console::model::Transition::json

mod recording;
mod runs;
mod spans;
mod statistics;
#[cfg(test)]
mod tests;

use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::Instant;

use self::spans::Periods;
use crate::console::model::{Model, Moment, Observation, Origin, Transition};
use crate::lock::elections::{ElectionRecord, ElectionState, Elections};
use crate::output::time_format;

pub use self::recording::{ElectionRun, MIN_SIZE, ObservedPeriod, Recording, WriteError, Writer};
pub use self::runs::{JobStatistics, KnownRun, RunHistory, RunLine};
pub use self::spans::{Event, Period, Span, State};
pub use self::statistics::{Day, Statistics, percent};

/// The past of one election, up to some moment.
#[derive(Debug)]
pub struct History {
    election: String,
    spans: Vec<Span>,
    periods: Periods,
    /// Where the requested time begins.
    since: Option<OffsetDateTime>,
    until: OffsetDateTime,
}

/// A part of a history.
pub enum Part<'h> {
    Span(&'h Span),
    /// Nobody recorded.
    Unknown(Period),
}

impl History {
    /// Computes the history of `election` from events in the order in which they were learned.
    ///
    /// Events of other elections are left out. A time that contradicts the order or the periods,
    /// as of a wrong clock, is moved to the nearest one that does not.
    pub fn new(
        election: &str,
        events: &[Event],
        periods: Vec<Period>,
        since: Option<OffsetDateTime>,
        until: OffsetDateTime,
    ) -> Self {
        let periods = Periods::new(periods, until);
        let events = events.iter().filter(|event| event.transition.election == election);
        let spans = spans::spans(events, &periods, until);
        Self { election: election.to_owned(), spans, periods, since, until }
    }

    /// The terms and gaps that are at least partly in the requested time, the latest one last.
    pub fn spans(&self) -> impl Iterator<Item = &Span> {
        let since = self.since;
        let is_recent = move |span: &&Span| since.is_none_or(|s| span.end_by(self.until) >= s);
        self.spans.iter().filter(is_recent)
    }

    /// The times in which nobody recorded, from the first span on.
    pub fn unknown(&self) -> Vec<Period> {
        let Some(begin) = self.begin() else { return Vec::new() };
        let all = self.periods.unknown(self.until).into_iter();
        let cut = all.map(|p| Period { begin: p.begin.max(begin), end: p.end });
        cut.filter(|p| p.begin < p.end).collect()
    }

    /// The spans and the unknown times, in order.
    pub fn parts(&self) -> Vec<Part<'_>> {
        let spans = self.spans().map(Part::Span);
        let mut parts: Vec<_> =
            spans.chain(self.unknown().into_iter().map(Part::Unknown)).collect();
        parts.sort_by_key(|part| match part {
            Part::Span(span) => span.begin.at,
            Part::Unknown(period) => period.begin,
        });
        parts
    }

    /// How far the history reaches back: the first span, or where the requested time begins.
    pub fn begin(&self) -> Option<OffsetDateTime> {
        let first = self.spans().next()?.begin.at;
        Some(self.since.map_or(first, |since| since.max(first)))
    }

    pub fn until(&self) -> OffsetDateTime {
        self.until
    }

    pub fn statistics(&self) -> Statistics {
        Statistics::new(self)
    }
}

/// The history in the writes that a bucket still stores, in their order; `None` without any.
pub fn stored(
    election: &str,
    elections: &Elections,
    statuses: Vec<ElectionRecord>,
    since: Option<OffsetDateTime>,
) -> Option<History> {
    let mut model = Model::new(Origin::of(elections, true, Duration::ZERO));
    let (mut events, mut times) = (Vec::new(), Vec::new());
    let start = Instant::now();
    for status in statuses {
        let wall = status.written.map_or_else(OffsetDateTime::now_utc, time_format::utc);
        times.push(wall);
        // The first write of a term, and a tombstone, are from when they say.
        let is_first =
            status.holder().is_none_or(|holder| holder.token == Some(status.revision.into()));
        let seen = model.observe(Observation::Written(status), Moment { at: start, wall });
        events.extend(seen.into_iter().map(|mut transition| {
            transition.found &= !is_first;
            Event { transition, at: wall, learned: wall }
        }));
    }
    let (first, last) = (times.iter().min()?, times.iter().max()?);
    let until = OffsetDateTime::now_utc().max(*last);
    let periods = vec![Period { begin: *first, end: until }];
    Some(History::new(election, &events, periods, since, until))
}

/// The history of an election of which only its present is known.
pub fn current(status: ElectionRecord, since: Option<OffsetDateTime>) -> History {
    let now = OffsetDateTime::now_utc();
    let written = status
        .written
        .map(time_format::utc)
        .filter(|_| matches!(status.state, ElectionState::Vacant(_)));
    let transition = Transition::found(status, written.unwrap_or(now));
    let election = transition.election.clone();
    let event = Event { at: transition.time, transition, learned: now };
    History::new(&election, &[event], Vec::new(), since, now)
}
