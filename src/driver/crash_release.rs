//! What a sentinel does for a term whose process is dead: it performs a [`CrashRelease`].

use std::time::Duration;

use super::{perform, within};
use crate::lock::{Lock, Reading, Request};
use crate::protocol::{CrashOutcome, CrashRelease, CrashStep, RegisteredTerm, Response};
use crate::time::clock::{BootClock, Clock, sleep_until};

/// How long to wait for each response.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Releases the entry of a term whose process is dead, with all its work. Tries for `limit`.
pub async fn release_crashed(
    lock: &dyn Lock,
    election: &str,
    term: RegisteredTerm,
    limit: Duration,
) -> CrashOutcome {
    let now = BootClock.now();
    let mut release = CrashRelease::new(term, now, now + limit, TIMEOUT, fastrand::u64(..));
    loop {
        match release.next(BootClock.now()) {
            CrashStep::Request(request) => {
                let response = perform(lock, election, request).await;
                release.on_response(BootClock.now(), response);
            }
            CrashStep::Wait(at) => sleep_until(BootClock, at).await,
            CrashStep::Done(outcome) => return outcome,
        }
    }
}

/// Returns whether the lock has the entry of the term, and would let it be released.
///
/// # Errors
/// Why the lock did not respond, or refuses a release, in one line.
pub async fn check_registered(
    lock: &dyn Lock,
    election: &str,
    term: RegisteredTerm,
) -> Result<bool, String> {
    match perform(lock, election, Request::Read { timeout: TIMEOUT }).await {
        Response::Read(Ok(Reading::Found(record))) if term.holds(&record) => {
            check_release(lock, election).await.map(|()| true)
        }
        Response::Read(Err(failure)) => Err(failure.message.to_string()),
        _ => Ok(false),
    }
}

/// Checks that the lock would let the election be released.
///
/// # Errors
/// Why not, in one line.
pub async fn check_release(lock: &dyn Lock, election: &str) -> Result<(), String> {
    let checked = within(TIMEOUT, lock.check_release(election, TIMEOUT)).await;
    checked.map_err(|failure| failure.message.to_string())
}
