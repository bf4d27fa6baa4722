//! All states in which the model may be, as far as an observer can distinguish them.

use std::fmt;
use std::time::Duration;

use incumbent::lock::{LockErrorKind, Record, Revision};
use incumbent_sim::{Retention, Time};

use crate::acting::{Act, Outcome};
use crate::branch::Branch;
use crate::store::{HintDelivery, Rules};

/// How long after the end of its life an entry may still be there. Nothing measures how fast a
/// store is; a store that takes longer than this never frees it.
pub const NEVER: Duration = Duration::from_secs(60);

/// By how much two clocks of one machine may differ, and to what a store rounds.
pub(crate) const TOLERANCE: Duration = Duration::from_millis(10);

/// The states of the model which agree with all that was seen of one election.
#[derive(Debug, Clone)]
pub struct Model {
    branches: Vec<Branch>,
    rules: Rules,
    gap: Gap,
    /// How much later the store may have been made than the model has it.
    blur: Duration,
    /// Whether the server goes away in the middle of requests.
    server_away: bool,
    /// Whether what holds the elections is deleted.
    is_gone: bool,
    /// How many requests replicas without a leader refused.
    pub leaderless: u64,
}

/// Whether some hints may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gap {
    None,
    Open,
    /// Not any more after the next received hint.
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
    /// An election without a holder so far.
    pub fn new(rules: Rules) -> Self {
        Self {
            branches: vec![Branch::new(rules)],
            rules,
            gap: Gap::None,
            blur: Duration::ZERO,
            server_away: false,
            is_gone: false,
            leaderless: 0,
        }
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
        if (self.server_away || self.rules.replicated) && self.is_refused_while_away(outcome) {
            self.leaderless += u64::from(!self.server_away && !self.is_gone);
            return Ok(());
        }
        self.expire(answered);
        let (rules, blur) = (self.rules, self.blur);
        let after = |branch: &Branch| branch.after((sent, answered), blur, act, outcome, rules);
        let alive = |branch: &&Branch| branch.expires().is_none_or(|at| sent <= at + NEVER);
        let next: Vec<Branch> = self.branches.iter().filter(alive).flat_map(after).collect();
        self.become_one_of(next, || {
            format!("{act:?} between {sent:?} and {answered:?}: {outcome:?}")
        })
    }

    /// Whether the server, while it comes and goes or its replicas have no leader, executes nothing
    /// and reports that; one of Kubernetes knows of no permissions at first.
    fn is_refused_while_away(&self, outcome: &Outcome) -> bool {
        let (Outcome::Read(Err(kind)) | Outcome::Stored(Err(kind))) = outcome else { return false };
        let denies = self.rules.retention == Retention::Forever;
        *kind == LockErrorKind::Unavailable || (denies && *kind == LockErrorKind::Denied)
    }

    /// A listener received a write, not later than at `at`.
    ///
    /// # Errors
    /// If no state allows it.
    pub fn receive(
        &mut self,
        at: Time,
        record: &Record,
        previous: Option<Option<Revision>>,
    ) -> Result<(), Difference> {
        self.expire(at);
        let (rules, gap) = (self.rules, self.gap != Gap::None);
        let mut next: Vec<Branch> = Vec::new();
        for branch in &self.branches {
            for told in branch.delivers(at, record, previous, rules, gap) {
                if !next.iter().any(|known| known.is_like(&told)) {
                    next.push(told);
                }
            }
        }
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

    /// Whether a state is left in which all was received; then the others are dropped, unless the
    /// next hint may show that the last one was another.
    pub fn settle(&mut self) -> bool {
        let silent = self.branches.iter().any(Branch::is_silent);
        if silent && self.rules.hint_delivery == HintDelivery::Every {
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

    /// When the life of what is held will be over, in every state.
    pub fn life_ends(&self) -> Option<Time> {
        self.branches.iter().filter_map(Branch::life_ends).max()
    }

    /// Hints sent until now may never be received, as a read was suggested instead.
    pub fn is_to_be_looked_at(&mut self) {
        if self.rules.hint_delivery == HintDelivery::Last {
            self.branches.iter_mut().for_each(Branch::is_to_be_looked_at);
        }
    }

    /// From now on requests may fail as the server is not there; or no more.
    pub fn loses_server(&mut self, is_away: bool) {
        self.server_away = is_away;
    }

    /// The store is deleted.
    pub fn take_away(&mut self) {
        self.is_gone = true;
        for branch in &mut self.branches {
            branch.remake(Time::MAX);
        }
    }

    /// The store was made again between the two instants.
    pub fn bring_back(&mut self, (from, to): (Time, Time)) {
        self.is_gone = false;
        self.blur = to - from;
        for branch in &mut self.branches {
            branch.remake(from);
        }
    }

    /// From now on some hints may be lost.
    pub fn loses_hearing(&mut self) {
        self.gap = Gap::Open;
    }

    /// From now on all hints are received again.
    pub fn receives_again(&mut self) {
        if self.gap == Gap::Open {
            self.gap = Gap::Closing;
        }
    }
}
