//! Who may write the checkpoint of an election: the rules, as a pure state machine.

use std::sync::Arc;

use crate::lock::{CheckpointVersion, LockErrorKind, StoredCheckpoint, Token};

/// The writes of one term to the checkpoint of its election, one at a time.
///
/// 1. A term claims the checkpoint before it leads: it reads it, and writes what it read with its
///    own token, if nobody else has written in between.
/// 2. Every write is conditional on the version that the term has read or written last. So once a
///    later term has claimed, no write of an earlier one is stored, however late it arrives.
/// 3. A term that reads a greater token than its own writes nothing more.
/// 4. After a conflict or an unknown outcome it reads. What it finds of its own token is one of its
///    own writes: it is confirmed if it is the one in question, and written over if not.
///
/// It performs nothing: [`request`](Self::request) says what to do, and
/// [`handle`](Self::handle) takes the response.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CheckpointWriter {
    token: Token,
    reads_are_durable: bool,
    /// What is stored, as far as this term knows: `None` if it must read.
    known: Option<KnownCheckpoint>,
    /// What is being written.
    save: Save,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct KnownCheckpoint {
    /// `None`: there is none.
    version: Option<CheckpointVersion>,
    saved_unix_ms: u64,
    data: Arc<[u8]>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Save {
    write: u64,
    /// `None`: what is stored already, by a claim.
    data: Option<(Arc<[u8]>, u64)>,
}

/// What a [`CheckpointWriter`] wants to have done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointRequest {
    /// Read what is stored.
    Load,
    /// Write if the last version is the expected one.
    Store {
        /// What to write.
        checkpoint: StoredCheckpoint,
        /// The version that it replaces; `None` if there is none.
        expected: Option<CheckpointVersion>,
    },
}

/// The response to a [`CheckpointRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointResponse {
    /// What is stored.
    Loaded {
        /// The version that a write over it expects; `None` if there is nothing.
        version: Option<CheckpointVersion>,
        /// `None` if there is no checkpoint, or it was deleted.
        checkpoint: Option<StoredCheckpoint>,
    },
    /// The version of what was written.
    Stored(CheckpointVersion),
    /// The request failed.
    Failed(LockErrorKind),
}

/// How far a write has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointProgress {
    /// Perform the next [`request`](CheckpointWriter::request).
    Next,
    /// Perform the next [`request`](CheckpointWriter::request) after a delay.
    Retry,
    /// The write is stored.
    Done,
    /// A later term, with this token, has claimed the checkpoint.
    Superseded(Token),
    /// Trying again does not help, as the lock has said.
    Refused,
}

impl CheckpointWriter {
    /// The writer of the term with this token, which begins with its claim. `write` identifies the
    /// claim among all writes. `reads_are_durable`: whether what a read shows can no longer be
    /// lost.
    pub fn claim(token: Token, write: u64, reads_are_durable: bool) -> Self {
        Self { token, reads_are_durable, known: None, save: Save { write, data: None } }
    }

    /// Begins a write, in the place of one that was given up. `write` identifies it.
    pub fn save(&mut self, write: u64, data: Arc<[u8]>, saved_unix_ms: u64) {
        self.save = Save { write, data: Some((data, saved_unix_ms)) };
    }

    /// What to do next, unless the write is done.
    pub fn request(&self) -> CheckpointRequest {
        let Some(known) = &self.known else { return CheckpointRequest::Load };
        let kept = (Arc::clone(&known.data), known.saved_unix_ms);
        let (data, saved_unix_ms) = self.save.data.clone().unwrap_or(kept);
        let (token, write) = (self.token, self.save.write);
        CheckpointRequest::Store {
            checkpoint: StoredCheckpoint { token, write, saved_unix_ms, data },
            expected: known.version.clone(),
        }
    }

    /// Takes the response to [`request`](Self::request).
    pub fn handle(&mut self, response: CheckpointResponse) -> CheckpointProgress {
        match response {
            CheckpointResponse::Loaded { version, checkpoint: Some(stored) } => {
                self.loaded(version, stored)
            }
            CheckpointResponse::Loaded { version, checkpoint: None } => {
                self.known =
                    Some(KnownCheckpoint { version, saved_unix_ms: 0, data: Arc::default() });
                CheckpointProgress::Next
            }
            CheckpointResponse::Stored(version) => {
                if let CheckpointRequest::Store { checkpoint, .. } = self.request() {
                    self.know(Some(version), checkpoint);
                }
                CheckpointProgress::Done
            }
            CheckpointResponse::Failed(kind) => {
                match kind {
                    // Another write was stored, or this one.
                    LockErrorKind::Conflict | LockErrorKind::OutcomeUnknown => self.known = None,
                    LockErrorKind::Denied | LockErrorKind::Misconfigured => {
                        return CheckpointProgress::Refused;
                    }
                    LockErrorKind::Unavailable | LockErrorKind::Missing => {}
                }
                CheckpointProgress::Retry
            }
        }
    }

    fn loaded(
        &mut self,
        version: Option<CheckpointVersion>,
        stored: StoredCheckpoint,
    ) -> CheckpointProgress {
        if stored.token > self.token {
            return CheckpointProgress::Superseded(stored.token);
        }
        let is_ours = stored.token == self.token && stored.write == self.save.write;
        self.know(version, stored);
        match is_ours && self.reads_are_durable {
            true => CheckpointProgress::Done,
            false => CheckpointProgress::Next,
        }
    }

    fn know(&mut self, version: Option<CheckpointVersion>, stored: StoredCheckpoint) {
        let StoredCheckpoint { saved_unix_ms, data, .. } = stored;
        self.known = Some(KnownCheckpoint { version, saved_unix_ms, data });
    }

    /// The data that is stored, once the claim is done.
    pub fn data(&self) -> Arc<[u8]> {
        self.known.as_ref().map(|known| Arc::clone(&known.data)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_read_confirms_is_rewritten_if_reads_are_not_durable() {
        for durable in [true, false] {
            let mut writer = CheckpointWriter::claim(Token(5), 50, durable);
            writer.handle(CheckpointResponse::Loaded { version: None, checkpoint: None });
            let CheckpointRequest::Store { checkpoint, expected: None } = writer.request() else {
                panic!("a claim writes");
            };
            let unknown = CheckpointResponse::Failed(LockErrorKind::OutcomeUnknown);
            assert_eq!(writer.handle(unknown), CheckpointProgress::Retry);
            assert_eq!(writer.request(), CheckpointRequest::Load);
            let version = CheckpointVersion::number(1);
            let found = CheckpointResponse::Loaded {
                version: Some(version.clone()),
                checkpoint: Some(checkpoint.clone()),
            };
            let expected =
                if durable { CheckpointProgress::Done } else { CheckpointProgress::Next };
            assert_eq!(writer.handle(found), expected);
            if !durable {
                let again = CheckpointRequest::Store { checkpoint, expected: Some(version) };
                assert_eq!(writer.request(), again);
            }
        }
    }
}
