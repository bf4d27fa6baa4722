//! A NATS client that observes the permissions that its server denies.

use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{
    Client, ConnectError, ConnectOptions, Event, Message, PublishError, PublishErrorKind,
    ServerError, StatusCode, Subject, ToServerAddrs,
};
use tokio::sync::broadcast;

use super::options::{TlsFiles, with_servers};
use super::reply_inbox::{NoReply, Replies, Request};

/// The capacity of the event channel. With more events at once, some denied requests time out
/// instead.
const EVENT_CAPACITY: usize = 256;

/// A NATS client, optionally with a [`PermissionWatch`].
///
/// Every function of this module accepts a plain [`async_nats::Client`] as well. The difference
/// matters when permissions are missing: the server reports a denied request separately, only to
/// the connection's event callback, so with a plain client a denied request looks like a request
/// without a response. A candidate with such a client must be permitted to read.
#[derive(Debug, Clone)]
pub struct Connection {
    client: Client,
    watch: Option<PermissionWatch>,
    replies: Arc<Replies>,
}

/// Connects with `options`, and watches for denied permissions.
///
/// ```no_run
/// # async fn example() -> Result<(), incumbent::nats::async_nats::ConnectError> {
/// use incumbent::nats;
///
/// let client = nats::connect("nats://127.0.0.1:4222", nats::connect_options()).await?;
/// # Ok(())
/// # }
/// ```
///
/// Requires TLS of every server if an address begins with `tls://`, and uses a user and password,
/// or a token in place of both, from a server's URL: see [`with_servers`]. With certificates in
/// `options` call [`ConnectOptions::require_tls`] too, or name them by [`TlsFiles`].
///
/// Sets the event callback of `options`. A callback that was set before is **replaced**: to use
/// your own callback, call [`PermissionWatch::observe`] from it and create the [`Connection`] with
/// [`Connection::new`].
///
/// # Errors
/// Those of [`ConnectOptions::connect`].
///
/// # Cancel safety
/// Dropping the future closes the connection.
pub async fn connect(
    servers: impl ToServerAddrs,
    options: ConnectOptions,
) -> Result<Connection, ConnectError> {
    let (options, addresses) = with_servers(options, servers, &TlsFiles::default())?;
    let watch = PermissionWatch::new();
    let observer = watch.clone();
    let options = options.event_callback(move |event| {
        observer.observe(&event);
        std::future::ready(())
    });
    Ok(Connection::new(options.connect(addresses).await?, watch))
}

impl Connection {
    /// Creates a connection from a client whose event callback calls [`PermissionWatch::observe`]
    /// on `watch`.
    pub fn new(client: Client, watch: PermissionWatch) -> Self {
        Self { client, watch: Some(watch), replies: Arc::default() }
    }

    /// Returns the client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns whether denied permissions are observed.
    pub(super) fn sees_refusals(&self) -> bool {
        self.watch.is_some()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Returns the name of the server's cluster. A leaf node alone is one with the server's name.
    pub(super) fn cluster(&self) -> Option<String> {
        self.client.server_info().cluster
    }

    /// Returns how often the client has connected: a different number means another connection.
    pub(super) fn epoch(&self) -> u64 {
        self.client.statistics().connects.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub(super) fn events(&self) -> ConnectionEvents {
        ConnectionEvents(self.watch.as_ref().map(|watch| watch.0.subscribe()))
    }

    /// Sends a request, and returns its response. Nothing is sent or queued while the client is not
    /// connected.
    ///
    /// If the future is dropped, the request may have been sent.
    pub(super) async fn request(
        &self,
        request: Box<Request>,
        timeout: Duration,
    ) -> Result<Message, RequestFailure> {
        if !self.is_connected() {
            return Err(RequestFailure::Disconnected);
        }
        let answer = self.replies.request(&self.client, self.events(), request);
        match tokio::time::timeout(timeout, answer).await {
            Ok(Ok(message)) if message.status == Some(StatusCode::NO_RESPONDERS) => {
                Err(RequestFailure::NoResponders)
            }
            Ok(Ok(message)) => Ok(message),
            Ok(Err(NoReply::Unpublished(error))) => Err(match error.kind() {
                PublishErrorKind::MaxPayloadExceeded | PublishErrorKind::InvalidSubject => {
                    RequestFailure::Malformed(error)
                }
                PublishErrorKind::Send => RequestFailure::Broken(error.into()),
            }),
            Ok(Err(NoReply::Unsubscribed(error))) => Err(RequestFailure::Broken(error.into())),
            Ok(Err(NoReply::Closed)) => Err(RequestFailure::Broken("it is closed".into())),
            Ok(Err(NoReply::Denied(subject))) => Err(RequestFailure::Denied(subject)),
            Ok(Err(NoReply::InboxDenied(inbox))) => Err(RequestFailure::Unanswerable(inbox)),
            Err(_) => Err(RequestFailure::TimedOut(timeout)),
        }
    }
}

impl From<Client> for Connection {
    fn from(client: Client) -> Self {
        Self { client, watch: None, replies: Arc::default() }
    }
}

impl From<&Client> for Connection {
    fn from(client: &Client) -> Self {
        client.clone().into()
    }
}

impl From<&Connection> for Connection {
    fn from(connection: &Connection) -> Self {
        connection.clone()
    }
}

/// Why a request has no response.
#[derive(Debug)]
pub(super) enum RequestFailure {
    /// Not sent: there is no connection.
    Disconnected,
    /// Not delivered: the subject has no subscribers.
    NoResponders,
    /// Not delivered: the server denies the permission to publish to this subject.
    Denied(Subject),
    /// Not sent: too large, or an invalid subject.
    Malformed(PublishError),
    /// Possibly sent: the server denies the permission to subscribe to this subject of responses.
    Unanswerable(String),
    /// Possibly sent.
    TimedOut(Duration),
    /// Possibly sent.
    Broken(Box<dyn std::error::Error + Send + Sync>),
}

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
pub struct PermissionWatch(broadcast::Sender<ConnectionEvent>);

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
pub(super) struct ConnectionEvents(Option<broadcast::Receiver<ConnectionEvent>>);

impl ConnectionEvents {
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

    /// Waits until the server denies the permission to publish to `subject`, or else to subscribe
    /// to `inbox`. Returns whether it is to publish.
    pub(super) async fn denied(&mut self, subject: &str, inbox: &str) -> bool {
        loop {
            match self.next().await {
                ConnectionEvent::PublishDenied(denied) if &*denied == subject => return true,
                ConnectionEvent::SubscribeDenied(denied) if &*denied == inbox => return false,
                _ => {}
            }
        }
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
