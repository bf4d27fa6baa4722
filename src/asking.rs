//! Asking a lock, in the words of the protocol.

use std::time::Duration;

use crate::lock::{Lock, LockError, LockErrorKind, Request};
use crate::protocol::{Answer, Failure};
use crate::text::shown;

/// How long a concession, which nobody answers, may take to be sent.
const CONCESSION_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) async fn perform(lock: &dyn Lock, name: &str, request: Request) -> Answer {
    match request {
        Request::Read { timeout } => Answer::Read(within(timeout, lock.read(name, timeout)).await),
        Request::Write(write) => {
            Answer::Written(within(write.timeout, lock.write(name, write)).await)
        }
        Request::Release(release) => {
            Answer::Released(within(release.timeout, lock.release(name, release)).await)
        }
        Request::Concede(concession) => {
            Answer::Conceded(within(CONCESSION_TIMEOUT, lock.concede(name, concession)).await)
        }
    }
}

/// A backend keeps to its timeout; a campaign does not depend on it.
async fn within<T>(
    timeout: Duration,
    request: impl Future<Output = Result<T, LockError>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(timeout + timeout / 8, request).await {
        Ok(answer) => answer.map_err(|error| failure(&error)),
        Err(_) => Err(Failure {
            kind: LockErrorKind::Unknown,
            message: format!("no answer in {timeout:?}").into(),
        }),
    }
}

/// The most bytes of an error that are told.
const LONGEST_ERROR: usize = 1_024;

/// The error with all that led to it, in one line.
fn failure(error: &LockError) -> Failure {
    let mut message = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        message = format!("{message}: {error}");
        source = error.source();
    }
    Failure { kind: error.kind(), message: shown(&message, LONGEST_ERROR).into() }
}
