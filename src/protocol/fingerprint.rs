//! What a model checker needs of an elector: a key that two states share where nothing that either
//! may still do differs.
//!
//! No part of the public promise of this library. Every structure is taken apart by name, so that a
//! field added to one does not compile before its part in the key has been decided.

use std::time::Duration;

use super::context::{Context, InFlightRequest, RequestKind, Requests, WriteInDoubt};
use super::cool_down::{CoolDownWait, Predecessor};
use super::crash_release::CrashRelease;
use super::elector::{Elector, Phase};
use super::holding::Holding;
use super::lock_health::{LockHealth, RejectedWrites};
use super::observations::{KnownStepDown, Observations, SeenEntry, Vacancy};
use super::standby::{Plan, Standby};
use super::stepping_down::SteppingDown;
use super::types::{Cause, NotBefore};
use crate::lock::{Nonce, Revision, Token, Tombstone};
use crate::time::clock::Instant;
use crate::time::timing::{Timing, with_drift};
use crate::util::retry::ProtocolRetries;

/// What takes down an elector's key.
///
/// Revisions, nonces and the numbers of writes are kept apart from other words, so that they can be
/// renamed: the machine only compares them. Instants come as what they are before or after now, cut
/// off where the machine stops distinguishing them.
pub trait FingerprintSink {
    /// A word that means itself.
    fn word(&mut self, word: u64);
    /// A revision or a token: only their order matters.
    fn revision(&mut self, revision: Revision);
    /// A candidate: only compared.
    fn nonce(&mut self, nonce: Nonce);
    /// The number of a write of this candidate: only compared.
    fn write(&mut self, number: u64);
}

/// How the parts of a machine are taken down.
pub(super) struct FingerprintWriter<'a> {
    pub now: Instant,
    pub timing: &'a Timing,
    pub longest: Duration,
    pub to: &'a mut dyn FingerprintSink,
}

impl FingerprintWriter<'_> {
    pub fn nanos(duration: Duration) -> u64 {
        u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
    }

    /// An instant that the past takes all meaning from.
    pub fn until(&mut self, at: Instant) {
        self.to.word(Self::nanos(at.saturating_since(self.now)));
    }

    /// An instant that something counts from which lasts no longer than `reach`.
    pub fn since(&mut self, at: Instant, reach: Duration) {
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

    pub fn retries(&mut self, retries: &ProtocolRetries) {
        self.to.word(Self::nanos(retries.clone().delay()));
    }
}

/// What a model checker needs of an elector.
impl Elector {
    /// Draws its randomness from `seed` from here on.
    pub fn reseed(&mut self, seed: u64) {
        self.cx.random = fastrand::Rng::with_seed(seed);
    }

    /// Takes down all that decides what this candidate does from `now` on, as long as its policy
    /// ignores how often it polled, none of Choria's candidates takes part, and it is copied
    /// with one and the same seed before each event.
    pub fn fingerprint(&self, now: Instant, to: &mut dyn FingerprintSink) {
        let Self { cx, phase } = self;
        let longest = cx.capabilities.max_lease;
        let mut writer = FingerprintWriter { now, timing: &cx.settings.timing, longest, to };
        cx.fingerprint(&mut writer);
        match phase {
            Phase::Idle => writer.to.word(0),
            Phase::Finished => writer.to.word(1),
            Phase::Standby(standby) => standby.fingerprint(&mut writer),
            Phase::Holding(holding) => holding.fingerprint(&mut writer),
            Phase::SteppingDown(stepping_down) => stepping_down.fingerprint(&mut writer),
        }
    }
}

impl Context {
    fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self {
            settings,        // what else changes of them is for people
            capabilities: _, // known to the writer
            coverage,
            hint_rate: _,   // the model's locks report all or nothing
            sent_notice: _, // likewise
            latency,
            random: _,
            stopping,
            heard_from_lock,
            leader: _,        // only reported
            pause: _,         // only stated
            previous_term: _, // likewise
            health,
            observed,
            requests,
            actions: _, // drained after each event
        } = self;
        writer.flags(&[*stopping, *heard_from_lock]);
        writer.to.word(settings.readiness as u64);
        writer.to.word(settings.rank as u64);
        writer.to.word(*coverage as u64);
        writer.to.word(FingerprintWriter::nanos(latency.window()));
        health.fingerprint(writer);
        observed.fingerprint(writer, requests.in_flight_since());
        requests.fingerprint(writer);
    }
}

