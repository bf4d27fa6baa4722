//! Notifications to systemd, for a service of `Type=notify`.
//!
//! Without systemd (`NOTIFY_SOCKET` is not set) nothing is sent.

use std::time::Duration;

use sd_notify::{NotifyState, notify};

/// The variable with the socket. A command that is run does not inherit it: it would speak for this
/// service.
pub const SOCKET: &str = "NOTIFY_SOCKET";

/// The status that was sent last.
pub struct ServiceStatus(String);

/// The candidate campaigns.
pub fn ready(status: String) -> ServiceStatus {
    send(&[NotifyState::Ready, NotifyState::Status(&status)]);
    ServiceStatus(status)
}

/// The candidate stops.
pub fn stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

/// The candidate stops, and needs up to so long for it.
pub fn draining(left: Duration) {
    let micros = u32::try_from(left.as_micros()).unwrap_or(u32::MAX);
    send(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(micros)]);
}

impl ServiceStatus {
    /// The current leader. It must be one line: systemd parses each line.
    pub fn update(&mut self, status: String) {
        if status != self.0 {
            send(&[NotifyState::Status(&status)]);
            self.0 = status;
        }
    }
}

fn send(states: &[NotifyState<'_>]) {
    if let Err(error) = notify(states) {
        tracing::debug!(%error, "cannot notify systemd");
    }
}
