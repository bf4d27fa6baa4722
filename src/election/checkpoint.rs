//! The checkpoint of an election, in the hands of a leader.

use std::sync::Arc;

use super::claimed_checkpoint::{CheckpointError, refused};
use crate::election::term::Term;
use crate::lock::checkpoint::no_checkpoints;
use crate::time::clock::Instant;

/// The checkpoint of an election: up to [`MAX_CHECKPOINT_LEN`](crate::MAX_CHECKPOINT_LEN) bytes
/// that one term leaves to the next, in the lock itself.
///
/// It outlives terms, expiry and restarts. Only the leader writes it: before a term begins it is
/// claimed, and from then on a write of a former leader is refused, however late it arrives. What
/// [`save`](Self::save) has acknowledged is what the next term reads.
///
/// [`ElectionBuilder::checkpoint`](crate::ElectionBuilder::checkpoint) asks for one.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use incumbent::{memory::MemoryLock, new_election};
/// let lock = MemoryLock::new();
/// let election = new_election("import", lock).checkpoint().start()?;
/// let leadership = election.won().await?;
/// let Some(checkpoint) = leadership.checkpoint() else { return Ok(()) };
/// let done = String::from_utf8(checkpoint.data().to_vec())?; // empty at first
/// println!("continues after {done:?}");
/// checkpoint.save("order 4711").await?; // the next leader continues there
/// # assert_eq!(&*checkpoint.data(), b"order 4711");
/// # drop(leadership);
/// # election.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Checkpoint {
    term: Arc<Term>,
}

impl Checkpoint {
    /// `None` if the election keeps none.
    pub(crate) fn of(term: &Arc<Term>) -> Option<Self> {
        term.checkpoint.as_ref().map(|_| Self { term: Arc::clone(term) })
    }

    /// The data as last saved: by this term, or by an earlier one. Empty if none has.
    pub fn data(&self) -> Arc<[u8]> {
        let claimed = self.term.checkpoint.as_ref();
        claimed.map(|claimed| claimed.data()).unwrap_or_default()
    }

    /// Saves data in the place of what is stored, and returns once it is durable. Saves of one term
    /// are done one after the other.
    ///
    /// What fails is tried again until the deadline of the term: so also while the work stops,
    /// after [`Leadership::ended`](crate::Leadership::ended).
    ///
    /// # Errors
    /// [`CheckpointErrorKind`](crate::CheckpointErrorKind).
    ///
    /// # Cancel safety
    /// If the returned future is dropped, the data may be stored or not, until the next save.
    pub async fn save(&self, data: impl AsRef<[u8]> + Send) -> Result<(), CheckpointError> {
        self.save_until(data.as_ref(), || self.term.deadline()).await
    }

    /// As [`save`](Self::save), but tries until the deadline as of now, however often the term is
    /// renewed: for those who do nothing else meanwhile.
    #[cfg(feature = "schedule")]
    pub(crate) async fn save_within_lease(&self, data: &[u8]) -> Result<(), CheckpointError> {
        let deadline = self.term.deadline();
        self.save_until(data, || deadline).await
    }

    async fn save_until(
        &self,
        data: &[u8],
        give_up: impl Fn() -> Instant,
    ) -> Result<(), CheckpointError> {
        let Some(claimed) = &self.term.checkpoint else {
            return Err(refused(&no_checkpoints()));
        };
        claimed.save(data.into(), self.term.clock(), give_up).await
    }
}

partial_debug!(Checkpoint, self, token: self.term.token, len: self.data().len());