impl Observations {
    /// `in_flight`: when the request in flight was sent, and when the leases seen by then are over.
    fn fingerprint(
        &self,
        writer: &mut FingerprintWriter<'_>,
        in_flight: Option<(Instant, Instant)>,
    ) {
        let Self {
            last_seen,
            seen_leases_end,
            barrier,
            vacancy,
            learned_at,
            step_downs,
            own_cool_down_ends,
            refused_from_create,
            last_over_nothing,
            known_create,
            entry_may_stand_until,
        } = self;
        let saw_others = in_flight.is_some_and(|(_, seen)| *seen_leases_end > seen);
        writer.flags(&[*learned_at == writer.now, saw_others]);
        writer.to.word(in_flight.map_or(9, |(sent, _)| learned_at.cmp(&sent) as i8 as u64));
        let instants = [seen_leases_end, &barrier.at, own_cool_down_ends, entry_may_stand_until];
        for at in instants {
            writer.until(*at);
        }
        writer.to.word(FingerprintWriter::nanos(*refused_from_create));
        writer.to.write(*last_over_nothing);
        writer.each(known_create, FingerprintWriter::revision);
        writer.each(last_seen, |writer, seen| seen.fingerprint(writer));
        writer.each(vacancy, |writer, vacancy| vacancy.fingerprint(writer));
        writer.each(step_downs, |writer, step_down| step_down.fingerprint(writer));
    }
}

impl Requests {
    /// When the request in flight was sent, and until when those might lead whose entries had been
    /// seen by then.
    fn in_flight_since(&self) -> Option<(Instant, Instant)> {
        self.in_flight.as_ref().map(|request| (request.sent, request.seen_leases_end))
    }

    fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self {
            in_flight,
            in_doubt,
            last_request: _,    // greater than all
            last_write: _,      // greater than all
            stored: _,          // no other process writes by this nonce
            last_not_stored: _, // likewise
            create: _,          // of the token's write
        } = self;
        writer.each(in_flight, |writer, request| {
            let InFlightRequest { id: _, sent, kind, over: _, seen_leases_end: _, times_out_at } =
                &**request;
            writer.since(*sent, writer.timing.lease());
            writer.until(*times_out_at);
            match kind {
                RequestKind::Read => writer.to.word(0),
                RequestKind::Write { number } => writer.to.write(*number),
                RequestKind::Release => writer.to.word(1),
                RequestKind::Notify => writer.to.word(2),
                RequestKind::Check => writer.to.word(3),
            }
        });
        writer.each(in_doubt, |writer, WriteInDoubt { number, sent, wait }| {
            writer.to.write(*number);
            writer.since(*sent, writer.timing.lease());
            writer.each(wait.as_deref(), |writer, wait| wait.fingerprint(writer));
        });
    }
}

impl LockHealth {
    fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self {
            failure: _,         // only reported
            only_reads_fail: _, // only reported
            rejected,
        } = self;
        writer.each(rejected.as_deref(), |writer, rejected| {
            let RejectedWrites { over, count, last_write_denied, check_at } = rejected;
            writer.to.word((*count).into());
            writer.each(over, FingerprintWriter::revision);
            writer.flags(&[*last_write_denied]);
            writer.each(check_at, |writer, at| writer.until(*at));
        });
    }
}

impl NotBefore {
    fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self { at, reason: _ } = self;
        writer.until(*at);
    }
}

impl CoolDownWait {
    fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self { not_before, minimum, from_create, predecessor, doubt, max_lease: _ } = self; // it stays
        writer.flags(&[doubt.is_some()]);
        not_before.fingerprint(writer);
        minimum.fingerprint(writer);
        writer.to.word(FingerprintWriter::nanos(*from_create));
        writer.each(predecessor, |writer, predecessor| predecessor.fingerprint(writer));
    }
}

impl SeenEntry {
    fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self { revision, entry, at, from_hint, max_lease_ms: _ } = self; // it stays
        writer.revision(revision);
        // What the machine compares: whose it is, when its lease ends, and when silence means
        // something.
        writer.each(&entry.mark, |writer, mark| {
            writer.to.nonce(mark.write.nonce);
            writer.each(&mark.token, |writer, token| writer.token(*token));
            writer.since(*at, mark.lease);
            let longer = mark.lease.saturating_sub(writer.longest);
            writer.to.word(FingerprintWriter::nanos(longer));
        });
        let silence = writer.timing.lease() / 4 + Duration::from_millis(500);
        writer.since(*at, entry.ttl + silence);
        writer.flags(&[*from_hint]);
    }
}

