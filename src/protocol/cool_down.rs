//! The cool-down: how long a winner waits before it leads, by what it has observed of earlier
//! holders.
//!
//! A winner must not lead while an earlier holder still may. How long that is depends on what the
//! winner knows: a release states that the holder's work has stopped; an expiry shows that its
//! lease has passed; a delete by another process shows nothing. [`Observations::cool_down`] is the
//! table of `docs/protocol.md`, row by row. The spans, on the winner's clock:
//!
//! ```text
//!  last write seen     tombstone seen        create sent     stored
//!        |                   |                    |             |
//!  ------+-------------------+--------------------+-------------+---------------------> time
//!        |                   |                    |             |
//!        |--- lease of the entry: watched, expired but not allowed ---|
//!        |--- tenure of a Choria candidate: foreign ----------------------|
//!                            |--- left: released, stepped down, evicted --|
//!                            |--- tenure of an unknown holder: deleted ------|
//!                                                 |--- policy ---|
//!                                                               |--- from_create: unknown ---|
//!  --- barrier: own work, leases seen before the lock was set back ---|
//!
//!  not_before: the latest end of the spans that begin before the create is stored
//!  minimum:    the latest end of those that no step-down notice shortens: foreign, policy, barrier
//!  leads:      at not_before, and not before from_create has passed since the create was stored
//! ```

use std::time::Duration;

use super::observations::{KnownStepDown, Observations, SeenEntry, Vacancy, max_tenure_of_choria};
use super::types::{CoolDown, NotBefore, Settings, WaitReason};
use crate::lock::{Capabilities, Mark, Nonce, Revision, Token, Tombstone, WriteId};
use crate::time::clock::Instant;
use crate::time::timing::with_drift;

/// How long a winner has to wait: reckoned when its create is sent, and again when the lock has
/// stored it.
#[derive(Debug, Clone, Copy)]
pub(super) struct CoolDownWait {
    pub not_before: NotBefore,
    /// What a step-down notice cannot shorten.
    pub minimum: NotBefore,
    /// Nor before this long after the create was stored: where nothing is known about who wrote
    /// before it.
    pub from_create: Duration,
    /// Whose step-down ends the wait.
    pub predecessor: Option<Predecessor>,
    /// Why only a further write shows that the entry still stands, if so.
    pub doubt: Option<Doubt>,
    /// The lock's longest lease, as known when this was reckoned.
    pub max_lease: Duration,
}

/// Who may have written over an entry without a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// The holder that is waited for, which may be of another program, and may write until its work
    /// has ended: client-go's release does not check whose record it empties. A write that is sent
    /// after the wait shows that the entry stands.
    OtherProgram,
    /// The lock, where it frees what the create replaces: replicas of NATS agree on an expiry
    /// marker first, and store it over what has been written meanwhile. A write that is sent once
    /// the create is acknowledged comes after the marker, unless the server is held up for longer
    /// than a round trip between its decision and the agreement.
    Expiry,
}

impl CoolDownWait {
    /// Has it last until `other`, whatever is received.
    pub fn at_least(mut self, other: NotBefore) -> Self {
        self.minimum = self.minimum.max(other);
        self.not_before = self.not_before.max(other);
        self
    }

    /// A holder has stepped down: if it is the one waited for, the wait is what that one still
    /// waited for.
    pub fn on_step_down(&mut self, step_down: &KnownStepDown) {
        if self.predecessor.is_some_and(|predecessor| predecessor.is(step_down)) {
            let clear = NotBefore::new(step_down.clear_at, WaitReason::PassedOn);
            let clear = self.minimum.max(clear);
            if clear.at < self.not_before.at {
                self.not_before = clear;
            }
            // It is of this library, and writes over nobody's entry.
            self.doubt = self.doubt.filter(|doubt| *doubt != Doubt::OtherProgram);
        }
    }

    /// What is left of it at `now`, before its create is stored.
    pub fn left(&self, now: Instant) -> Duration {
        self.not_before.at.saturating_since(now).max(self.from_create)
    }

