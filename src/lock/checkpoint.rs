//! The checkpoint of an election: what one term leaves to the next, and where a lock stores it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::codec::parse_hex;
use super::{Lock, LockError, LockErrorKind, Token};

/// The most bytes of data in a checkpoint.
pub const MAX_CHECKPOINT_LEN: usize = 4096;

/// The most bytes of what is stored: the data and the line before it.
pub(crate) const MAX_CONTENT_LEN: usize = MAX_CHECKPOINT_LEN + 256;

/// Where checkpoints are beside the elections, on a lock that lists these by their folder: no
/// election has such a name.
#[allow(dead_code, reason = "some locks use it")]
pub(crate) const CHECKPOINTS: &str = "incumbent-checkpoints/";

const FORMAT: u32 = 1;

/// What a lock offers that stores checkpoints: see [`Lock::checkpoints`]. One text for each
/// election, which no time and no end of a term removes, with conditional writes.
///
/// It decides nothing. What is in the text, and who may write it, is in
/// [`CheckpointWriter`](crate::protocol::CheckpointWriter).
#[async_trait]
pub trait CheckpointStore: Send + Sync {
    /// Refuses, by what is known without a request, to store the checkpoint of this election, and
    /// says what to do. Default: nothing is refused.
    fn check(&self, name: &str) -> Result<(), String> {
        let _ = name;
        Ok(())
    }

    /// Reads the last write, never a stale one; `None` if there is none.
    async fn load(&self, name: &str, timeout: Duration)
    -> Result<Option<StoredContent>, LockError>;

    /// Writes if the last version is the expected one (`None`: if there is none), and returns the
    /// new version. Otherwise an error of the kind [`Conflict`](LockErrorKind::Conflict).
    async fn store(
        &self,
        name: &str,
        content: Vec<u8>,
        expected: Option<&CheckpointVersion>,
        timeout: Duration,
    ) -> Result<CheckpointVersion, LockError>;
}

/// The version of a stored checkpoint, as its lock names it. Writes of different contents have
/// different versions; a [`CheckpointWriter`](crate::protocol::CheckpointWriter) writes no content
/// that anybody has written over.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CheckpointVersion(pub Arc<str>);

impl CheckpointVersion {
    /// The version that is this number.
    pub fn number(number: u64) -> Self {
        Self(number.to_string().into())
    }

    /// The number that it is; `None` if it is none.
    pub fn as_number(&self) -> Option<u64> {
        self.0.parse().ok()
    }
}

/// What a lock has stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredContent {
    /// The version that a write over it expects.
    pub version: CheckpointVersion,
    /// The bytes, whoever wrote them. None: the checkpoint was deleted, and left a trace.
    pub content: Vec<u8>,
}

/// A checkpoint as it is stored.
///
/// A line of JSON, and the data as it was given:
///
/// ```text
/// {"incumbent_checkpoint":1,"token":4711,"write":"9f86d081884c7d65","saved_unix_ms":1790000000000}
/// the data
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StoredCheckpoint {
    /// The term that wrote it.
    pub token: Token,
    /// Which of the writes of that term it is.
    pub write: u64,
    /// When the data was saved, by the clock of the host that saved it.
    pub saved_unix_ms: u64,
    /// The data, at most [`MAX_CHECKPOINT_LEN`] bytes; empty until a leader has saved some.
    pub data: Arc<[u8]>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    incumbent_checkpoint: u32,
    token: u64,
    write: String,
    saved_unix_ms: u64,
}

impl StoredCheckpoint {
    /// As it is stored.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let line = Line {
            incumbent_checkpoint: FORMAT,
            token: self.token.0,
            write: format!("{:016x}", self.write),
            saved_unix_ms: self.saved_unix_ms,
        };
        let mut content = serde_json::to_vec(&line).unwrap_or_default(); // has string keys only
        content.push(b'\n');
        content.extend_from_slice(&self.data);
        content
    }

    /// Reads what anybody may have stored; `None` if it was deleted.
    ///
    /// # Errors
    /// [`Misconfigured`](LockErrorKind::Misconfigured): it is not a checkpoint, or of a later
    /// version of this program.
    pub(crate) fn decode(name: &str, content: &[u8]) -> Result<Option<Self>, LockError> {
        if content.is_empty() {
            return Ok(None);
        }
        let refuse = |what: &str| {
            let message = format!("checkpoint of {name}: {what}");
            Err(LockError::new(LockErrorKind::Misconfigured, message))
        };
        let foreign = "what is stored is not a checkpoint: delete it";
        if content.len() > MAX_CONTENT_LEN {
            return refuse(foreign);
        }
        let mut parts = content.splitn(2, |byte| *byte == b'\n');
        let (Some(line), Some(data)) = (parts.next(), parts.next()) else {
            return refuse(foreign);
        };
        let Ok(line) = serde_json::from_slice::<Line>(line) else { return refuse(foreign) };
        if line.incumbent_checkpoint != FORMAT {
            return refuse("a later version of this program wrote it: use that one");
        }
        match parse_hex(&line.write) {
            Some(write) if data.len() <= MAX_CHECKPOINT_LEN => Ok(Some(Self {
                token: Token(line.token),
                write,
                saved_unix_ms: line.saved_unix_ms,
                data: data.into(),
            })),
            _ => refuse(foreign),
        }
    }
}

