//! One state in which the model may be, and what it makes of what was seen.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use incumbent::lock::{
    Content, Entry, LockErrorKind, Mark, Reading, Record, Request, Revision, Tombstone,
};
use incumbent::protocol::Response;
use incumbent_sim::{LoneLock, Retention, Server, Time};

use crate::acting::{Act, Outcome};
use crate::model::TOLERANCE;
use crate::store::{Deed, HintDelivery, Rules};

/// How many received writes are kept because they may be delivered again.
const MAX_DELIVERED: usize = 16;

/// One state in which the model may be.
#[derive(Debug, Clone)]
pub struct Branch {
    /// The model.
    pub server: Server,
    /// The model of an object and of a lock on it, which replaces that of the server.
    pub object: Option<LoneLock>,
    /// The model's revision of each real one.
    names: BTreeMap<Revision, Revision>,
    /// The hints that a listener has still to receive.
    told: VecDeque<Told>,
    /// By how much later the last write may have been stored than the model has it.
    late: Duration,
}

/// A write, as a listener receives it.
#[derive(Debug, Clone, PartialEq)]
struct Told {
    record: Record,
    previous: Option<Option<Revision>>,
    /// From when on its expiry may be delivered.
    over: Option<Time>,
    /// Whether it was received; it may be delivered again.
    heard: bool,
}

impl Branch {
    pub fn new(rules: Rules) -> Self {
        let mut server = Server::new(rules.ttl, rules.retention, Duration::ZERO);
        server.per_write_ttl = rules.per_write_ttl;
        server.dates_foreign = rules.dates_foreign;
        let object = match rules.retention {
            Retention::Objects { hashed } => Some(LoneLock::new(hashed, rules.ttl)),
            _ => None,
        };
        let (names, told, late) = (BTreeMap::new(), VecDeque::new(), Duration::ZERO);
        Self { server, object, names, told, late }
    }

    /// What holds it is gone, until `made`.
    pub fn remake(&mut self, made: Time) {
        match &mut self.object {
            // What objects are in is there all along.
            Some(object) if made == Time::MAX => object.delete(),
            Some(_) => {}
            None if self.server.retention != Retention::Forever => self.server.remake(made),
            None if made == Time::MAX => self.server.vanish(),
            None => {}
        }
    }

    fn last_revision(&self) -> Option<Revision> {
        match &self.object {
            Some(object) => object.newest(),
            None => self.server.last_revision(),
        }
    }

    /// From when on what is stored may be gone.
    pub fn expires(&self) -> Option<Time> {
        let frees = self.server.retention.frees();
        self.server.last.as_ref().filter(|_| frees).map(|last| last.expires)
    }

    /// When the life is over of what is held.
    pub fn life_ends(&self) -> Option<Time> {
        let last = self.server.last.as_ref();
        let is_held = |content: &Content| matches!(content, Content::Held(_));
        self.expires().or(last.filter(|last| is_held(&last.record.content)).map(|it| it.expires))
    }

    /// What becomes of it when what is stored has outlived its life.
    pub fn expired(&self) -> Self {
        let mut branch = self.clone();
        if branch.server.expire(self.expires().unwrap_or(Time::MAX)) {
            branch.will_deliver();
        }
        branch
    }

    /// The state after the marker of what is stored here, if replicas may have agreed on it before
    /// they stored what `branch` has: it comes second, and takes its place.
    fn marker_after(&self, branch: &Self, now: Time, rules: Rules) -> Option<Self> {
        let overdue = self.expires().is_some_and(|at| at <= now + TOLERANCE);
        (rules.replicated && overdue && self.server.leaves_marker()).then(|| {
            let mut marked = branch.clone();
            marked.server.store_marker(now);
            marked.will_deliver();
            marked
        })
    }

    /// Whether the two cannot be distinguished.
    pub fn is_like(&self, other: &Self) -> bool {
        let last = |branch: &Self| {
            let last = branch.server.last.as_ref();
            last.map(|last| (last.record.clone(), last.expires))
        };
        last(self) == last(other) && self.told == other.told && self.names == other.names
    }

