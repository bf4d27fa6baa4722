//! The checkpoint of an election as a lock keeps it, what a term does with it, and what must become
//! of it: for the simulation, the model check and the tests of the protocol.
//!
//! The data of each save is that which its term knows to be stored, and the number of the save: so
//! data tells which saves it follows from.

use std::fmt;
use std::sync::Arc;

use incumbent::lock::{CheckpointVersion, LockErrorKind, StoredCheckpoint, Token};
use incumbent::protocol::{
    CheckpointProgress, CheckpointRequest, CheckpointResponse, CheckpointWriter,
};

/// The checkpoint on a lock, and what must become of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Shelf {
    /// The number of writes that were stored.
    pub version: u64,
    /// The last of them.
    pub stored: Option<StoredCheckpoint>,
    /// What leaders were told to be stored: the longest.
    pub acknowledged: Arc<[u8]>,
    /// The greatest token of a term that was told that it has claimed.
    pub claimed: Option<Token>,
    /// The number of the last save.
    pub last: u16,
}

/// What must not become of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShelfBreach {
    /// A write is stored over one of a greater token, or after a term with a greater one has
    /// claimed.
    Former,
    /// A write is stored that does not follow from a save that was acknowledged.
    Lost,
    /// Two leaders were told of two histories.
    Histories,
    /// A leader was told of another save than its own.
    Mistaken,
}

impl fmt::Display for ShelfBreach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Former => "a former term writes the checkpoint after a later one",
            Self::Lost => "a save that was acknowledged is lost",
            Self::Histories => "two leaders were told of two histories",
            Self::Mistaken => "a leader was told of another save than its own",
        })
    }
}

impl Shelf {
    fn version(&self) -> Option<CheckpointVersion> {
        self.stored.as_ref().map(|_| CheckpointVersion::number(self.version))
    }

    /// Does as a lock what is requested.
    ///
    /// # Errors
    /// What must not be stored, and would be.
    pub fn perform(
        &mut self,
        request: CheckpointRequest,
    ) -> Result<CheckpointResponse, ShelfBreach> {
        let (checkpoint, expected) = match request {
            CheckpointRequest::Load => {
                let (version, checkpoint) = (self.version(), self.stored.clone());
                return Ok(CheckpointResponse::Loaded { version, checkpoint });
            }
            CheckpointRequest::Store { checkpoint, expected } => (checkpoint, expected),
        };
        if self.version() != expected {
            return Ok(CheckpointResponse::Failed(LockErrorKind::Conflict));
        }
        let before = self.stored.as_ref().map(|stored| stored.token).max(self.claimed);
        if before > Some(checkpoint.token) {
            return Err(ShelfBreach::Former);
        }
        if !self.is_followed_by(&checkpoint.data) {
            return Err(ShelfBreach::Lost);
        }
        self.version += 1;
        self.stored = Some(checkpoint);
        Ok(CheckpointResponse::Stored(CheckpointVersion::number(self.version)))
    }

    /// Whether this follows from all that was acknowledged.
    pub fn is_followed_by(&self, data: &[u8]) -> bool {
        data.starts_with(&self.acknowledged)
    }

    /// Whether all that was acknowledged is stored.
    pub fn is_kept(&self) -> bool {
        self.is_followed_by(self.stored.as_ref().map(|stored| &*stored.data).unwrap_or_default())
    }

    /// A leader is told that this is stored.
    fn acknowledge(&mut self, token: Token, data: &Arc<[u8]>) -> Result<(), ShelfBreach> {
        if self.is_followed_by(data) {
            self.acknowledged = Arc::clone(data);
        } else if !self.acknowledged.starts_with(data) {
            return Err(ShelfBreach::Histories);
        }
        self.claimed = self.claimed.max(Some(token));
        Ok(())
    }
}

/// What a term does with the checkpoint: it claims it, and then its work saves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Keeper {
    writer: CheckpointWriter,
    /// Of the term.
    pub token: Token,
    claimed: bool,
    saving: Option<Arc<[u8]>>,
    data: Arc<[u8]>,
}

impl Keeper {
    /// Claims. `write` identifies the claim, and `durable` says whether the reads of the lock are.
    pub fn claim(token: Token, write: u64, durable: bool) -> Self {
        let writer = CheckpointWriter::claim(token, write, durable);
        Self { writer, token, claimed: false, saving: None, data: Arc::default() }
    }

    /// Whether the claim is done.
    pub fn has_claimed(&self) -> bool {
        self.claimed
    }

    /// What it saves; `None` during the claim, and after a save.
    pub fn saving(&self) -> Option<&Arc<[u8]>> {
        self.saving.as_ref()
    }

    /// As last acknowledged.
    pub fn data(&self) -> &Arc<[u8]> {
        &self.data
    }

    /// Begins a save, in the place of one that is under way: of what was last acknowledged, and the
    /// number of the save. `write` identifies it.
    pub fn save(&mut self, write: u64, shelf: &mut Shelf) {
        shelf.last = shelf.last.wrapping_add(1);
        let data: Arc<[u8]> = [&*self.data, &shelf.last.to_be_bytes()].concat().into();
        self.writer.save(write, Arc::clone(&data), 0);
        self.saving = Some(data);
    }

    /// What to do next; `None` if nothing is left to do.
    pub fn request(&self) -> Option<CheckpointRequest> {
        (!self.claimed || self.saving.is_some()).then(|| self.writer.request())
    }

    /// Takes the response to [`request`](Self::request).
    ///
    /// # Errors
    /// What a leader must not be told.
    pub fn handle(
        &mut self,
        response: CheckpointResponse,
        shelf: &mut Shelf,
    ) -> Result<CheckpointProgress, ShelfBreach> {
        let progress = self.writer.handle(response);
        match progress {
            CheckpointProgress::Next | CheckpointProgress::Retry => {}
            CheckpointProgress::Superseded(_) | CheckpointProgress::Refused => self.saving = None,
            CheckpointProgress::Done => {
                self.data = self.writer.data();
                if self.saving.take().is_some_and(|saving| saving != self.data) {
                    return Err(ShelfBreach::Mistaken);
                }
                shelf.acknowledge(self.token, &self.data)?;
                self.claimed = true;
            }
        }
        Ok(progress)
    }
}
