//! One state in which the model may be, and what it makes of what was seen.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use incumbent::lock::{
    Content, Entry, LockErrorKind, Mark, Reading, Record, Release, Request, Revision, Tombstone,
    Write,
};
use incumbent::protocol::Answer;
use incumbent_sim::{Keeping, Server, Time};

use crate::model::TOLERANCE;
use crate::store::{Hearing, Rules};

/// How many writes are kept in mind that were heard and may be told again.
const MOST_TOLD: usize = 16;

/// What was done to an election.
#[derive(Debug, Clone)]
pub enum Act {
    /// A read.
    Read,
    /// A conditional write.
    Write(Write),
    /// A conditional delete by the holder.
    Release(Release),
    /// A conditional delete by an operator.
    Evict(Revision),
    /// A delete by somebody.
    Delete,
    /// The same, by a purge of the key.
    Purge,
    /// What is stored was removed without a trace.
    Vanish,
    /// A write by somebody else, over what it expects if that is told.
    Put(Content, Option<Revision>),
}

/// What came of it.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// What a read found.
    Read(Result<Reading, LockErrorKind>),
    /// Whether something was stored, and as which revision, where that was told.
    Stored(Result<Option<Revision>, LockErrorKind>),
}

/// One state in which the model may be.
#[derive(Debug, Clone)]
pub struct Branch {
    /// The model.
    pub server: Server,
    /// The model's revision of each real one.
    names: BTreeMap<Revision, Revision>,
    /// What a listener has still to be told.
    told: VecDeque<Told>,
    /// By how much later the last write may have been stored than the model has it.
    late: Duration,
}

/// A write, as a listener is told of it.
#[derive(Debug, Clone, PartialEq)]
struct Told {
    record: Record,
    previous: Option<Option<Revision>>,
    /// From when on it may be told that its life is over.
    over: Option<Time>,
    /// Whether it was heard; it may be told again.
    heard: bool,
}

impl Branch {
    pub fn new(server: Server) -> Self {
        Self { server, names: BTreeMap::new(), told: VecDeque::new(), late: Duration::ZERO }
    }

    /// From when on what is stored may be gone.
    pub fn expires(&self) -> Option<Time> {
        let frees = self.server.keeping.frees();
        self.server.last.as_ref().filter(|_| frees).map(|last| last.expires)
    }

    /// From when on whoever looks finds its life over.
    pub fn life_ends(&self) -> Option<Time> {
        self.expires().or(self.server.judged_at())
    }

    /// What becomes of it when what is stored has outlived its life.
    pub fn expired(&self) -> Self {
        let mut branch = self.clone();
        if branch.server.expire(self.expires().unwrap_or(Time::MAX)) {
            branch.will_tell();
        }
        branch
    }

    /// Whether nothing can tell the two apart.
    pub fn is_like(&self, other: &Self) -> bool {
        let last = |branch: &Self| {
            let last = branch.server.last.as_ref();
            last.map(|last| (last.record.clone(), last.expires))
        };
        last(self) == last(other) && self.told == other.told && self.names == other.names
    }

    fn will_tell(&mut self) {
        if let Some(last) = &self.server.last {
            let (record, previous) = (last.record.clone(), last.previous);
            let over = self.server.judged_at();
            self.told.push_back(Told { record, previous, over, heard: false });
            while self.told.front().is_some_and(|told| told.heard) && self.told.len() > MOST_TOLD {
                self.told.pop_front();
            }
        }
    }

    /// The model's word for a real revision; one that it never gave out for what it does not know.
    fn known(&self, real: Revision) -> Revision {
        self.names.get(&real).copied().unwrap_or(Revision(u64::MAX))
    }

    /// Takes two revisions for the same; false where they cannot be.
    fn same(&mut self, real: Revision, model: Revision) -> bool {
        if let Some(known) = self.names.get(&real) {
            return *known == model;
        }
        let before = self.names.range(..real).next_back().is_none_or(|(_, known)| *known < model);
        let after = self.names.range(real..).next().is_none_or(|(_, known)| *known > model);
        if before && after {
            self.names.insert(real, model);
        }
        before && after
    }

    fn same_record(&mut self, real: &Record, model: &Record, rules: Rules) -> bool {
        same_content(real, model, rules) && self.same(real.revision, model.revision)
    }

