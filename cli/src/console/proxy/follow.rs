//! What a proxy reports of the leaders it follows.

use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use incumbent::discovery::Leaders;
use incumbent::lock::LockErrorKind;
use incumbent::{Leader, Observer, State, Status};

use super::counters::Counters;
use crate::error::{CliError, Code};
use crate::lock::elections::with_token;
use crate::output;
use crate::output::time_format::span;

/// Prints a line for each leader, and for what keeps the lock from responding. Fails if the server
/// denies the permissions of an observer.
pub async fn follow(
    observer: Observer,
    hold: Duration,
    counters: &Counters,
) -> Result<(), CliError> {
    let mut leaders = Leaders::new(observer.clone());
    let mut watch = observer.watch();
    let mut gap: Option<Instant> = None;
    let (mut failure, mut had_leader) = (None, false);
    loop {
        tokio::select! {
            leader = leaders.next() => {
                let Some(leader) = leader else { return Ok(()) };
                counters.has_leader.set(if leader.is_some() { 1.0 } else { 0.0 });
                match &leader {
                    Some(leader) => output::note(describe(leader)),
                    None => output::note(format!(
                        "no leader: connections wait for up to {}", span(hold)
                    )),
                }
                if leader.is_some() && let Some(since) = gap.take() {
                    counters.record_gap(BootClock.now().saturating_since(since));
                }
                had_leader |= leader.is_some();
                if leader.is_none() && had_leader {
                    gap.get_or_insert_with(|| BootClock.now());
                }
            }
            status = watch.next() => {
                let Some(status) = status else { return Ok(()) };
                let now = refusal(&status)?;
                if now != failure {
                    output::note(match &now {
                        Some(why) => format!("incumbent: the lock cannot be reached: {why}"),
                        None => "the lock can be reached again".to_owned(),
                    });
                    failure = now;
                }
            }
        }
    }
}

/// Why the lock does not respond. An error if it will not.
fn refusal(status: &Status) -> Result<Option<String>, CliError> {
    let Some(failure) = &status.lock_failure else { return Ok(None) };
    let why = failure.message.to_string();
    match (failure.kind, status.state) {
        (LockErrorKind::Denied, State::Unknown) => Err(CliError::new(Code::Denied, why)),
        _ => Ok(Some(why)),
    }
}

fn describe(leader: &Leader) -> String {
    let leads = format!("{} leads{}", leader.identity, with_token(leader.token));
    let Some(advertised) = leader.advertisement.as_deref() else {
        return format!("{leads}, and advertises no address: set --advertise; connections wait");
    };
    let address = advertised.address();
    match advertised.host_and_port() {
        Ok(_) => format!("{leads}: connections go to {address}"),
        Err(why) => format!("{leads}, and advertises {address:?}: {why}; connections wait"),
    }
}
