//! What a term does with the checkpoint that it has claimed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::warn;

use crate::lock::checkpoint::no_checkpoints;
use crate::lock::{
    Error, Lock, LockError, LockErrorKind, MAX_CHECKPOINT_LEN, StoredCheckpoint, Token, within,
};
use crate::protocol::{
    CheckpointProgress, CheckpointRequest, CheckpointResponse, CheckpointWriter,
};
use crate::time::clock::{Clock, Instant, sleep_until};
use crate::time::timing::whole_millis;
use crate::util::retry::ProtocolRetries;
use crate::util::text::error_chain;
use crate::util::{locked, since_unix_epoch};

/// The kind of a [`CheckpointError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckpointErrorKind {
    /// The data is longer than [`MAX_CHECKPOINT_LEN`].
    TooLong,
    /// A later term has claimed the checkpoint, with this token: nothing of this term is stored any
    /// more.
    Superseded {
        /// The token of the later term.
        by: Token,
    },
    /// The deadline of the term has passed: nothing was tried.
    TermOver,
    /// It was not found out until the deadline of the term whether the data is stored: the next
    /// term reads this data or what was stored before.
    Unavailable,
    /// The lock refuses: retrying does not help.
    Refused,
}

/// The reason why a checkpoint was not saved.
pub type CheckpointError = Error<CheckpointErrorKind>;

/// The checkpoint that a term has claimed.
pub(crate) struct ClaimedCheckpoint {
    store: Store,
    writer: tokio::sync::Mutex<CheckpointWriter>,
    /// As last acknowledged.
    data: Mutex<Arc<[u8]>>,
}

/// Where the checkpoint of an election is stored.
pub(crate) struct Store {
    pub lock: Arc<dyn Lock>,
    pub name: Arc<str>,
    /// Of each request.
    pub timeout: Duration,
}

impl ClaimedCheckpoint {
    /// Claims the checkpoint for the term with this token. Gives up at `give_up`.
    pub async fn claim(
        store: Store,
        token: Token,
        clock: Arc<dyn Clock>,
        give_up: Instant,
    ) -> Result<Box<Self>, CheckpointError> {
        let durable = store.lock.capabilities().reads_are_durable;
        let mut writer = CheckpointWriter::claim(token, fastrand::u64(..), durable);
        store.write(&mut writer, &clock, || give_up).await?;
        let data = Mutex::new(writer.data());
        Ok(Box::new(Self { store, writer: tokio::sync::Mutex::new(writer), data }))
    }

    /// As last acknowledged.
    pub fn data(&self) -> Arc<[u8]> {
        Arc::clone(&locked(&self.data))
    }

    pub async fn save(
        &self,
        data: Arc<[u8]>,
        clock: &Arc<dyn Clock>,
        give_up: impl Fn() -> Instant,
    ) -> Result<(), CheckpointError> {
        if data.len() > MAX_CHECKPOINT_LEN {
            let len = data.len();
            let what =
                format!("{len} bytes are more than a checkpoint holds, {MAX_CHECKPOINT_LEN}");
            return Err(CheckpointError::new(CheckpointErrorKind::TooLong, what));
        }
        // Held during the requests, as one follows from the other.
        let mut writer = self.writer.lock().await;
        let now = whole_millis(since_unix_epoch());
        writer.save(fastrand::u64(..), Arc::clone(&data), now);
        self.store.write(&mut writer, clock, give_up).await?;
        *locked(&self.data) = data;
        Ok(())
    }
}

impl Store {
    /// Performs what the writer requests, until it is done, or given up.
    async fn write(
        &self,
        writer: &mut CheckpointWriter,
        clock: &Arc<dyn Clock>,
        give_up: impl Fn() -> Instant,
    ) -> Result<(), CheckpointError> {
        let mut retries = ProtocolRetries::unseeded();
        let (mut last, mut conflicts) = (None, 0_u32);
        loop {
            if clock.now() >= give_up() {
                return Err(self.given_up(last));
            }
            let response = match self.perform(writer.request()).await {
                Ok(response) => response,
                Err(error) => {
                    let kind = error.kind();
                    conflicts += u32::from(kind == LockErrorKind::Conflict);
                    if last.is_none() && kind != LockErrorKind::Conflict {
                        let (name, error) = (&self.name, error_chain(&error));
                        warn!(election = %name, %error, "requests for the checkpoint fail");
                    }
                    last = Some(error);
                    CheckpointResponse::Failed(kind)
                }
            };
            match writer.handle(response) {
                CheckpointProgress::Next => {}
                CheckpointProgress::Done => return Ok(()),
                CheckpointProgress::Superseded(by) => return Err(self.superseded(by)),
                CheckpointProgress::Refused => {
                    return Err(last.map_or_else(|| self.given_up(None), |e| refused(&e)));
                }
                // The first conflict shows a race, which is over.
                CheckpointProgress::Retry if conflicts == 1 => conflicts += 1,
                CheckpointProgress::Retry => {
                    let next = (clock.now() + retries.delay()).min(give_up());
                    sleep_until(Arc::clone(clock), next).await;
                }
            }
        }
    }

    async fn perform(&self, request: CheckpointRequest) -> Result<CheckpointResponse, LockError> {
        let (name, timeout) = (&*self.name, self.timeout);
        match request {
            CheckpointRequest::Load => {
                let store = self.lock.checkpoints().ok_or_else(no_checkpoints)?;
                let stored = within(timeout, store.load(name, timeout)).await?;
                let Some(stored) = stored else {
                    return Ok(CheckpointResponse::Loaded { version: None, checkpoint: None });
                };
                let checkpoint = StoredCheckpoint::decode(name, &stored.content)?;
                Ok(CheckpointResponse::Loaded { version: Some(stored.version), checkpoint })
            }
            CheckpointRequest::Store { checkpoint, expected } => {
                let store = self.lock.checkpoints().ok_or_else(no_checkpoints)?;
                let content = checkpoint.encode();
                let stored = store.store(name, content, expected.as_ref(), timeout);
                Ok(CheckpointResponse::Stored(within(timeout, stored).await?))
            }
        }
    }

    fn given_up(&self, last: Option<LockError>) -> CheckpointError {
        let name = &self.name;
        match last {
            None => CheckpointError::new(
                CheckpointErrorKind::TermOver,
                format!("checkpoint of {name}: the term is over: nothing was saved"),
            ),
            Some(error) => CheckpointError::new(
                CheckpointErrorKind::Unavailable,
                format!("checkpoint of {name}: not stored in time: {}", error_chain(&error)),
            ),
        }
    }

    fn superseded(&self, by: Token) -> CheckpointError {
        let what = format!(
            "checkpoint of {}: a term with the greater token {by} has claimed it; if no later term exists, as after a move to another lock, delete the checkpoint",
            self.name
        );
        CheckpointError::new(CheckpointErrorKind::Superseded { by }, what)
    }
}

pub(crate) fn refused(error: &LockError) -> CheckpointError {
    CheckpointError::new(CheckpointErrorKind::Refused, error_chain(error))
}
