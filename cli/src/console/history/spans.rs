//! Terms and gaps, from transitions and the times in which every one was seen.

use std::time::Duration;

use time::OffsetDateTime;

use crate::console::model::Transition;
use crate::lock::elections::Holder;
use crate::output::time_format;

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

impl Period {
    pub fn length(&self) -> Duration {
        Duration::try_from(self.end - self.begin).unwrap_or_default()
    }
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

/// How long after it a transition is learned, by a clock that is right.
const LEARNED_WITHIN: time::Duration = time::Duration::seconds(10);

/// A term, or a gap between terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub state: State,
    pub begin: Edge,
    /// `None` if it has not ended.
    pub end: Option<Edge>,
    /// Why the term ended, or that of the gap before it; `None` if it is not known.
    pub cause: Option<String>,
    /// The length of a gap, as it was measured.
    leaderless: Option<Duration>,
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Led { leader: String, token: Option<u64> },
    Leaderless,
}

/// The begin or the end of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    pub at: OffsetDateTime,
    /// Whether it was seen as it happened; else the time is the nearest that is known.
    pub seen: bool,
}

impl Span {
    /// The end, if it was before this moment.
    pub fn end_by(&self, until: OffsetDateTime) -> OffsetDateTime {
        self.end.map_or(until, |end| end.at)
    }

    pub fn is_led(&self) -> bool {
        matches!(self.state, State::Led { .. })
    }

    /// Its length so far.
    pub fn length(&self, until: OffsetDateTime) -> Duration {
        let by_times = Period { begin: self.begin.at, end: self.end_by(until) };
        self.leaderless.unwrap_or_else(|| by_times.length())
    }

    fn is_term_of(&self, holder: &Holder) -> bool {
        match &self.state {
            State::Led { leader, token } => {
                *leader == holder.identity && *token == holder.token.map(|token| token.0)
            }
            State::Leaderless => false,
        }
    }
}

impl State {
    fn of(holder: &Holder) -> Self {
        Self::Led { leader: holder.identity.clone(), token: holder.token.map(|token| token.0) }
    }
}

/// The spans of events in the order in which they were learned.
pub fn spans<'e>(
    events: impl Iterator<Item = &'e Event>,
    periods: &Periods,
    until: OffsetDateTime,
) -> Vec<Span> {
    let mut builder = Builder { spans: Vec::new(), last: None, periods, until };
    events.for_each(|event| builder.take(event));
    builder.spans
}

struct Builder<'p> {
    spans: Vec<Span>,
    /// The time of the last event, and when it was learned.
    last: Option<(OffsetDateTime, OffsetDateTime)>,
    periods: &'p Periods,
    until: OffsetDateTime,
}

impl Builder<'_> {
    fn take(&mut self, event: &Event) {
        let transition = &event.transition;
        let first = event.at.min(event.learned).min(self.until);
        let (last, last_learned) = self.last.unwrap_or((first, first));
        let learned = event.learned.min(self.until).max(last_learned);
        let unknown = (self.last).and_then(|_| self.periods.unknown_at(event.at, learned));
        let unknown = unknown.filter(|unknown| unknown.end > last_learned);
        let at = self.time_of(event, learned, last, unknown.map(|unknown| unknown.begin));
        let outcome = transition.outcome();
        let open = self.spans.last().filter(|span| span.end.is_none());
        let is_same = open.is_some_and(|open| match outcome {
            Ok(holder) => open.is_term_of(holder),
            Err(_) => !open.is_led(),
        });
        if is_same {
            self.last = Some((at, learned));
            return;
        }
        let is_missed = open.is_some_and(|open| match &transition.before {
            _ if transition.found => true,
            Some(before) => !open.is_term_of(before),
            None => open.is_led(),
        });
        let is_seen = unknown.is_none() && !is_missed;
        match open {
            Some(_) if is_seen => {
                self.end(Edge { at, seen: true }, outcome.err(), transition.leaderless);
            }
            Some(_) => {
                // Its state is known until nobody recorded.
                let known = unknown.map_or(last, |unknown| unknown.begin.max(last).min(at));
                self.end(Edge { at: known, seen: false }, None, None);
            }
            None => self.add_earlier(event, at),
        }
        let floor = self.spans.last().and_then(|span| span.end).map(|end| end.at);
        let begin = match outcome {
            // The leader knows since when it leads.
            Ok(holder) if transition.found || !is_seen => {
                let since = holder.since.map_or(at, time_format::utc).min(at);
                Edge { at: floor.map_or(since, |floor| since.max(floor)), seen: false }
            }
            _ => Edge { at, seen: !transition.found && is_seen },
        };
        let state = outcome.map_or(State::Leaderless, State::of);
        let cause = outcome.err().map(str::to_owned);
        self.spans.push(Span { state, begin, end: None, cause, leaderless: None });
        self.last = Some((at, learned));
    }

    /// When the event happened: as it is dated, unless that contradicts what was learned when.
    fn time_of(
        &self,
        event: &Event,
        learned: OffsetDateTime,
        last: OffsetDateTime,
        unknown_since: Option<OffsetDateTime>,
    ) -> OffsetDateTime {
        let is_found = event.transition.found;
        // What is found may be old; what is seen live is learned soon, in one period.
        let earliest = match unknown_since {
            _ if is_found && event.transition.outcome().is_ok() => learned,
            _ if is_found => event.at,
            Some(since) => since,
            None => {
                let begin = self.periods.containing(learned).map(|period| period.begin);
                let soon = learned.checked_sub(LEARNED_WITHIN).unwrap_or(event.at);
                begin.map_or(soon, |begin| begin.max(soon))
            }
        };
        let is_plausible = (earliest..=learned).contains(&event.at);
        (if is_plausible { event.at } else { learned }).max(last)
    }

    /// Ends the open span.
    fn end(&mut self, end: Edge, cause: Option<&str>, leaderless: Option<Duration>) {
        let Some(open) = self.spans.last_mut() else { return };
        let end = Edge { at: end.at.max(open.begin.at), ..end };
        open.end = Some(end);
        match open.state {
            State::Led { .. } => open.cause = cause.map(str::to_owned),
            State::Leaderless if end.seen && open.begin.seen => open.leaderless = leaderless,
            State::Leaderless => {}
        }
    }

    /// Adds the term that the first event ended.
    fn add_earlier(&mut self, event: &Event, at: OffsetDateTime) {
        let Some(before) = event.transition.before.as_ref().filter(|_| !event.transition.found)
        else {
            return;
        };
        let begin = self.periods.containing(at).map_or(at, |period| period.begin);
        self.spans.push(Span {
            state: State::of(before),
            begin: Edge { at: begin.min(at), seen: false },
            end: Some(Edge { at, seen: true }),
            cause: event.transition.outcome().err().map(str::to_owned),
            leaderless: None,
        });
    }
}