/// What operators and programs that do not lead read.
impl dyn Lock + '_ {
    /// The checkpoint of an election; `None` if there is none.
    ///
    /// # Errors
    /// [`Misconfigured`](LockErrorKind::Misconfigured): the lock stores no checkpoints, or what is
    /// stored is not one.
    pub async fn checkpoint(
        &self,
        name: &str,
        timeout: Duration,
    ) -> Result<Option<StoredCheckpoint>, LockError> {
        let store = self.checkpoints().ok_or_else(no_checkpoints)?;
        let stored = super::within(timeout, store.load(name, timeout)).await?;
        stored.map_or(Ok(None), |stored| StoredCheckpoint::decode(name, &stored.content))
    }
}

/// Refuses a name in the folder of the checkpoints.
#[allow(dead_code, reason = "some locks use it")]
pub(crate) fn check_no_checkpoint(name: &str) -> Result<(), String> {
    match name.starts_with(CHECKPOINTS) {
        true => Err(format!("{CHECKPOINTS:?} is for checkpoints: rename the election")),
        false => Ok(()),
    }
}

/// The error of a save whose condition does not hold.
pub(crate) fn conflict() -> LockError {
    LockError::new(LockErrorKind::Conflict, "another write was stored")
}

/// The error of a lock that stores no checkpoints.
pub(crate) fn no_checkpoints() -> LockError {
    LockError::new(LockErrorKind::Misconfigured, NO_CHECKPOINTS)
}

/// Why a lock that stores no checkpoints is refused.
pub(crate) const NO_CHECKPOINTS: &str = "this lock stores no checkpoint: use one lock on NATS, a database, object storage, etcd or Kubernetes";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_a_line_of_json_and_the_data() {
        let stored = StoredCheckpoint {
            token: Token(7),
            write: 0xab,
            saved_unix_ms: 9,
            data: Arc::from(&b"a\nb"[..]),
        };
        let content = stored.encode();
        let line =
            r#"{"incumbent_checkpoint":1,"token":7,"write":"00000000000000ab","saved_unix_ms":9}"#;
        assert_eq!(content, format!("{line}\na\nb").into_bytes());
        assert_eq!(StoredCheckpoint::decode("e", &content).expect("decodes"), Some(stored));
        assert_eq!(StoredCheckpoint::decode("e", b"").expect("decodes"), None);
        let longest = StoredCheckpoint {
            token: Token(u64::MAX),
            write: u64::MAX,
            saved_unix_ms: u64::MAX,
            data: vec![0; MAX_CHECKPOINT_LEN].into(),
        };
        assert!(longest.encode().len() <= MAX_CONTENT_LEN);
    }

    #[test]
    fn what_is_no_checkpoint_is_refused_with_what_to_do() {
        for (content, says) in [
            (&b"{}\n"[..], "delete it"),
            (
                br#"{"incumbent_checkpoint":1,"token":7,"write":"ab","saved_unix_ms":9}"#,
                "delete it",
            ),
            (
                b"{\"incumbent_checkpoint\":1,\"token\":7,\"write\":\"ab\",\"saved_unix_ms\":9}\n",
                "delete it",
            ),
            (
                b"{\"incumbent_checkpoint\":2,\"token\":7,\"write\":\"\",\"saved_unix_ms\":9}\n",
                "later version",
            ),
            (&[b'x'; MAX_CONTENT_LEN + 1], "delete it"),
        ] {
            let refused = StoredCheckpoint::decode("e", content).expect_err("refused");
            assert_eq!(refused.kind(), LockErrorKind::Misconfigured);
            assert!(refused.to_string().contains(says), "{refused}");
        }
    }
}
