//! What a model checker needs of a campaign: copies of it, and a key that two states share where nothing that either
//! may still do tells them apart.
//!
//! No part of the public promise of this library. Every structure is taken apart by name, so that a field added to the
//! machine does not compile before somebody has decided what it means here.

use std::time::Duration;

use super::backoff::BackoffPolicy;
use super::elector::{Campaign, Phase};
use super::holding::Office;
use super::requests::{Kind, Outstanding, Pending};
use super::retries::Retries;
use super::standby::{Plan, Standby};
use super::types::Settings;
use super::vacancy::{Conceded, Predecessor, Sighting, Vacancy, Wait};
use crate::lock::{Nonce, Revision, Token, Tombstone};
use crate::time::clock::Instant;
use crate::time::timing::{Timing, with_drift};

/// What takes down a campaign's key.
///
/// Revisions, nonces and the numbers of writes are told apart from other words, so that they can be renamed: the machine
/// only compares them. Instants come as what they are before or after now, cut off where the machine
/// stops telling them apart.
pub trait Sketch {
    /// A word that stands for itself.
    fn word(&mut self, word: u64);
    /// A revision or a token: only their order matters.
    fn revision(&mut self, revision: Revision);
    /// A campaign: only compared.
    fn nonce(&mut self, nonce: Nonce);
    /// The number of a write of this campaign: only compared.
    fn write(&mut self, number: u64);
}

impl Campaign {
    /// A copy that draws its randomness from `seed` from here on, and has a policy of its own.
    pub fn fork(&self, seed: u64, backoff: Box<dyn BackoffPolicy>) -> Self {
        let s = &self.settings;
        Self {
            settings: Settings {
                identity: s.identity.clone(),
                nonce: s.nonce,
                advertisement: s.advertisement.clone(),
                timing: s.timing,
                cool_down: s.cool_down,
                backoff,
                takeover_delay: s.takeover_delay,
                priority: s.priority,
                choria_peers: s.choria_peers,
                stands: s.stands,
                seed,
                origin_unix_ms: s.origin_unix_ms,
            },
            capabilities: self.capabilities.clone(),
            phase: self.phase.clone(),
            outstanding: self.outstanding.clone(),
            pending: self.pending.clone(),
            last_seen: self.last_seen.clone(),
            rights_seen_end: self.rights_seen_end,
            vacancy: self.vacancy.clone(),
            learned_at: self.learned_at,
            conceded: self.conceded.clone(),
            coverage: self.coverage,
            hearing: self.hearing.clone(),
            random: fastrand::Rng::with_seed(seed),
            stopping: self.stopping,
            heard_from_lock: self.heard_from_lock,
            own_cool_down_ends: self.own_cool_down_ends,
            work_may_last_until: self.work_may_last_until,
            refused_wait: self.refused_wait,
            last_over_nothing: self.last_over_nothing,
            known_create: self.known_create,
            entry_may_stand_until: self.entry_may_stand_until,
            leader: self.leader.clone(),
            trouble: self.trouble.clone(),
            only_reading_fails: self.only_reading_fails,
            refusals: self.refusals.clone(),
            actions: self.actions.clone(),
            next_request: self.next_request,
            next_write: self.next_write,
        }
    }

    /// Takes down all that decides what this campaign does from `now` on, as long as its policy ignores how often it
    /// polled, no campaigner of Choria's takes part, and it is copied with one and the same seed before each event.
    pub fn sketch(&self, now: Instant, to: &mut dyn Sketch) {
        let Self {
            settings: Settings { timing, .. }, // which do not change
            capabilities,
            phase,
            outstanding,
            pending,
            last_seen,
            rights_seen_end,
            vacancy,
            learned_at,
            conceded,
            coverage,
            hearing,
            random: _,
            stopping,
            heard_from_lock,
            own_cool_down_ends,
            work_may_last_until,
            refused_wait,
            last_over_nothing,
            known_create,
            entry_may_stand_until,
            leader: _,             // only told
            trouble: _,            // only told
            only_reading_fails: _, // only told
            refusals,
            actions: _,      // drained after each event
            next_request: _, // greater than all
            next_write: _,   // greater than all
        } = self;
        let longest = capabilities.max_lease;
        let mut pen = Pen { now, timing, longest, to };
        let sent = outstanding.as_ref().map(|outstanding| outstanding.sent);
        let saw_others = outstanding.as_ref().is_some_and(|o| *rights_seen_end > o.rights_seen_end);
        pen.flags(&[*stopping, *heard_from_lock, *learned_at == now, saw_others]);
        pen.to.word(sent.map_or(9, |sent| learned_at.cmp(&sent) as i8 as u64));
        pen.to.word(*coverage as u64);
        pen.to.word(nanos(hearing.window()));
        let instants =
            [rights_seen_end, own_cool_down_ends, work_may_last_until, entry_may_stand_until];
        for at in instants {
            pen.until(*at);
        }
        pen.to.word(nanos(*refused_wait));
        pen.to.write(*last_over_nothing);
        pen.each(known_create, Pen::revision);
        let (refused, over) = refusals.parts();
        pen.to.word(refused.into());
        pen.each(&over, Pen::revision);
        pen.each(outstanding, Pen::outstanding);
        pen.each(pending, Pen::pending);
        pen.each(last_seen, Pen::sighting);
        pen.each(vacancy, Pen::vacancy);
        pen.each(conceded, |pen, Conceded { by, token, revision, clear_at }| {
            pen.to.nonce(*by);
            pen.token(*token);
            pen.to.revision(*revision);
            pen.until(*clear_at);
        });
        match phase {
            Phase::Idle => pen.to.word(0),
            Phase::Finished => pen.to.word(1),
            Phase::Standby(standby) => pen.standby(standby),
            Phase::Office(office) => pen.office(office),
            Phase::Leaving(leaving) => leaving.sketch(&mut pen),
        }
    }
}