    /// The states in which the model may be after `act`, which came to `outcome` and took effect between the two instants, in a
    /// store that is up to `blur` younger than the model has it.
    pub fn after(
        &self,
        (sent, answered): (Time, Time),
        blur: Duration,
        act: &Act,
        outcome: &Outcome,
        rules: Rules,
    ) -> Vec<Self> {
        match (act, outcome) {
            (Act::Read, Outcome::Read(found)) => {
                // A store that judges by its clock stored the last write a little later than the model has it.
                let (late, by) = match rules.keeping {
                    Keeping::Rows => (self.late + TOLERANCE, TOLERANCE),
                    _ => (Duration::ZERO, Duration::ZERO),
                };
                let instants = [answered + by, sent, sent.saturating_sub(blur.max(late))];
                instants
                    .into_iter()
                    .find_map(|at| self.finds(at, found, rules))
                    .into_iter()
                    .collect()
            }
            // It may have been applied or not.
            (_, Outcome::Stored(Err(LockErrorKind::Unknown))) => {
                let mut applied = self.clone();
                applied.late = answered - sent;
                let stored = applied.act(sent, act) == Ok(true);
                if stored { vec![self.clone(), applied] } else { vec![self.clone()] }
            }
            (_, Outcome::Stored(outcome)) => {
                let mut branch = self.clone();
                let done = branch.act(sent, act);
                if done == Ok(true) {
                    branch.late = answered - sent;
                }
                let agrees = match (done, outcome) {
                    (Ok(true), Ok(Some(real))) => {
                        let model = branch.server.last_revision().unwrap_or(Revision(0));
                        branch.same(*real, model)
                    }
                    (Ok(_), Ok(None)) => true,
                    (Err(model), Err(real)) => self.fails_alike(model, *real, sent, rules),
                    _ => false,
                };
                if agrees { vec![branch] } else { Vec::new() }
            }
            _ => Vec::new(),
        }
    }

    fn fails_alike(
        &self,
        model: LockErrorKind,
        real: LockErrorKind,
        at: Time,
        rules: Rules,
    ) -> bool {
        model == real || (!self.server.exists(at) && real == rules.gone)
    }

    /// Answers whether something was stored.
    fn act(&mut self, at: Time, act: &Act) -> Result<bool, LockErrorKind> {
        let request = match act {
            Act::Read => return Ok(false),
            Act::Write(write) => {
                let expected = write.expected.map(|real| self.known(real));
                Request::Write(Write { expected, ..write.clone() })
            }
            Act::Release(release) => {
                let expected = self.known(release.expected);
                Request::Release(Release { expected, ..release.clone() })
            }
            _ if !self.server.exists(at) => return Err(LockErrorKind::Unavailable),
            Act::Evict(expected) | Act::Put(_, Some(expected))
                if self.server.last_revision() != Some(self.known(*expected)) =>
            {
                return Err(LockErrorKind::Conflict);
            }
            Act::Evict(_) | Act::Delete | Act::Purge => {
                let before = self.server.last_revision();
                match act {
                    Act::Purge => self.server.purge(at),
                    _ => self.server.delete(at),
                }
                let stored = self.server.last_revision() != before;
                if stored {
                    self.will_tell();
                }
                return Ok(stored);
            }
            Act::Vanish => {
                self.server.vanish();
                return Ok(false);
            }
            // Who updates a row that is not there writes nothing.
            Act::Put(..) if self.server.keeping == Keeping::Rows && self.server.last.is_none() => {
                return Err(LockErrorKind::Conflict);
            }
            Act::Put(content, _) => {
                let life = self.server.bucket_ttl;
                self.server.store(at, content.clone(), life);
                self.will_tell();
                return Ok(true);
            }
        };
        let (answer, stored) = self.server.apply(at, &request);
        if stored {
            self.will_tell();
        }
        match answer {
            Answer::Written(Err(failure)) | Answer::Released(Err(failure)) => Err(failure.kind),
            _ => Ok(stored),
        }
    }