    /// The create was stored no later than `created`.
    pub fn begins(&mut self, created: Instant) {
        let unknown = NotBefore::new(created + self.from_create, WaitReason::UnknownHolder);
        self.not_before = self.not_before.max(unknown);
        self.from_create = Duration::ZERO;
        if self.not_before.at <= created {
            self.not_before.reason = WaitReason::NothingToWaitFor;
        }
    }
}

impl Observations {
    /// The wait of a create over `expected` that is sent now: the table, row by row.
    pub fn cool_down(
        &self,
        now: Instant,
        expected: Option<Revision>,
        settings: &Settings,
        capabilities: &Capabilities,
    ) -> CoolDownWait {
        use Tombstone::{Deleted, Expired, Released};
        use WaitReason::{
            ChoriaCandidate, NothingToWaitFor, OwnEarlierTerm, PassedOn, Policy, SeenLease,
            UnknownHolder,
        };
        let &Settings { nonce, with_choria, cool_down: policy, .. } = settings;
        let Capabilities { max_lease, expires_entries: expires, .. } = *capabilities;
        let strict = policy == CoolDown::Strict;
        let choria = max_tenure_of_choria(max_lease);
        let unknown = self.max_tenure_of_unknown(settings, capabilities);
        let blind = Vacancy::empty(now, capabilities.empty_is_proof);
        let known = self.vacancy().filter(|vacancy| vacancy.revision() == expected);
        let vacancy = known.unwrap_or(&blind);
        let seen_at = vacancy.first_seen;
        let watched = vacancy.watched(self.last_seen());
        // A mark that is not of the holder whose entry is gone, as we saw it, proves nothing.
        let mark_is_holders =
            |by| watched.is_none_or(|seen| seen.term().is_some_and(|(holder, _)| holder == by));

        let other_program = (!expires).then_some(Doubt::OtherProgram);

        let row = |at, reason| {
            let not_before = NotBefore::new(at, reason);
            let (minimum, from_create) = (not_before, Duration::ZERO);
            let (predecessor, doubt) = (None, None);
            CoolDownWait { not_before, minimum, from_create, predecessor, doubt, max_lease }
        };
        // Where nothing vouches for the holder, its step-down still may.
        let until_step_down = |at, reason| {
            // Foreign.
            let foreign = match watched {
                Some(SeenEntry { entry, .. }) if entry.mark.is_some() => now,
                Some(_) if !expires => now, // it stated how long to wait
                Some(seen) => seen.at + choria,
                None if with_choria => seen_at + choria,
                None => now,
            };
            let mut wait = row(foreign, ChoriaCandidate);
            wait.not_before = wait.minimum.max(NotBefore::new(at, reason));
            wait.predecessor = vacancy
                .previous
                .map(|revision| Predecessor { revision, term: watched.and_then(SeenEntry::term) });
            let is_ours = watched.is_some_and(|seen| seen.entry.mark.is_some());
            wait.doubt = other_program.filter(|_| !is_ours);
            // Stepped down.
            for step_down in &self.step_downs {
                wait.on_step_down(step_down);
            }
            wait
        };

        let mut wait = match (vacancy.tombstone.as_ref().map(|(_, tombstone)| tombstone), watched) {
            // Released: what the holder vouches for counts from its release, which we saw no
            // earlier.
            (Some(Released { by, left, .. }), _)
                if *by != Nonce::NOBODY && mark_is_holders(*by) =>
            {
                let own = *by == nonce;
                row(seen_at + with_drift(*left), if own { OwnEarlierTerm } else { PassedOn })
            }
            // Watched: by the lease that the entry states, which may be longer than the lock
            // allowed when this candidate last learned of that.
            (Some(Deleted | Released { .. }), Some(seen)) => {
                until_step_down(seen.lease_ends(max_lease, expires), SeenLease)
            }
            // Expired, but watched: no lock keeps an entry for longer than its longest lease, which
            // may be changed while the entry stands. So an expiry proves that a lease has ended
            // which was allowed both when the entry was seen and now. A longer one is waited for by
            // one's own clock; so is any where that is a second witness: a lock whose clock was
            // stepped expires entries early.
            (Some(Expired), Some(seen))
                if strict || seen.from_hint || !expires || !seen.lived_its_lease(max_lease) =>
            {
                row(seen.lease_ends(max_lease, expires), SeenLease)
            }
            (Some(Expired), None) if strict => row(seen_at + unknown, UnknownHolder),
            // The margin for drift need not be added: each right to lead ends that much before its
            // lease.
            (Some(Expired), None) if with_choria => {
                row(seen_at + choria.saturating_sub(max_lease), ChoriaCandidate)
            }
            (Some(Expired), _) => row(now, NothingToWaitFor),
            // Expired, as the lock vouches that there was no write for as long as any lease lasts.
            (None, _) if vacancy.empty_is_proof && !strict => {
                let choria =
                    if with_choria { choria.saturating_sub(max_lease) } else { Duration::ZERO };
                row(self.seen_leases_end, SeenLease)
                    .at_least(NotBefore::new(now + choria, ChoriaCandidate))
            }
            // Evicted: who releases in the place of the holder states how long it may lead.
            (Some(Released { by: Nonce::NOBODY, left, .. }), None) => {
                until_step_down(seen_at + with_drift(*left), SeenLease)
            }
            // Deleted.
            (Some(Deleted | Released { .. }), None) => {
                until_step_down(seen_at + unknown, UnknownHolder)
            }
            // Unknown.
            (None, _) => CoolDownWait {
                from_create: unknown,
                doubt: other_program,
                ..row(self.seen_leases_end, SeenLease)
            },
        };
        let configured = match policy {
            CoolDown::Proven | CoolDown::Strict => Duration::ZERO,
            CoolDown::For(duration) => duration,
        };
        let is_entry = self.last_seen().is_some_and(|seen| Some(seen.revision) == expected);
        if expires && (is_entry || vacancy.may_be_marked(now, max_lease)) {
            wait.doubt = Some(Doubt::Expiry);
        }
        wait.at_least(NotBefore::new(now + configured, Policy)).at_least(self.barrier)
    }

