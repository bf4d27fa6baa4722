//! A NATS client that observes the permissions that its server denies.

use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{
    Client, ConnectError, ConnectOptions, Event, Message, PublishError, PublishErrorKind,
    ServerAddr, ServerError, StatusCode, Subject, ToServerAddrs,
};
use percent_encoding::percent_decode_str;
use tokio::sync::broadcast;

use super::reply_inbox::{NoReply, Replies, Request};

/// The capacity of the event channel. With more events at once, some denied requests time out
/// instead.
const EVENT_CAPACITY: usize = 256;

/// A NATS client, optionally with a [`PermissionWatch`].
///
/// Every function of this module accepts a plain [`async_nats::Client`] as well. The difference
/// matters when permissions are missing: the server reports a denied request separately, only to
/// the connection's event callback, so with a plain client a denied request looks like a request
/// without a response.
#[derive(Debug, Clone)]
pub struct Connection {
    client: Client,
    watch: Option<PermissionWatch>,
    replies: Arc<Replies>,
}

/// The longest wait between two attempts to reconnect.
const MAX_RECONNECT_DELAY: Duration = Duration::from_millis(500);

/// [`ConnectOptions::new`], with attempts to reconnect that a short lease survives.
///
/// The client's own attempts come more and more rarely, up to 4 s apart: after a server was away
/// for two seconds, a leader finds it two seconds later. These are at most half a second apart, at
/// random, so that a fleet does not reconnect in one moment.
pub fn connect_options() -> ConnectOptions {
    ConnectOptions::new().reconnect_delay_callback(reconnect_delay)
}

fn reconnect_delay(attempt: usize) -> Duration {
    // The first one comes at once.
    let doubled = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX).min(16);
    let longest = if doubled == 0 { 0 } else { 5_u64 << doubled };
    let longest = Duration::from_millis(longest).min(MAX_RECONNECT_DELAY);
    longest.mul_f64(0.5 + fastrand::f64() / 2.0)
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
/// Uses a user and password, or a token in place of both, from a server's URL, which
/// [`ConnectOptions::connect`] does not do.
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
    let mut options = options;
    let addresses: Vec<ServerAddr> = match servers.to_server_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(_) => return options.connect(servers).await.map(Connection::from), // returns the error
    };
    if let Some(address) = addresses.iter().find(|address| address.has_user_pass()) {
        // The client would send them percent-encoded.
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let user = decoded(address.username().unwrap_or_default());
        options = match address.password() {
            Some(password) => options.user_and_password(user, decoded(password)),
            None => options.token(user),
        };
    }
    let bare: Vec<ServerAddr> = addresses.into_iter().filter_map(without_user).collect();
    let watch = PermissionWatch::new();
    let observer = watch.clone();
    let options = options.event_callback(move |event| {
        observer.observe(&event);
        std::future::ready(())
    });
    Ok(Connection::new(options.connect(bare).await?, watch))
}

/// Removes the user and password from an address, because the client would log them.
fn without_user(address: ServerAddr) -> Option<ServerAddr> {
    let mut url = address.into_inner();
    // An error means that the URL cannot have a user.
    let _ = url.set_username("").and_then(|()| url.set_password(None));
    ServerAddr::from_url(url).ok()
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
        let mut events = self.events();
        let subject = request.subject.clone();
        let answer = self.replies.request(&self.client, request);
        tokio::select! {
            answer = tokio::time::timeout(timeout, answer) => match answer {
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
                Err(_) => Err(RequestFailure::TimedOut(timeout)),
            },
            () = events.publish_denied(&subject) => Err(RequestFailure::Denied(Some(subject))),
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
    /// Not delivered: the server denies the permission to publish to this subject, if it is known.
    Denied(Option<Subject>),
    /// Not sent: too large, or an invalid subject.
    Malformed(PublishError),
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

    pub(super) async fn publish_denied(&mut self, subject: &str) {
        loop {
            if matches!(self.next().await, ConnectionEvent::PublishDenied(denied) if &*denied == subject)
            {
                return;
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

    #[test]
    fn attempts_to_reconnect_come_often_and_not_in_step() {
        assert_eq!(reconnect_delay(1), Duration::ZERO);
        for attempt in [2, 5, 20, usize::MAX] {
            assert!(reconnect_delay(attempt) <= MAX_RECONNECT_DELAY);
            assert!(reconnect_delay(attempt) >= Duration::from_millis(5));
            assert_ne!(reconnect_delay(attempt), reconnect_delay(attempt));
        }
        assert!(reconnect_delay(20) >= MAX_RECONNECT_DELAY / 2);
    }
}
