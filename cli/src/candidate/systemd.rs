//! Telling systemd how it goes: a service of `Type=notify`.
//!
//! Without systemd (`NOTIFY_SOCKET` is not set) nothing is told, and nobody is told that nobody could be told.

use sd_notify::{NotifyState, notify};

/// Where it is told. Not for a command that runs under an election: it would speak for us.
pub const SOCKET: &str = "NOTIFY_SOCKET";

/// The status that was last told.
pub struct ServiceStatus(String);

/// It campaigns.
pub fn ready(status: String) -> ServiceStatus {
    send(&[NotifyState::Ready, NotifyState::Status(&status)]);
    ServiceStatus(status)
}

/// It is about to end.
pub fn stopping() {
    send(&[NotifyState::Stopping, NotifyState::Status("leaving the election")]);
}

impl ServiceStatus {
    /// Who leads now. It must be one line: each line is an order to systemd.
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
