//! Notifications to systemd, for a service of `Type=notify`.
//!
//! Without systemd (`NOTIFY_SOCKET` is not set, or another system than Linux) nothing is sent.

use std::time::Duration;

#[cfg(target_os = "linux")]
use sd_notify::NotifyState as State;

/// The variable with the socket. A command that is run does not inherit it: it would speak for this
/// service.
pub const SOCKET: &str = "NOTIFY_SOCKET";

/// The status that was sent last.
pub struct ServiceStatus(String);

/// The candidate campaigns.
pub fn ready(status: String) -> ServiceStatus {
    send(&[State::Ready, State::Status(&status)]);
    ServiceStatus(status)
}

/// The candidate stops.
pub fn stopping() {
    send(&[State::Stopping, State::Status("stopping")]);
}

/// The candidate stops, and needs up to this long for it.
pub fn draining(left: Duration) {
    let micros = u32::try_from(left.as_micros()).unwrap_or(u32::MAX);
    send(&[State::Stopping, State::ExtendTimeoutUsec(micros)]);
}

impl ServiceStatus {
    /// The current leader. It must be one line: systemd parses each line.
    pub fn update(&mut self, status: String) {
        if status != self.0 {
            send(&[State::Status(&status)]);
            self.0 = status;
        }
    }
}

#[cfg(target_os = "linux")]
fn send(states: &[State<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "cannot notify systemd");
    }
}

/// What another system than Linux does not send.
#[cfg(not(target_os = "linux"))]
enum State<'a> {
    Ready,
    Stopping,
    Status(&'a str),
    ExtendTimeoutUsec(u32),
}

#[cfg(not(target_os = "linux"))]
fn send(_states: &[State<'_>]) {}
