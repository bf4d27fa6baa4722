//! Events of a NATS connection: the permissions that its server denies, and what it lost.

use std::sync::Arc;

use async_nats::{Event, ServerError};
use tokio::sync::broadcast;

/// The capacity of the event channel. With more events at once, some denied requests time out
/// instead.
const EVENT_CAPACITY: usize = 256;

/// Forwards denied permissions to the requests in flight. Keeps no history.
///
/// ```no_run
/// # async fn example() -> Result<(), async_nats::ConnectError> {
/// use incumbent::nats::{Connection, PermissionWatch};
///
/// let watch = PermissionWatch::new();
/// let observer = watch.clone();
/// let client = async_nats::ConnectOptions::new()
///     .event_callback(move |event| {
///         observer.observe(&event);
///         async move { eprintln!("{event}") } // the work of your own callback
///     })
///     .connect("nats://127.0.0.1:4222")
///     .await?;
/// let connection = Connection::new(client, watch);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct PermissionWatch(pub(super) broadcast::Sender<ConnectionEvent>);

impl PermissionWatch {
    /// Creates a watch for one connection.
    pub fn new() -> Self {
        Self(broadcast::Sender::new(EVENT_CAPACITY))
    }

    /// Handles an event of the connection. Call this from its event callback; it does not block.
    pub fn observe(&self, event: &Event) {
        let notice = match event {
            Event::Connected | Event::Disconnected | Event::Closed => ConnectionEvent::Link,
            Event::SlowConsumer(_) | Event::ServerError(ServerError::SlowConsumer(_)) => {
                ConnectionEvent::Missed
            }
            Event::ServerError(ServerError::Other(message)) => match denied_subject(message) {
                Some(denied) => denied,
                None => return,
            },
            _ => return,
        };
        let _ = self.0.send(notice); // an error means that no request is in flight
    }
}

impl Default for PermissionWatch {
    fn default() -> Self {
        Self::new()
    }
}

/// An event of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConnectionEvent {
    /// The permission to publish to a subject is missing.
    PublishDenied(Arc<str>),
    /// The permission to subscribe to a subject is missing.
    SubscribeDenied(Arc<str>),
    /// The client connected or disconnected.
    Link,
    /// Messages or events were dropped.
    Missed,
}

/// Reads `Permissions Violation for Publish to "subject"`.
pub(super) fn denied_subject(message: &str) -> Option<ConnectionEvent> {
    let rest = strip_prefix_ignoring_case(message, "permissions violation for ")?;
    let mut quoted = rest.split('"');
    let verb = quoted.next()?.trim();
    let subject = Arc::from(quoted.next()?);
    if verb.eq_ignore_ascii_case("publish to") {
        Some(ConnectionEvent::PublishDenied(subject))
    } else if verb.eq_ignore_ascii_case("subscription to") {
        Some(ConnectionEvent::SubscribeDenied(subject))
    } else {
        None
    }
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let head = text.get(..prefix.len())?;
    if head.eq_ignore_ascii_case(prefix) { text.get(prefix.len()..) } else { None }
}

/// Events of the connection from now on; none without a watch.
#[derive(Debug)]
pub(super) struct ConnectionEvents(pub(super) Option<broadcast::Receiver<ConnectionEvent>>);

impl ConnectionEvents {
    /// The events of the same connection, from now on.
    pub(super) fn resubscribed(&self) -> Self {
        Self(self.0.as_ref().map(broadcast::Receiver::resubscribe))
    }

    pub(super) async fn next(&mut self) -> ConnectionEvent {
        if let Some(receiver) = &mut self.0 {
            match receiver.recv().await {
                Ok(notice) => return notice,
                Err(broadcast::error::RecvError::Lagged(_)) => return ConnectionEvent::Missed,
                Err(broadcast::error::RecvError::Closed) => {}
            }
        }
        std::future::pending().await
    }

    /// Waits for such an event.
    pub(super) async fn until(&mut self, wanted: impl Fn(&ConnectionEvent) -> bool) {
        while !wanted(&self.next().await) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denials_are_parsed() {
        assert_eq!(
            denied_subject("Permissions Violation for Publish to \"$KV.B.k\""),
            Some(ConnectionEvent::PublishDenied("$KV.B.k".into())),
        );
        assert_eq!(
            denied_subject("permissions violation for subscription to \"a.>\" using queue \"q\""),
            Some(ConnectionEvent::SubscribeDenied("a.>".into())),
        );
        for other in
            ["", "é", "permissions violation for ", "Permissions Violation for Publish to "]
        {
            assert_eq!(denied_subject(other), None);
        }
    }
}
