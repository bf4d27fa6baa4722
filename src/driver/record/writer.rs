//! Writes the history of a candidate while it runs.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;

use super::line::{Header, Input, LockHeader, Output, Poll, Polls, Step};
use crate::protocol::{Action, BackoffPolicy, Event, MemberSettings, delay_of};
use crate::time::clock::Instant;

/// Takes the lines of a history, one by one.
pub type Sink = Box<dyn FnMut(&str) + Send>;

/// Records what passes between a driver and its machine.
pub(crate) struct HistoryWriter {
    sink: Sink,
    polls: Polls,
    /// Written down, and not yet performed.
    actions: VecDeque<(usize, Action)>,
}

impl HistoryWriter {
    /// Where there is a sink: writes the header, and has the back-off policies of `parts` report
    /// what they return.
    pub fn begin(
        election: &str,
        parts: Vec<MemberSettings>,
        sink: Option<Sink>,
    ) -> (Vec<MemberSettings>, Option<Self>) {
        let Some(sink) = sink else { return (parts, None) };
        let mut writer = Self { sink, polls: Polls::default(), actions: VecDeque::new() };
        let headers = parts.into_iter().map(|MemberSettings { settings, capabilities, need }| {
            LockHeader { need, capabilities, settings }
        });
        let header = Header { election: election.to_owned(), locks: headers.collect() };
        writer.write(&header);
        let observed = |inner| ObservedPolicy { inner, polls: writer.polls.clone() };
        let parts = header.locks.into_iter().map(|lock| lock.into_member(observed)).collect();
        (parts, Some(writer))
    }

    /// Writes down an event, and what came of it.
    pub fn write_step(&mut self, at: Instant, lock: usize, event: Event, output: Output) {
        let polls = self.polls.take();
        let step = Step { input: Input { at, lock, event, polls }, output };
        self.write(&step);
        self.actions.extend(step.output.actions);
    }

    pub fn poll_action(&mut self) -> Option<(usize, Action)> {
        self.actions.pop_front()
    }

    fn write(&mut self, line: &impl Serialize) {
        // A line that cannot be written is one that no replay accepts.
        let text = serde_json::to_string(line).unwrap_or_else(|error| error.to_string());
        (self.sink)(&text);
    }
}

/// A back-off policy, and what it returned.
struct ObservedPolicy {
    inner: Box<dyn BackoffPolicy>,
    polls: Polls,
}

impl BackoffPolicy for ObservedPolicy {
    fn delay(&mut self, attempt: u32, random: f64) -> Duration {
        let delay = delay_of(&mut *self.inner, attempt, random);
        self.polls.push(Poll { attempt, random_bits: random.to_bits(), delay });
        delay
    }
}