    /// What `wait` comes to now that its create, sent at `sent`, is known to be stored.
    /// `seen_then`: when the leases that had been seen by `sent` are over.
    pub fn cool_down_of_stored(
        &self,
        now: Instant,
        mut wait: CoolDownWait,
        (sent, seen_then): (Instant, Instant),
        capabilities: &Capabilities,
    ) -> CoolDownWait {
        // What was reckoned without reading, now that the lock has stated what emptiness shows.
        let Capabilities { can_read: reads, empty_is_proof, max_lease, .. } = *capabilities;
        let is_blind = !reads && !empty_is_proof && self.vacancy.is_none();
        // A longer lease may have been allowed before this create was sent.
        if is_blind || max_lease > wait.max_lease {
            wait.from_create = wait.from_create.max(with_drift(max_lease));
        }
        // Both may have been at one instant.
        if self.learned_at > sent || self.seen_leases_end > seen_then {
            // An entry that came and went while the create was under way: purged, as it left
            // nothing that refuses us.
            wait = wait.at_least(NotBefore::new(self.seen_leases_end, WaitReason::SeenLease));
        }
        wait.begins(now);
        for step_down in &self.step_downs {
            wait.on_step_down(step_down);
        }
        wait
    }

    /// For how long a holder may lead of which nothing is known. It may be the one that was last
    /// seen, with a lease that is longer than those of the lock as this candidate knows it.
    fn max_tenure_of_unknown(&self, settings: &Settings, capabilities: &Capabilities) -> Duration {
        let Capabilities { max_lease, expires_entries, .. } = *capabilities;
        let is_other = |seen: &&SeenEntry| seen.term().is_none_or(|(by, _)| by != settings.nonce);
        let seen = self.last_seen().filter(is_other);
        let seen = seen.map(|seen| seen.entry.lease(max_lease, expires_entries));
        let full = with_drift(max_lease).max(seen.unwrap_or_default());
        // A holder of ours may itself have been waiting for one of Choria's.
        if settings.with_choria { full.max(max_tenure_of_choria(max_lease)) } else { full }
    }
}

