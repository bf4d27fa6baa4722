//! Checks of a configuration, and what is derived from it.

use std::sync::Arc;
use std::time::Duration;

use super::StartError;
use crate::lock::checkpoint::NO_CHECKPOINTS;
use crate::lock::roll_call::MAX_SITE_LEN;
use crate::lock::{Lock, Need};
use crate::protocol::{CoolDown, Timing, TimingError, TimingOptions};
use crate::time::clock::{Clock, unix_time_at_origin};
use crate::time::timing::whole_millis;
use crate::util::text::escape_line;

/// That of the lock, else the name of the host.
pub(crate) fn default_identity(lock: &Arc<dyn Lock>) -> String {
    let host = || gethostname::gethostname().to_string_lossy().into_owned();
    lock.identity().unwrap_or_else(host)
}

/// The caller's timing, else the lock's: never a mixture, whose parts might not fit together.
pub(super) fn timing_on(lock: &Arc<dyn Lock>, given: TimingOptions) -> Result<Timing, TimingError> {
    let options = match given {
        TimingOptions { lease: None, renewal: None, grace: None, with_choria } => {
            let timing = lock.timing();
            TimingOptions { with_choria: with_choria || timing.with_choria, ..timing }
        }
        given => {
            TimingOptions { with_choria: given.with_choria || lock.timing().with_choria, ..given }
        }
    };
    lock.capabilities().timing(options)
}

/// The locks to campaign on, in the order in which they are taken.
pub(super) fn members(lock: &Arc<dyn Lock>) -> Vec<(Arc<dyn Lock>, Need)> {
    match lock.members() {
        None => vec![(Arc::clone(lock), Need::Required)],
        Some(members) => {
            members.iter().map(|member| (Arc::clone(&member.lock), member.need)).collect()
        }
    }
}

pub(super) fn custom(cool_down: CoolDown) -> Option<Duration> {
    match cool_down {
        CoolDown::For(duration) => Some(duration),
        _ => None,
    }
}

pub(crate) fn check_span(
    what: &'static str,
    duration: Duration,
    greatest: Duration,
) -> Result<(), StartError> {
    match duration > greatest {
        true => Err(StartError::TooLong { what, duration, greatest }),
        false => Ok(()),
    }
}

pub(super) fn check_checkpoint(name: &str, lock: &Arc<dyn Lock>) -> Result<(), StartError> {
    let checked = match lock.checkpoints().filter(|_| lock.members().is_none()) {
        Some(store) => store.check(name),
        None => Err(NO_CHECKPOINTS.to_owned()),
    };
    checked.map_err(|problem| StartError::Checkpoint { problem })
}

pub(super) fn check_site(site: &str) -> Result<(), StartError> {
    match site.is_empty() || site.len() > MAX_SITE_LEN || site.chars().any(char::is_control) {
        true => Err(StartError::Site { site: escape_line(site, MAX_SITE_LEN).into_owned() }),
        false => Ok(()),
    }
}

pub(super) fn check_identity(identity: &str, longest: usize) -> Result<(), StartError> {
    let problem = if identity.is_empty() {
        "it is empty".to_owned()
    } else if identity.chars().any(char::is_control) {
        "it has a control character".to_owned()
    } else if identity.len() > longest {
        format!("it has {} bytes, and the lock takes {longest}", identity.len())
    } else {
        return Ok(());
    };
    let identity = identity.chars().take(80).collect();
    Err(StartError::Identity { identity, problem })
}

pub(super) fn unix_ms_at_origin(clock: &dyn Clock) -> u64 {
    whole_millis(unix_time_at_origin(clock))
}
