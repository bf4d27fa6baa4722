//! A NATS client that observes the permissions that its server denies.

use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{
    Client, ConnectError, ConnectOptions, Message, PublishError, PublishErrorKind, StatusCode,
    Subject, ToServerAddrs,
};

use super::events::{ConnectionEvents, PermissionWatch};
use super::options::{TlsFiles, with_servers};
use super::reply_inbox::{NoReply, Replies, Request};

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

/// Why a request failed, in words, and the source.
pub(super) type Reason = (String, Option<Box<dyn std::error::Error + Send + Sync>>);

impl RequestFailure {
    /// Returns the reason. `unheard`: why a subject has no subscribers where JetStream is on.
    pub(super) fn reason(self, connection: &Connection, unheard: &str) -> Reason {
        match self {
            Self::Disconnected => ("not connected to NATS".to_owned(), None),
            Self::NoResponders => {
                (format!("no responders: {unheard}, or JetStream is off or has no leader"), None)
            }
            Self::Denied(subject) => (
                format!("the server denies the permission to publish to {subject}; grant it"),
                None,
            ),
            Self::Unanswerable(subject) => (
                format!("the server denies the permission to subscribe to {subject}; grant it"),
                None,
            ),
            Self::Malformed(error) => {
                ("the client cannot send the request".to_owned(), Some(error.into()))
            }
            Self::TimedOut(timeout) if connection.sees_refusals() => {
                (format!("no response within {timeout:?}"), None)
            }
            Self::TimedOut(timeout) => (
                format!(
                    "no response within {timeout:?} (a missing permission to publish looks the same)"
                ),
                None,
            ),
            Self::Broken(error) => ("the connection broke".to_owned(), Some(error)),
        }
    }
}
