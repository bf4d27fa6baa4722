//! Transitions, the times in which every one was seen, and those between them.

use std::time::Duration;

use time::OffsetDateTime;

use crate::view::Transition;

/// How long after the first read of a period its transitions are learned.
const FIRST_READ: Duration = Duration::from_secs(1);

/// A transition, and when it happened.
#[derive(Debug, Clone)]
pub struct Event {
    pub transition: Transition,
    /// When it happened: by the lock's clock if it has one, else when it was learned.
    pub at: OffsetDateTime,
    /// When it was learned, by the clock of the periods.
    pub learned: OffsetDateTime,
}

/// A time in which every transition of an election was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period {
    pub begin: OffsetDateTime,
    pub end: OffsetDateTime,
}

/// Periods in order, which do not overlap.
#[derive(Debug)]
pub struct Periods(Vec<Period>);

impl Periods {
    /// Sorts and merges periods, which end at `until` at the latest.
    pub fn new(mut list: Vec<Period>, until: OffsetDateTime) -> Self {
        list.sort_unstable();
        let mut merged: Vec<Period> = Vec::new();
        for period in list {
            let Period { begin, end } = Period { end: period.end.min(until), ..period };
            match merged.last_mut() {
                _ if begin > end => {} // of a clock that was set back
                Some(last) if begin <= last.end => last.end = last.end.max(end),
                _ => merged.push(Period { begin, end }),
            }
        }
        Self(merged)
    }

    /// The periods that are partly between these moments.
    pub fn between(
        &self,
        begin: OffsetDateTime,
        end: OffsetDateTime,
    ) -> impl Iterator<Item = &Period> {
        let first = self.0.partition_point(|period| period.end <= begin);
        self.0.iter().skip(first).take_while(move |period| period.begin < end)
    }

    /// The unknown time in which an event of this date happened, if any, that was learned then.
    pub fn unknown_at(&self, at: OffsetDateTime, learned: OffsetDateTime) -> Option<Period> {
        let last = self.0.partition_point(|period| period.begin <= learned).checked_sub(1)?;
        let period = self.0.get(last)?;
        if learned > period.end {
            return Some(Period { begin: period.end, end: learned });
        }
        // Dated before the period, or without a date of its own and learned by the first read.
        let is_first_read = at >= learned && learned - period.begin <= FIRST_READ;
        let before = self.0.get(last.checked_sub(1)?)?;
        (at < period.begin || is_first_read)
            .then_some(Period { begin: before.end, end: period.begin })
    }

    /// The period that contains this moment.
    pub fn containing(&self, moment: OffsetDateTime) -> Option<&Period> {
        let next = self.0.partition_point(|period| period.begin <= moment);
        self.0.get(next.checked_sub(1)?).filter(|period| moment <= period.end)
    }

    /// The times between the periods, and after the last one.
    pub fn unknown(&self, until: OffsetDateTime) -> Vec<Period> {
        let begins = self.0.iter().map(|period| period.end);
        let ends = self.0.iter().skip(1).map(|period| period.begin).chain([until]);
        let between = begins.zip(ends).map(|(begin, end)| Period { begin, end });
        between.filter(|period| period.begin < period.end).collect()
    }
}
