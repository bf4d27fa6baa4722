//! What a model checker needs of an elector: a key that two states share where nothing that either
//! may still do differs.
//!
//! No part of the public promise of this library. Every structure is taken apart by name, in its
//! own file, so that a field added to one does not compile before its part in the key has been
//! decided.

use std::time::Duration;

use crate::lock::{Nonce, Revision, Token};
use crate::time::clock::Instant;
use crate::time::timing::Timing;
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
