//! Checks of a configuration, and what is derived from it.

use std::time::{Duration, SystemTime};

use super::StartError;
use crate::protocol::CoolDown;
use crate::time::clock::Clock;

pub(super) fn custom(cool_down: CoolDown) -> Option<Duration> {
    match cool_down {
        CoolDown::For(duration) => Some(duration),
        _ => None,
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
    let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let origin = unix.saturating_sub(clock.now().since_origin());
    u64::try_from(origin.as_millis()).unwrap_or(u64::MAX)
}
