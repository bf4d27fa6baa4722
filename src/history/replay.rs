//! Plays a history again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use crate::driver::machine::StateMachine;
use crate::driver::record::{Header, Input, Poll, Polls, Step};
use crate::protocol::{Action, BackoffPolicy, Drain, Event};
use crate::time::clock::Instant;
use crate::util::locked;

/// The protocol of a recorded candidate, made once more.
pub struct Replay {
    machine: StateMachine,
    election: String,
    /// What the back-off policy is to return.
    recorded_polls: Arc<Mutex<VecDeque<Poll>>>,
    polls: Polls,
    now: Instant,
    /// The request in flight to each lock.
    in_flight: BTreeMap<usize, u64>,
}

impl Replay {
    /// Makes the protocol of the `header`, the first line of a history.
    ///
    /// # Errors
    /// [`ReplayError::Unreadable`].
    pub fn new(header: &str) -> Result<Self, ReplayError> {
        let header: Header = serde_json::from_str(header)?;
        let (recorded_polls, polls) = (Arc::default(), Polls::default());
        let recorded =
            |_| RecordedPolicy { recorded: Arc::clone(&recorded_polls), polls: polls.clone() };
        let parts = header.locks.into_iter().map(|lock| lock.into_member(recorded)).collect();
        let machine = StateMachine::new(parts, Drain::new(Duration::ZERO))
            .ok_or(ReplayError::NothingRequired)?;
        let (now, in_flight) = (Instant::ORIGIN, BTreeMap::new());
        Ok(Self { machine, election: header.election, recorded_polls, polls, now, in_flight })
    }

    /// The election.
    pub fn election(&self) -> &str {
        &self.election
    }

    /// The instant of the last line.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Plays a further line, and returns the actions of the protocol.
    ///
    /// # Errors
    /// Where the protocol returns anything else than it did, or the line itself cannot be true.
    /// What follows is then of no use.
    pub fn step(&mut self, line: &str) -> Result<Vec<(usize, Action)>, ReplayError> {
        let recorded: Step<Value, Value> = serde_json::from_str(line)?;
        let input: Input = serde_json::from_value(recorded.input.clone())?;
        same("in", &recorded.input, &input)?;
        self.accept(&input)?;
        locked(&self.recorded_polls).extend(input.polls.iter().cloned());
        self.machine.handle(input.at, input.lock, input.event);
        let output = self.machine.output();
        same("out", &recorded.output, &output)?;
        let polls = self.polls.take();
        if polls != input.polls {
            return Err(differs("polls", &input.polls, &polls));
        }
        for (lock, action) in &output.actions {
            if let Action::Request { id, .. } = action {
                self.in_flight.insert(*lock, *id);
            }
        }
        Ok(output.actions)
    }

    /// Checks what a driver owes the protocol.
    fn accept(&mut self, input: &Input) -> Result<(), ReplayError> {
        if input.at < self.now {
            return Err(ReplayError::TimeRunsBack { from: self.now, to: input.at });
        }
        self.now = input.at;
        if let Event::Response { id, .. } = input.event
            && self.in_flight.remove(&input.lock) != Some(id)
        {
            return Err(ReplayError::NotInFlight { lock: input.lock, id });
        }
        Ok(())
    }
}

fn same(
    what: &'static str,
    recorded: &Value,
    replayed: &impl Serialize,
) -> Result<(), ReplayError> {
    let replayed = serde_json::to_value(replayed)?;
    if *recorded == replayed { Ok(()) } else { Err(differs(what, recorded, &replayed)) }
}

fn differs(
    what: &'static str,
    recorded: &impl Serialize,
    replayed: &impl Serialize,
) -> ReplayError {
    let text = |value: Result<String, _>| {
        value.unwrap_or_else(|error: serde_json::Error| error.to_string())
    };
    let (recorded, replayed) = (serde_json::to_string(recorded), serde_json::to_string(replayed));
    ReplayError::Differs { what, recorded: text(recorded), replayed: text(replayed) }
}

/// Returns what a policy returned when the history was recorded.
struct RecordedPolicy {
    recorded: Arc<Mutex<VecDeque<Poll>>>,
    polls: Polls,
}

impl BackoffPolicy for RecordedPolicy {
    fn delay(&self, attempt: u32, random: f64) -> Duration {
        let recorded = locked(&self.recorded).pop_front();
        let delay = recorded.map_or(Duration::ZERO, |poll| poll.delay);
        self.polls.push(Poll { attempt, random_bits: random.to_bits(), delay });
        delay
    }
}

/// Why a history is not what the protocol does.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// A line that is not of a history.
    #[error("the line cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// A header without a required lock.
    #[error("the header has no lock that is required")]
    NothingRequired,
    /// An instant before the one of the line before.
    #[error("the time runs back from {from:?} to {to:?}")]
    TimeRunsBack {
        /// The instant of the line before.
        from: Instant,
        /// The instant of this line.
        to: Instant,
    },
    /// A response to a request that is not in flight.
    #[error("the response to request {id} of lock {lock} is to no request in flight")]
    NotInFlight {
        /// The lock.
        lock: usize,
        /// The request.
        id: u64,
    },
    /// The protocol returned something else.
    #[error("{what} differs: recorded {recorded}, replayed {replayed}")]
    Differs {
        /// Which part of the line.
        what: &'static str,
        /// As recorded.
        recorded: String,
        /// As replayed.
        replayed: String,
    },
}
