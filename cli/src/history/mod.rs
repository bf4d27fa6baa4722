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
//! [`Transition::json`]: crate::view::Transition::json

mod json;
mod periods;
mod recording;
mod source;
mod spans;
mod statistics;
#[cfg(test)]
mod tests;

use time::OffsetDateTime;

use self::periods::Periods;
pub use self::periods::{Event, Period};
pub use self::recording::{MIN_SIZE, Observation, Recording, WriteError, Writer};
pub use self::source::{current, stored};
pub use self::spans::{Span, State};
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
