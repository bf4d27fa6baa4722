//! Sentinels: a crashed leader is replaced in milliseconds.
//!
//! A sentinel is a process beside the leader's, with a connection to the lock of its own:
//! `incumbent sentinel`. Each term is registered with it over a Unix socket. When the process is
//! dead, the sentinel releases its entries with the same conditional delete that a leader uses that
//! stops, and another candidate leads at once. If the sentinel fails in any way, the lease decides
//! as without one.
//!
//! **A program that registers declares that its work dies with its process.** Work that lives
//! elsewhere does not: a child process that outlives it, a remote call in flight, a container that
//! it started. Wrap the program, as in `incumbent sentinel -- PROGRAM`, to have its children killed
//! first; the fencing [`Token`](crate::Token) is for the rest.
//!
//! ```no_run
//! # async fn f(lock: impl incumbent::lock::Lock) -> Result<(), Box<dyn std::error::Error>> {
//! use incumbent::new_election;
//! use incumbent::sentinel::Sentinel;
//!
//! let sentinel = Sentinel::at("/run/user/1000/incumbent/socket");
//! let election = new_election("my_app", lock).sentinel(sentinel).start()?;
//! # Ok(())
//! # }
//! ```

mod address;
mod client;
mod registration;
mod start_time;
mod wire;

use std::time::Duration;

use crate::driver::requests::{perform, within};
use crate::lock::{Lock, Reading, Request};
use crate::protocol::{CrashOutcome, CrashRelease, CrashStep, RegisteredTerm, Response};
use crate::time::clock::{BootClock, Clock, sleep_until};

#[doc(hidden)]
pub use address::connect;
pub use address::{ENVIRONMENT, Sentinel};
pub(crate) use registration::Registrations;
#[doc(hidden)]
pub use start_time::start_time;
#[doc(hidden)]
pub use wire::{HEARTBEAT, SentinelMessage, SentinelReply, VERSION, encode, read_message};

/// How long to wait for each response.
const TIMEOUT: Duration = Duration::from_secs(2);

#[doc(hidden)]
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

#[doc(hidden)]
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

#[doc(hidden)]
/// Checks that the lock would let the election be released.
///
/// # Errors
/// Why not, in one line.
pub async fn check_release(lock: &dyn Lock, election: &str) -> Result<(), String> {
    let checked = within(TIMEOUT, lock.check_release(election, TIMEOUT)).await;
    checked.map_err(|failure| failure.message.to_string())
}