    pub fn will_deliver(&mut self) {
        if let Some(last) = &self.server.last {
            let (record, previous) = (last.record.clone(), last.previous);
            let over = self.server.judged_at();
            self.told.push_back(Told { record, previous, over, heard: false });
            while self.told.front().is_some_and(|told| told.heard)
                && self.told.len() > MAX_DELIVERED
            {
                self.told.pop_front();
            }
        }
    }

    /// The model's word for a real revision; one that it never gave out for what it does not know.
    pub fn known(&self, real: Revision) -> Revision {
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

    /// The states in which the model may be after `act`, which came to `outcome` and took effect
    /// between the two instants, in a store that is up to `blur` younger than the model has it.
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
                // A store that judges by its clock stored the last write a little later than the
                // model has it.
                let (late, by) = match rules.retention {
                    Retention::Rows => (self.late + TOLERANCE, TOLERANCE),
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
            (_, Outcome::Stored(Err(LockErrorKind::OutcomeUnknown))) => {
                let mut applied = self.clone();
                applied.late = answered - sent;
                let mut after = vec![self.clone()];
                if applied.act(sent, act) == Ok(true) {
                    after.extend(self.marker_after(&applied, answered, rules));
                    after.push(applied);
                }
                after
            }
            (_, Outcome::Stored(outcome)) => {
                let mut branch = self.clone();
                let done = branch.act(sent, act);
                if done == Ok(true) {
                    branch.late = answered - sent;
                }
                let agrees = match (done, outcome) {
                    (Ok(true), Ok(Some(real))) => {
                        let model = branch.last_revision().unwrap_or(Revision(0));
                        branch.same(*real, model)
                    }
                    (Ok(_), Ok(None)) => true,
                    (Err(model), Err(real)) => self.fails_alike(model, *real, sent, rules),
                    _ => false,
                };
                if !agrees {
                    return Vec::new();
                }
                let marked = match act {
                    // What the marker replaces is gone.
                    Act::Deed(Deed::Vanish, _) => {
                        self.marker_after(self, answered, rules).map(|_| self.expired())
                    }
                    _ if done == Ok(true) => self.marker_after(&branch, answered, rules),
                    _ => None,
                };
                [branch].into_iter().chain(marked).collect()
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

    /// The state after a read, if it is one that could find this.
    fn finds(
        &self,
        at: Time,
        found: &Result<Reading, LockErrorKind>,
        rules: Rules,
    ) -> Option<Self> {
        let mut branch = self.clone();
        let (answer, _) = branch.apply(at, &Request::Read { timeout: Duration::ZERO });
        let Response::Read(expected) = answer else { return None };
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

    /// The states after it has delivered this, next; `after_gap`: or later, if some hints were
    /// lost.
    pub fn delivers(
        &self,
        at: Time,
        record: &Record,
        previous: Option<Option<Revision>>,
        rules: Rules,
        after_gap: bool,
    ) -> Vec<Self> {
        let in_order = rules.hint_delivery == HintDelivery::Every;
        let next = if in_order && !after_gap { 1 } else { self.told.len() };
        let told = self.told.iter().enumerate().take(next);
        let after = told.filter_map(|(index, told)| {
            let mut branch = self.clone();
            if !branch.is_delivered(at, told, record, previous, rules) {
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

    fn is_delivered(
        &mut self,
        at: Time,
        told: &Told,
        record: &Record,
        previous: Option<Option<Revision>>,
        rules: Rules,
    ) -> bool {
        // The one before may not have been received.
        let follows = match (previous, told.previous) {
            (Some(Some(real)), Some(Some(model))) => self.same(real, model),
            (None, _) if rules.hint_delivery == HintDelivery::Last => true,
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

    /// Hints sent until now may never be received.
    pub fn is_to_be_looked_at(&mut self) {
        self.told.iter_mut().for_each(|told| told.heard = true);
    }

    /// Whether all of its hints were received.
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
            let Entry { identity, mark, ttl: life, advertisement } = held;
            let lives = *life >= model.ttl && *life <= model.ttl + rules.slack;
            lives
                && *identity == model.identity
                && same_mark(mark.as_ref(), model.mark.as_ref(), real.revision, rules)
                && *advertisement == model.advertisement
        }
        (Content::Vacant(real), Content::Vacant(model)) => real == model,
        _ => false,
    }
}

/// The token of a term that begins is its own revision, whether that is stated or not.
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
