//! One state in which the model may be, and what it makes of what was seen.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use incumbent::lock::{
    Content, Entry, LockErrorKind, Reading, Record, Release, Request, Revision, Tombstone, Write,
};
use incumbent::protocol::Answer;
use incumbent_sim::{Server, Time};

use crate::store::Rules;

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
    told: VecDeque<(Record, Option<Option<Revision>>)>,
}

impl Branch {
    pub fn new(server: Server) -> Self {
        Self { server, names: BTreeMap::new(), told: VecDeque::new() }
    }

    /// From when on what is stored may be gone.
    pub fn expires(&self) -> Option<Time> {
        let frees = self.server.keeping.frees();
        self.server.last.as_ref().filter(|_| frees).map(|last| last.expires)
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
            self.told.push_back((last.record.clone(), last.previous));
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
        self.same(real.revision, model.revision)
            && same_content(&real.content, &model.content, rules)
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
                let mut instants = [answered, sent, sent.saturating_sub(blur)].into_iter();
                instants.find_map(|at| self.finds(at, found, rules)).into_iter().collect()
            }
            // It may have been applied or not.
            (_, Outcome::Stored(Err(LockErrorKind::Unknown))) => {
                let mut applied = self.clone();
                let stored = applied.act(sent, act) == Ok(true);
                if stored { vec![self.clone(), applied] } else { vec![self.clone()] }
            }
            (_, Outcome::Stored(outcome)) => {
                let mut branch = self.clone();
                let agrees = match (branch.act(sent, act), outcome) {
                    (Ok(true), Ok(Some(real))) => {
                        let model = branch.server.last_revision().unwrap_or(Revision(0));
                        branch.same(*real, model)
                    }
                    (Ok(_), Ok(None)) => true,
                    (Err(model), Err(real)) => model == *real,
                    _ => false,
                };
                if agrees { vec![branch] } else { Vec::new() }
            }
            _ => Vec::new(),
        }
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
                match act {
                    Act::Purge => self.server.purge(at),
                    _ => self.server.delete(at),
                }
                self.will_tell();
                return Ok(self.server.last.is_some());
            }
            Act::Vanish => {
                self.server.vanish();
                return Ok(false);
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
                *real == model
            }
            (Err(real), Err(model)) => *real == model.kind,
            _ => false,
        };
        agrees.then_some(branch)
    }

    /// Whether it has told this, next; `after_gap`: or later, if some of it went unheard.
    pub fn tells(
        &mut self,
        record: &Record,
        previous: Option<Option<Revision>>,
        rules: Rules,
        after_gap: bool,
    ) -> bool {
        while let Some((told, replaced)) = self.told.pop_front() {
            let previous = previous.map(|real| real.map(|real| self.known(real)));
            let same_previous = previous == replaced;
            if same_previous && self.same_record(record, &told, rules) {
                return true;
            }
            if !after_gap {
                return false;
            }
        }
        false
    }

    /// Whether all that it tells was heard.
    pub fn is_silent(&self) -> bool {
        self.told.is_empty()
    }

    /// In words.
    pub fn describe(&self) -> String {
        let names: Vec<_> = self.names.iter().rev().take(3).collect();
        let last = self.server.last.as_ref().map(|last| (&last.record, last.expires));
        format!("holds {last:?}; has still to tell {:?}; revisions {names:?}", self.told)
    }
}

/// Whether both mean the same; the real one may live a little longer.
fn same_content(real: &Content, model: &Content, rules: Rules) -> bool {
    match (real, model) {
        (Content::Held(real), Content::Held(model)) => {
            let Entry { identity, mark, life, advertisement } = real;
            let lives = *life >= model.life && *life <= model.life + rules.slack;
            lives
                && *identity == model.identity
                && *mark == model.mark
                && *advertisement == model.advertisement
        }
        (Content::Vacant(Tombstone::Released { by, left }), Content::Vacant(model)) => {
            *model == Tombstone::Released { by: *by, left: *left }
        }
        (Content::Vacant(real), Content::Vacant(model)) => real == model,
        _ => false,
    }
}
