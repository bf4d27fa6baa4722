//! All states in which the model may be, as far as can be told from outside.

use std::fmt;
use std::time::Duration;

use incumbent::lock::{Record, Revision};
use incumbent_sim::{Server, Time};

use crate::branch::{Act, Branch, Outcome};
use crate::store::Rules;

/// How long after the end of its life an entry may still be there. Nothing measures how fast a store is; a store
/// that takes longer than this never frees it.
pub const NEVER: Duration = Duration::from_secs(30);

/// By how much two clocks of one machine may differ, and to what a store rounds.
const TOLERANCE: Duration = Duration::from_millis(10);

/// The states of the model which agree with all that was seen of one election.
#[derive(Debug, Clone)]
pub struct Model {
    branches: Vec<Branch>,
    rules: Rules,
    gap: Gap,
    /// How much later the store may have been made than the model has it.
    blur: Duration,
}

/// Whether some of what is told may go unheard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap {
    None,
    Open,
    /// Nothing any more after the next that is heard.
    Closing,
}

/// Something that the model does not allow.
#[derive(Debug, Clone)]
pub struct Difference {
    /// What was seen.
    pub seen: String,
    /// What the model would have allowed.
    pub model: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seen: {}\nmodel: {}", self.seen, self.model)
    }
}

impl Model {
    /// An election that nobody has ever held.
    pub fn new(rules: Rules) -> Self {
        let mut server = Server::new(rules.ttl, rules.keeping, Duration::ZERO);
        server.per_write_ttl = rules.per_write_ttl;
        Self { branches: vec![Branch::new(server)], rules, gap: Gap::None, blur: Duration::ZERO }
    }

    /// What was done between the two instants came to `outcome`.
    ///
    /// # Errors
    /// Where no state allows it.
    pub fn observe(
        &mut self,
        (sent, answered): (Time, Time),
        act: &Act,
        outcome: &Outcome,
    ) -> Result<(), Difference> {
        self.expire(answered);
        let (rules, blur) = (self.rules, self.blur);
        let after = |branch: &Branch| branch.after((sent, answered), blur, act, outcome, rules);
        let alive = |branch: &&Branch| branch.expires().is_none_or(|at| sent <= at + NEVER);
        let next: Vec<Branch> = self.branches.iter().filter(alive).flat_map(after).collect();
        self.become_one_of(next, || {
            format!("{act:?} between {sent:?} and {answered:?}: {outcome:?}")
        })
    }

    /// A listener was told of a write, not later than at `at`.
    ///
    /// # Errors
    /// Where no state tells it.
    pub fn hear(
        &mut self,
        at: Time,
        record: &Record,
        previous: Option<Option<Revision>>,
    ) -> Result<(), Difference> {
        self.expire(at);
        let (rules, gap) = (self.rules, self.gap != Gap::None);
        let tells = |branch: &Branch| {
            let mut branch = branch.clone();
            branch.tells(record, previous, rules, gap).then_some(branch)
        };
        let next = self.branches.iter().filter_map(tells).collect();
        self.become_one_of(next, || format!("heard at {at:?}: {record:?}, over {previous:?}"))?;
        if self.gap == Gap::Closing {
            self.gap = Gap::None;
        }
        Ok(())
    }

    /// Takes the states into account in which what is stored is freed before `now`.
    fn expire(&mut self, now: Time) {
        let mut next = 0;
        while let Some(branch) = self.branches.get(next) {
            next += 1;
            if branch.expires().is_none_or(|at| at > now + TOLERANCE) {
                continue;
            }
            let expired = branch.expired();
            if !self.branches.iter().any(|known| known.is_like(&expired)) {
                self.branches.push(expired);
            }
        }
    }

    fn become_one_of(
        &mut self,
        next: Vec<Branch>,
        seen: impl FnOnce() -> String,
    ) -> Result<(), Difference> {
        if next.is_empty() {
            let states: Vec<_> = self.branches.iter().map(Branch::describe).collect();
            return Err(Difference { seen: seen(), model: states.join("\n   or: ") });
        }
        self.branches = next;
        Ok(())
    }

    /// Whether a state is left in which all was heard; then the others are given up.
    pub fn settle(&mut self) -> bool {
        let silent = self.branches.iter().any(Branch::is_silent);
        if silent {
            self.branches.retain(Branch::is_silent);
        }
        silent || self.gap != Gap::None
    }

    /// What the states are, in words.
    pub fn describe(&self) -> String {
        let states: Vec<_> = self.branches.iter().map(Branch::describe).collect();
        states.join("\n   or: ")
    }

    /// When what is stored will have outlived its life, in every state.
    pub fn expires(&self) -> Option<Time> {
        self.branches.iter().filter_map(Branch::expires).max()
    }

    /// The store is deleted.
    pub fn take_away(&mut self) {
        for branch in &mut self.branches {
            branch.server.remake(Time::MAX);
        }
    }

    /// The store was made again between the two instants.
    pub fn bring_back(&mut self, (from, to): (Time, Time)) {
        self.blur = to - from;
        for branch in &mut self.branches {
            branch.server.remake(from);
        }
    }

    /// From now on some of what is told may go unheard.
    pub fn loses_hearing(&mut self) {
        self.gap = Gap::Open;
    }

    /// All that is told from now on is heard, once more.
    pub fn hears_again(&mut self) {
        if self.gap == Gap::Open {
            self.gap = Gap::Closing;
        }
    }
}