/// How the parts of a machine are taken down.
pub(super) struct Pen<'a> {
    now: Instant,
    timing: &'a Timing,
    longest: Duration,
    pub to: &'a mut dyn Sketch,
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Pen<'_> {
    /// An instant that the past takes all meaning from.
    pub fn until(&mut self, at: Instant) {
        self.to.word(nanos(at.saturating_since(self.now)));
    }

    /// An instant that something counts from which lasts no longer than `reach`.
    fn since(&mut self, at: Instant, reach: Duration) {
        self.until(at + reach);
    }

    pub fn flags(&mut self, flags: &[bool]) {
        self.to.word(flags.iter().fold(1, |word, flag| word << 1 | u64::from(*flag)));
    }

    pub fn token(&mut self, token: Token) {
        self.to.revision(Revision(token.0));
    }

    pub fn each<'t, T: 't>(
        &mut self,
        all: impl IntoIterator<Item = &'t T>,
        one: impl Fn(&mut Self, &'t T),
    ) {
        for item in all {
            self.to.word(1);
            one(self, item);
        }
        self.to.word(0);
    }

    pub fn revision(&mut self, revision: &Revision) {
        self.to.revision(*revision);
    }

    pub fn retries(&mut self, retries: &Retries) {
        self.to.word(nanos(retries.clone().next().unwrap_or_default()));
    }

    fn outstanding(&mut self, outstanding: &Outstanding) {
        let Outstanding { id: _, sent, kind, over: _, rights_seen_end: _, gives_up_at } =
            outstanding;
        self.since(*sent, self.timing.lease());
        self.until(*gives_up_at);
        match kind {
            Kind::Read => self.to.word(0),
            Kind::Write { number } => self.to.write(*number),
            Kind::Release => self.to.word(1),
            Kind::Concede => self.to.word(2),
        }
    }

    fn pending(&mut self, Pending { number, sent, wait }: &Pending) {
        self.to.write(*number);
        self.since(*sent, self.timing.lease());
        self.each(wait.as_deref(), |pen, Wait { until, after_create, floor, concedes }| {
            pen.until(*until);
            pen.to.word(nanos(*after_create));
            pen.until(*floor);
            pen.each(concedes, Self::predecessor);
        });
    }

    fn predecessor(&mut self, Predecessor { revision, term }: &Predecessor) {
        self.revision(revision);
        self.each(term, |pen, (nonce, token)| {
            pen.to.nonce(*nonce);
            pen.token(*token);
        });
    }

    fn sighting(&mut self, Sighting { revision, entry, at, heard }: &Sighting) {
        self.revision(revision);
        // What the machine asks of it: whose it is, when its right ends, and when silence means something.
        self.each(&entry.mark, |pen, mark| {
            pen.to.nonce(mark.write.nonce);
            pen.each(&mark.token, |pen, token| pen.token(*token));
            pen.since(*at, mark.lease);
        });
        let silence = self.timing.lease() / 4 + Duration::from_millis(500);
        self.since(*at, entry.ttl + silence);
        self.flags(&[*heard]);
    }

    fn vacancy(&mut self, vacancy: &Vacancy) {
        let Vacancy { tombstone, previous, first_seen, empty_is_proof } = vacancy;
        let mut reach = with_drift(self.longest);
        self.each(tombstone, |pen, (revision, kind)| {
            pen.revision(revision);
            pen.to.word(match kind {
                Tombstone::Released { left, .. } => nanos(*left),
                Tombstone::Expired => u64::MAX,
                Tombstone::Deleted => u64::MAX - 1,
            });
        });
        if let Some((_, Tombstone::Released { left, .. })) = tombstone {
            reach = reach.max(with_drift(*left));
        }
        self.each(previous, Self::revision);
        self.since(*first_seen, reach);
        self.flags(&[*empty_is_proof]);
    }

    fn standby(&mut self, standby: &Standby) {
        let Standby { at, plan, not_before, polls: _, retries, settled, look_again } = standby;
        self.to.word(2);
        self.until(*at);
        self.until(*not_before);
        self.flags(&[*settled, *look_again]);
        self.each(retries, Self::retries);
        match plan {
            Plan::Look => self.to.word(0),
            Plan::Ask { expected } => {
                self.to.word(1);
                self.each(expected, Self::revision);
            }
        }
    }

    fn office(&mut self, office: &Office) {
        let Office {
            token,
            revision,
            since: _, // for people
            deadline,
            lead_at,
            floor,
            concedes,
            began,
            renew_at,
            retries,
            last_failure: _, // for people: an expiry and a denial are left alike
            check,
            check_from,
        } = office;
        self.to.word(3);
        self.token(*token);
        self.revision(revision);
        self.until(*deadline);
        self.flags(&[*began, *check]);
        if !began {
            self.until(*lead_at);
            self.until(*floor);
            self.each(concedes, Self::predecessor);
        }
        self.until(*renew_at);
        self.each(retries, Self::retries);
        self.until(*check_from);
    }
}