impl Vacancy {
    fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self { tombstone, previous, first_seen, empty_is_proof, may_be_old } = self;
        let mut reach = with_drift(writer.longest);
        writer.each(tombstone, |writer, (revision, kind)| {
            writer.revision(revision);
            writer.to.word(match kind {
                Tombstone::Released { by, left, cause: _, to: _, pause: _ } => {
                    FingerprintWriter::nanos(*left) << 1 | u64::from(*by == Nonce::NOBODY)
                }
                Tombstone::Expired => u64::MAX,
                Tombstone::Deleted => u64::MAX - 1,
            });
        });
        if let Some((_, Tombstone::Released { left, .. })) = tombstone {
            reach = reach.max(with_drift(*left));
        }
        writer.each(&self.successor(), |writer, to| writer.to.nonce(*to));
        writer.each(previous, FingerprintWriter::revision);
        writer.since(*first_seen, reach);
        writer.flags(&[*empty_is_proof, *may_be_old]);
    }
}

impl KnownStepDown {
    fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self { by, token, revision, clear_at } = self;
        writer.to.nonce(*by);
        writer.token(*token);
        writer.to.revision(*revision);
        writer.until(*clear_at);
    }
}

impl Predecessor {
    fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self { revision, term } = self;
        writer.revision(revision);
        writer.each(term, |writer, (nonce, token)| {
            writer.to.nonce(*nonce);
            writer.token(*token);
        });
    }
}

impl Standby {
    fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self {
            at,
            plan,
            not_before,
            deferring_since,
            polls: _,
            retries,
            resolved,
            read_again,
            recheck,
        } = self;
        writer.to.word(2);
        writer.until(*at);
        writer.until(*not_before);
        writer.each(deferring_since, |writer, since| writer.since(*since, writer.longest));
        writer.flags(&[*resolved, *read_again, *recheck]);
        writer.each(retries, FingerprintWriter::retries);
        match plan {
            Plan::Read => writer.to.word(0),
            Plan::Acquire { expected } => {
                writer.to.word(1);
                writer.each(expected, FingerprintWriter::revision);
            }
        }
    }
}

impl Holding {
    fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self {
            token,
            revision,
            since: _, // for people
            deadline,
            wait,
            sent,
            began,
            renew_at,
            retries,
            last_failure: _, // for people: an expiry and a denial are left alike
            check,
            check_from,
            drains: _, // only stated
        } = self;
        writer.to.word(3);
        writer.token(*token);
        writer.revision(revision);
        writer.until(*deadline);
        writer.flags(&[*began, *check]);
        if !began {
            writer.flags(&[*sent < wait.not_before.at]);
            wait.fingerprint(writer);
        }
        writer.until(*renew_at);
        writer.each(retries, FingerprintWriter::retries);
        writer.until(*check_from);
    }
}

impl SteppingDown {
    fn fingerprint(&self, writer: &mut FingerprintWriter<'_>) {
        let Self {
            cause,
            step,
            revision,
            token,
            began: _, // decides nothing in here
            notify,
            release,
            to,
            work_stopped,
            deadline,
            at,
            tries_end,
            retries,
        } = self;
        writer.to.word(4);
        writer.to.word(match cause {
            Cause::Superseded { .. } => 0,
            Cause::Expired { .. } | Cause::Denied { .. } => 1,
            _ => 2, // are left alike
        });
        writer.to.word(*step as u64);
        writer.each(revision, FingerprintWriter::revision);
        writer.each(token, |writer, token| writer.token(*token));
        writer.each(to, |writer, to| writer.to.nonce(*to));
        writer.flags(&[*notify, *release, *work_stopped]);
        for instant in [deadline, at, tries_end] {
            writer.until(*instant);
        }
        writer.each(retries, FingerprintWriter::retries);
    }
}

impl CrashRelease {
    /// Takes down all that decides what is done from `now` on.
    pub fn fingerprint(&self, now: Instant, to: &mut dyn FingerprintSink) {
        let Self { term, timeout: _, until, at, held, pause: _, retries, refused, outcome } = self;
        to.nonce(term.nonce);
        to.revision(Revision(term.token.0));
        for instant in [until, at] {
            to.word(instant.saturating_since(now).as_nanos() as u64);
        }
        to.word(retries.clone().delay().as_nanos() as u64);
        to.word(u64::from(*refused) << 1 | u64::from(outcome.is_some()));
        if let Some(held) = held {
            to.revision(*held);
        }
    }
}
