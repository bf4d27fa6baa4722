//! The history of a candidate: what its protocol took in and returned, line by line.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::lock::{Capabilities, Need};
use crate::protocol::{Action, BackoffPolicy, Event, MemberSettings, Settings, State, delay_of};
use crate::time::clock::Instant;
use crate::util::locked;

/// The first line: what the protocol was made from.
#[derive(Debug, Serialize, Deserialize)]
pub struct Header {
    /// The election.
    pub election: String,
    /// Its locks, in the order in which they are acquired.
    pub locks: Vec<LockHeader>,
}

/// What the elector on one lock was created from.
#[derive(Debug, Serialize, Deserialize)]
pub struct LockHeader {
    /// What a term needs of the lock.
    pub need: Need,
    /// What the lock can do.
    pub capabilities: Capabilities,
    /// Identity, nonce, timing, seed and the rest; of the back-off policy, [`Input::polls`] has
    /// what it returned.
    pub settings: Settings,
}

impl LockHeader {
    /// `policy`: what to make of its back-off policy.
    pub(crate) fn into_member<P: BackoffPolicy>(
        mut self,
        policy: impl FnOnce(Arc<dyn BackoffPolicy>) -> P,
    ) -> MemberSettings {
        self.settings.backoff = Arc::new(policy(self.settings.backoff));
        MemberSettings { settings: self.settings, capabilities: self.capabilities, need: self.need }
    }
}

/// Every other line: an event, and what the protocol returned for it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Step<Input, Output> {
    /// An [`Input`].
    #[serde(rename = "in")]
    pub input: Input,
    /// An [`Output`].
    #[serde(rename = "out")]
    pub output: Output,
}

/// What the protocol took in.
#[derive(Debug, Serialize, Deserialize)]
pub struct Input {
    /// When, on the clock of the candidate.
    pub at: Instant,
    /// The lock that a hint, a response or capabilities belong to.
    pub lock: usize,
    /// What happened.
    pub event: Event,
    /// The calls of the back-off policy meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub polls: Vec<Poll>,
}

/// What the protocol returned for it.
#[derive(Debug, Serialize)]
pub struct Output {
    /// What to do, and on which lock.
    pub actions: Vec<(usize, Action)>,
    /// When to wake the protocol, if nothing happens before.
    pub wake: Option<Instant>,
    /// The state of the candidate afterwards.
    pub state: State,
}

/// A call of a back-off policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Poll {
    /// Its first argument.
    pub attempt: u32,
    /// Its second argument, bit by bit.
    pub random_bits: u64,
    /// What it returned.
    pub delay: Duration,
}

/// The calls of the back-off policies of a candidate, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Polls(Arc<Mutex<Vec<Poll>>>);

impl Polls {
    pub fn push(&self, poll: Poll) {
        locked(&self.0).push(poll);
    }

    pub fn take(&self) -> Vec<Poll> {
        std::mem::take(&mut *locked(&self.0))
    }
}

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
    inner: Arc<dyn BackoffPolicy>,
    polls: Polls,
}

impl BackoffPolicy for ObservedPolicy {
    fn delay(&self, attempt: u32, random: f64) -> Duration {
        let delay = delay_of(&*self.inner, attempt, random);
        self.polls.push(Poll { attempt, random_bits: random.to_bits(), delay });
        delay
    }
}
