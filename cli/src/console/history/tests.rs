//! Tests of histories: what is recorded, and what is made of it.

use std::time::Duration;

use incumbent::Token;
use incumbent::lock::Revision;
use time::OffsetDateTime;

use super::*;
use crate::console::model::Transition;
use crate::lock::elections::{ElectionState, Holder};

/// A Tuesday at noon.
const NOON: i64 = 1_700_049_600;

fn at(seconds: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(NOON + seconds).expect("a time")
}

fn holder(leader: &str, token: u64) -> Holder {
    Holder::new(leader, Some(Token(token)))
}

/// A transition that was learned as it happened.
fn event(seconds: i64, now: Result<Holder, &str>, before: Option<Holder>) -> Event {
    let now = match now {
        Ok(holder) => ElectionState::Held(holder),
        Err(cause) => ElectionState::Vacant(cause.into()),
    };
    let transition = Transition {
        election: "e".to_owned(),
        time: at(seconds),
        revision: Revision(1),
        before,
        now,
        found: false,
        leaderless: None,
        unrenewed: None,
    };
    Event { transition, at: at(seconds), learned: at(seconds) }
}

fn leads(seconds: i64, leader: &str, token: u64) -> Event {
    event(seconds, Ok(holder(leader, token)), None)
}

fn lost(seconds: i64, leader: &str, token: u64, cause: &str) -> Event {
    event(seconds, Err(cause), Some(holder(leader, token)))
}

fn found(mut event: Event, since: Option<i64>) -> Event {
    event.transition.found = true;
    event.transition.before = None;
    if let ElectionState::Held(holder) = &mut event.transition.now {
        holder.since = since.map(|since| at(since).into());
    }
    event
}

fn observed(periods: &[(i64, i64)]) -> Vec<Period> {
    periods.iter().map(|(begin, end)| Period { begin: at(*begin), end: at(*end) }).collect()
}

fn history(events: &[Event], periods: &[(i64, i64)], until: i64) -> History {
    History::new("e", events, observed(periods), None, at(until))
}

fn history_of_two_periods(events: &[Event]) -> History {
    history(events, &[(0, 20), (60, 100)], 100)
}

