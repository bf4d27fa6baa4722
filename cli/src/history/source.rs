//! Histories without a recording: what the lock itself knows.

use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::Instant;

use super::History;
use super::periods::{Event, Period};
use crate::elections::{ElectionStatus, Elections, LeaderStatus};
use crate::view::{Model, Moment, Observation, Origin, Transition};

/// The history in the writes that a bucket still stores, in their order; `None` without any.
pub fn stored(
    election: &str,
    elections: &Elections<'_>,
    statuses: Vec<ElectionStatus>,
    since: Option<OffsetDateTime>,
) -> Option<History> {
    let mut model = Model::new(Origin::of(elections, true, Duration::ZERO));
    let (mut events, mut times) = (Vec::new(), Vec::new());
    let start = Instant::now();
    for status in statuses {
        let wall = status.written.unwrap_or_else(OffsetDateTime::now_utc);
        times.push(wall);
        // The first write of a term, and a tombstone, are from when they say.
        let is_first = status.holder().is_none_or(|holder| holder.token == Some(status.revision));
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
pub fn current(status: ElectionStatus, since: Option<OffsetDateTime>) -> History {
    let now = OffsetDateTime::now_utc();
    let written = status.written.filter(|_| matches!(status.state, LeaderStatus::Vacant(_)));
    let transition = Transition::found(status, written.unwrap_or(now));
    let election = transition.election.clone();
    let event = Event { at: transition.time, transition, learned: now };
    History::new(&election, &[event], Vec::new(), since, now)
}