    /// The state after a read, if it is one that could find this.
    fn finds(
        &self,
        at: Time,
        found: &Result<Reading, LockErrorKind>,
        rules: Rules,
    ) -> Option<Self> {
        let mut branch = self.clone();
        let (answer, _) = branch.server.apply(at, &Request::Read { timeout: Duration::ZERO });
        let Answer::Read(expected) = answer else { return None };
        let agrees = match (found, expected) {
            (Ok(Reading::Found(real)), Ok(Reading::Found(model))) => {
                branch.same_record(real, &model, rules)
            }
            (Ok(Reading::Empty { proof: real }), Ok(Reading::Empty { proof: model })) => {
                let known = rules.remembers && !self.names.is_empty();
                *real == (model && !known)
            }
            (Ok(Reading::Empty { proof }), Err(_)) => {
                !proof && rules.gone_is_empty && !self.server.exists(at)
            }
            (Err(real), Err(model)) => self.fails_alike(model.kind, *real, at, rules),
            _ => false,
        };
        agrees.then_some(branch)
    }

    /// The states after it has told this, next; `after_gap`: or later, if some of it went unheard.
    pub fn tells(
        &self,
        at: Time,
        record: &Record,
        previous: Option<Option<Revision>>,
        rules: Rules,
        after_gap: bool,
    ) -> Vec<Self> {
        let in_order = rules.hearing == Hearing::Every;
        let next = if in_order && !after_gap { 1 } else { self.told.len() };
        let told = self.told.iter().enumerate().take(next);
        let after = told.filter_map(|(index, told)| {
            let mut branch = self.clone();
            if !branch.is_told(at, told, record, previous, rules) {
                return None;
            }
            match in_order {
                true => drop(branch.told.drain(..=index)),
                false => branch.told[index].heard = true,
            }
            Some(branch)
        });
        after.collect()
    }

    fn is_told(
        &mut self,
        at: Time,
        told: &Told,
        record: &Record,
        previous: Option<Option<Revision>>,
        rules: Rules,
    ) -> bool {
        // The one before may not have been heard.
        let follows = match (previous, told.previous) {
            (Some(Some(real)), Some(Some(model))) => self.same(real, model),
            (None, _) if rules.hearing == Hearing::Last => true,
            (real, model) => real == model,
        };
        if !follows {
            return false;
        }
        let over = told.over.is_some_and(|over| at + TOLERANCE >= over);
        if over && record.content == Content::Vacant(Tombstone::Expired) {
            return self.same(record.revision, told.record.revision);
        }
        self.same_record(record, &told.record, rules)
    }

    /// What was told until now may never be heard.
    pub fn is_to_be_looked_at(&mut self) {
        self.told.iter_mut().for_each(|told| told.heard = true);
    }

    /// Whether all that it tells was heard.
    pub fn is_silent(&self) -> bool {
        self.told.back().is_none_or(|last| last.heard)
    }

    /// In words.
    pub fn describe(&self) -> String {
        let names: Vec<_> = self.names.iter().rev().take(3).collect();
        let last = self.server.last.as_ref().map(|last| (&last.record, last.expires));
        format!("holds {last:?}; has still to tell {:?}; revisions {names:?}", self.told)
    }
}

/// Whether both mean the same; the real one may live a little longer.
fn same_content(real: &Record, model: &Record, rules: Rules) -> bool {
    match (&real.content, &model.content) {
        (Content::Held(held), Content::Held(model)) => {
            let Entry { identity, mark, life, advertisement } = held;
            let lives = *life >= model.life && *life <= model.life + rules.slack;
            lives
                && *identity == model.identity
                && same_mark(mark.as_ref(), model.mark.as_ref(), real.revision, rules)
                && *advertisement == model.advertisement
        }
        (Content::Vacant(real), Content::Vacant(model)) => real == model,
        _ => false,
    }
}

/// The token of a term that begins is its own revision, whether that is said or not.
fn same_mark(real: Option<&Mark>, model: Option<&Mark>, revision: Revision, rules: Rules) -> bool {
    let whole = |mark: &Mark, since_unix_ms: u64| Mark {
        token: mark.token.or(Some(revision.into())),
        since_unix_ms,
        ..mark.clone()
    };
    match (real, model) {
        (Some(real), Some(model)) => {
            let since = if rules.keeps_since { real.since_unix_ms } else { model.since_unix_ms };
            whole(real, since) == whole(model, model.since_unix_ms)
        }
        (real, model) => real == model,
    }
}