/// Each span in a line: who, from when to when, and why. An unseen time has a tilde.
fn lines(history: &History) -> Vec<String> {
    let time = |edge: &super::spans::Edge| {
        let about = if edge.seen { "" } else { "~" };
        format!("{about}{}", edge.at.unix_timestamp() - NOON)
    };
    let line = |span: &Span| {
        let who = match &span.state {
            State::Led { leader, token } => format!("{leader} {}", token.unwrap_or_default()),
            State::Leaderless => "none".to_owned(),
        };
        let end = span.end.as_ref().map_or_else(|| "now".to_owned(), time);
        let cause = span.cause.as_deref().unwrap_or("?");
        format!("{who}: {}..{end} {cause}", time(&span.begin))
    };
    history.spans().map(line).collect()
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn terms_gaps_and_their_causes_follow_each_other() {
    let mut second = leads(12, "b", 2);
    second.transition.leaderless = Some(Duration::from_millis(1999));
    let third = event(50, Ok(holder("c", 3)), Some(holder("b", 2)));
    let events = [leads(0, "a", 1), lost(10, "a", 1, "expired"), second, third];
    let history = history(&events, &[(0, 100)], 100);
    let expected =
        ["a 1: 0..10 expired", "none: 10..12 expired", "b 2: 12..50 ?", "c 3: 50..now ?"];
    assert_eq!(lines(&history), expected);
    let statistics = history.statistics();
    assert_eq!((statistics.led, statistics.leaderless), (SECOND * 98, SECOND * 2));
    assert_eq!(statistics.unknown, Duration::ZERO);
    assert_eq!(statistics.ends(), 2);
    assert_eq!(statistics.changes["expired"], 1);
    assert_eq!(statistics.changes["unknown"], 1);
    assert_eq!(statistics.mean_between_changes(), Some(SECOND * 50));
    let (begin, length, cause) = statistics.longest_gap.clone().expect("a gap");
    assert_eq!((begin, length), (at(10), Duration::from_millis(1999)), "as it was measured");
    assert_eq!(cause.as_deref(), Some("expired"));
    let json = history.json();
    assert_eq!(json["spans"][1]["kind"], "gap");
    assert_eq!(json["spans"][1]["ms"], 1999);
    assert_eq!(json["spans"][3]["end"], serde_json::Value::Null);
    assert_eq!(json["statistics"]["availability_percent"], 98.0);
}

#[test]
fn time_in_which_nobody_recorded_is_neither_available_nor_not() {
    // The recorder is killed at 20, while `a` leads, and finds `b` at 60.
    let events =
        [leads(0, "a", 1), found(leads(60, "b", 2), Some(45)), lost(70, "b", 2, "released")];
    let history = history(&events, &[(0, 20), (60, 100)], 100);
    assert_eq!(
        lines(&history),
        ["a 1: 0..~20 ?", "b 2: ~45..70 released", "none: 70..now released"]
    );
    let unknown: Vec<_> = history.unknown();
    assert_eq!(unknown, observed(&[(20, 60)]));
    let statistics = history.statistics();
    assert_eq!((statistics.led, statistics.leaderless), (SECOND * 30, SECOND * 30));
    assert_eq!(statistics.unknown, SECOND * 40);
    assert_eq!(statistics.changes["unknown"], 1);
}

#[test]
fn term_continues_through_a_time_in_which_nobody_recorded() {
    let events = [leads(0, "a", 1), found(leads(60, "a", 1), Some(0)), leads(90, "b", 2)];
    let mut last = events[2].clone();
    last.transition.before = Some(holder("a", 1));
    let events = [events[0].clone(), events[1].clone(), last];
    let history = history(&events, &[(0, 20), (60, 100)], 100);
    assert_eq!(lines(&history), ["a 1: 0..90 ?", "b 2: 90..now ?"]);
    assert_eq!(history.statistics().led, SECOND * 60, "the rest is unknown");
}

#[test]
fn transitions_learned_after_an_outage_have_no_known_time() {
    // The lock's clock says when: within the outage.
    let mut late = event(40, Ok(holder("b", 2)), Some(holder("a", 1)));
    late.learned = at(60);
    let events = [leads(0, "a", 1), late];
    let history = history(&events, &[(0, 20), (60, 100)], 100);
    assert_eq!(lines(&history), ["a 1: 0..~20 ?", "b 2: ~40..now ?"]);
    // It says nothing: what the first read shows happened before.
    let mut first = event(60, Ok(holder("b", 2)), Some(holder("a", 1)));
    let read = |event: &Event| {
        let events = [leads(0, "a", 1), event.clone()];
        lines(&history_of_two_periods(&events))
    };
    assert_eq!(read(&first), ["a 1: 0..~20 ?", "b 2: ~60..now ?"]);
    // It says that it happened after the outage.
    (first.at, first.learned) = (at(61), at(61) + SECOND / 100);
    assert_eq!(read(&first), ["a 1: 0..61 ?", "b 2: 61..now ?"]);
}

#[test]
fn missed_transitions_end_a_term_where_it_was_last_known() {
    let events = [leads(0, "a", 1), lost(50, "b", 2, "expired"), leads(55, "c", 3)];
    let history = history(&events, &[(0, 100)], 100);
    assert_eq!(lines(&history), ["a 1: 0..~0 ?", "none: ~50..55 expired", "c 3: 55..now ?"]);
}

#[test]
fn history_without_its_first_rows_begins_with_that_leader() {
    let history = history(&[lost(50, "a", 1, "evicted")], &[(20, 100)], 100);
    assert_eq!(lines(&history), ["a 1: ~20..50 evicted", "none: 50..now evicted"]);
}

#[test]
fn days_are_counted_in_utc() {
    let midnight = 12 * 3600;
    let events =
        [leads(0, "a", 1), lost(midnight - 60, "a", 1, "expired"), leads(midnight + 60, "b", 2)];
    let history = history(&events, &[(0, 2 * midnight)], 2 * midnight);
    let days = history.statistics().days;
    let days: Vec<_> = days.iter().map(|(date, day)| (date.to_string(), *day)).collect();
    let day = |led, changes| Day { led: SECOND * led, leaderless: SECOND * 60, changes };
    assert_eq!(
        days,
        [
            ("2023-11-15".to_owned(), day(midnight as u32 - 60, 1)),
            ("2023-11-16".to_owned(), day(midnight as u32 - 60, 0)),
        ]
    );
}

#[test]
fn requested_time_cuts_spans_and_statistics() {
    let events = [leads(0, "a", 1), lost(10, "a", 1, "expired"), leads(30, "b", 2)];
    let history = History::new("e", &events, observed(&[(0, 100)]), Some(at(20)), at(100));
    assert_eq!(lines(&history), ["none: 10..30 expired", "b 2: 30..now ?"]);
    let statistics = history.statistics();
    assert_eq!((statistics.led, statistics.leaderless), (SECOND * 70, SECOND * 10));
    assert_eq!(statistics.ends(), 0);
    assert_eq!(statistics.longest_gap.map(|(_, length, _)| length), Some(SECOND * 10));
}

#[test]
fn wrong_clock_of_the_lock_changes_no_length() {
    for wrong in [-7200, -30, 7200] {
        let mut events = [leads(10, "a", 1), lost(50, "a", 1, "released"), leads(60, "b", 2)];
        events.iter_mut().for_each(|event| event.at = at(wrong) + (event.learned - at(0)));
        let history = history(&events, &[(0, 100)], 100);
        let expected = ["a 1: 10..50 released", "none: 50..60 released", "b 2: 60..now ?"];
        assert_eq!(lines(&history), expected, "{wrong}");
    }
}

#[test]
fn any_events_and_periods_make_a_history() {
    type Raw = (i64, i64, u8, u8, bool, Option<i64>, Option<u32>);
    type Times = Vec<(i64, i64)>;
    let time = |nanos: i64| {
        OffsetDateTime::from_unix_timestamp_nanos(nanos.into()).expect("within 64 bits")
    };
    bolero::check!().with_type::<(Vec<Raw>, Times, Option<i64>, i64)>().for_each(
        |(raw, times, since, until)| {
            let events: Vec<Event> = raw
                .iter()
                .map(|(dated, learned, who, before, found, since, leaderless)| {
                    let named = |who: &u8| {
                        let mut holder = holder(["a", "b", "\u{1b}[2J"][usize::from(*who % 3)], 1);
                        holder.since = since.map(|since| time(since).into());
                        holder
                    };
                    let now = if who % 4 == 3 { Err("expired") } else { Ok(named(who)) };
                    let mut event = event(0, now, (before % 3 > 0).then(|| named(before)));
                    event.transition.found = *found;
                    let leaderless = leaderless.map(u64::from).map(Duration::from_millis);
                    event.transition.leaderless = leaderless;
                    Event { at: time(*dated), learned: time(*learned), ..event }
                })
                .collect();
            let periods = times
                .iter()
                .map(|(begin, end)| Period { begin: time(*begin), end: time(*end) })
                .collect();
            let history = History::new("e", &events, periods, since.map(time), time(*until));
            let spans: Vec<&Span> = history.spans().collect();
            for pair in spans.windows(2) {
                let end = pair[0].end.expect("only the last one is open").at;
                assert!(pair[0].begin.at <= end && end <= pair[1].begin.at, "{pair:?}");
            }
            let statistics = history.statistics();
            assert!(statistics.days.len() <= 366, "{statistics:?}");
            let whole = history.begin().map(|begin| history.until() - begin);
            let whole = whole.and_then(|whole| Duration::try_from(whole).ok()).unwrap_or_default();
            assert!(statistics.known() <= whole, "{statistics:?}");
            history.json();
        },
    );
}