/// What this candidate's own writes had to wait for: whoever follows them waits as long.
impl Observations {
    /// What our own writes so far had to wait for, with those in doubt.
    pub fn own_cool_down<'a>(
        &self,
        now: Instant,
        in_doubt: impl Iterator<Item = &'a CoolDownWait>,
    ) -> Duration {
        in_doubt
            .map(|wait| wait.left(now))
            .chain([self.own_cool_down_ends.saturating_since(now), self.refused_from_create])
            .max()
            .unwrap_or_default()
    }

    fn extend_own_cool_down(&mut self, ends: Instant) {
        self.own_cool_down_ends = self.own_cool_down_ends.max(ends);
    }

    /// A refusal may be wrong: a create that landed can be reported as another candidate's, and one
    /// that was sent twice can land after its refusal. If the entry is ours, this must be waited.
    pub fn record_refused_create(&mut self, wait: &CoolDownWait) {
        self.extend_own_cool_down(wait.not_before.at);
        self.refused_from_create = self.refused_from_create.max(wait.from_create);
    }

    /// No other candidate leads before the entry has expired; nor do we, beside our own work.
    pub fn record_running_work(&mut self, deadline: Instant) {
        self.extend_own_cool_down(deadline);
        self.barrier = self.barrier.max(NotBefore::new(deadline, WaitReason::OwnEarlierTerm));
    }

    /// What comes is older than what is known, or the entry of `own`, a write from before another's
    /// entry was seen: a backup was restored or put back, or it is late. Or what is known was
    /// forged, as anybody may state a lease in a hint: where the lock has a longest lease, none
    /// counts for longer.
    pub fn notice_set_back(
        &mut self,
        at: Instant,
        revision: Revision,
        own: Option<WriteId>,
        capabilities: &Capabilities,
    ) {
        let Capabilities { max_lease, expires_entries, .. } = *capabilities;
        let is_before = |WriteId { nonce, number }| {
            let seen = self.last_seen.as_ref();
            let other = seen.filter(|seen| seen.term().is_none_or(|(holder, _)| holder != nonce));
            other.is_some_and(|seen| seen.at.as_nanos() > number)
        };
        if revision < self.newest_revision() || own.is_some_and(is_before) {
            let longest = with_drift(max_lease).max(max_tenure_of_choria(max_lease));
            let ends = self.seen_leases_end;
            let ends = if expires_entries { ends.min(at + longest) } else { ends };
            self.barrier = self.barrier.max(NotBefore::new(ends, WaitReason::SeenLease));
        }
    }

    /// The entry in the lock is our own. A create over nothing may have landed at any time until
    /// now, after others came and went without a trace: then they are waited for from now on.
    /// `in_doubt`: the outcome of its write is not known.
    pub fn record_own_entry(
        &mut self,
        now: Instant,
        revision: Revision,
        mark: &Mark,
        in_doubt: bool,
        settings: &Settings,
        capabilities: &Capabilities,
    ) {
        let created = mark.token.is_none() && self.known_create != Some(revision);
        if !created || mark.write.number > self.last_over_nothing {
            return;
        }
        self.known_create = Some(revision);
        // Where whatever goes leaves a trace, a create in doubt has landed on what it was sent
        // over.
        if !(in_doubt && capabilities.empty_is_proof) {
            let full = self.max_tenure_of_unknown(settings, capabilities);
            self.extend_own_cool_down(now + full);
        }
        // An entry that came and went meanwhile without a trace: purged.
        self.extend_own_cool_down(self.seen_leases_end);
    }

    /// Our own entry counts as released, with what its write still had to wait.
    pub fn adopt_own_entry(&mut self, now: Instant, revision: Revision, by: Nonce, left: Duration) {
        // Read again, it must not seem that nothing had to be waited for.
        self.extend_own_cool_down(now + left);
        self.refused_from_create = Duration::ZERO;
        let released = Tombstone::Released { by, left, cause: None, to: None, pause: None };
        let tombstone = Some((revision, released));
        self.vacancy = Some(Box::new(Vacancy { tombstone, ..Vacancy::empty(now, false) }));
    }
}

/// The holder whose entry was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Predecessor {
    pub revision: Revision,
    pub term: Option<(Nonce, Token)>,
}

impl Predecessor {
    /// Whether `step_down` is that holder's. A store that was restored gives out revisions again:
    /// the term counts where it was seen.
    pub fn is(&self, step_down: &KnownStepDown) -> bool {
        let of_term = |term| term == (step_down.by, step_down.token);
        self.term.map_or(self.revision == step_down.revision, of_term)
    }
}
