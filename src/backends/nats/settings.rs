//! The settings of a connection, and how it is made from them.

use std::future::ready;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::{ConnectErrorKind, ConnectOptions, Event, ServerAddr};

use super::connection::Connection;
use super::error::{BucketError, BucketErrorKind};
use super::events::PermissionWatch;
use super::options::{TlsFiles, user_of, with_quick_reconnects, with_servers, without_websockets};
use super::user_credentials::{read_text, with_credentials};
use crate::util::text::error_chain;

/// What a client proves its identity by.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Credentials {
    /// Nothing but the user and the password of an address, if it has them.
    #[default]
    None,
    /// A credentials file, which is read again for each connection.
    File(PathBuf),
    /// The content of a credentials file.
    Content(String),
    /// The seed of an NKey.
    Seed(String),
    /// A user and a password.
    User(String, String),
    /// A token.
    Token(String),
}

/// The settings of a connection, of whatever origin. `Debug` shows no secret.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct ConnectionSettings {
    /// The servers, possibly with a user and a password.
    pub servers: Vec<ServerAddr>,
    /// What the client proves its identity by.
    pub credentials: Credentials,
    /// The files of TLS.
    pub tls: TlsFiles,
    /// Whether TLS begins before the server's first message. Requires TLS.
    pub tls_first: bool,
    /// The prefix of the JetStream API. Default: `$JS.API`.
    pub api_prefix: Option<String>,
    /// The prefix of the subjects on which responses arrive. Default: `_INBOX`.
    pub inbox_prefix: Option<String>,
    /// How long connecting, and each request of the client, may take. Default: the client's.
    pub timeout: Option<Duration>,
    /// Whether the client connects in the background once a server is reachable.
    pub in_background: bool,
    /// The origin of the settings, for the messages of errors.
    pub origin: Option<String>,
}

partial_debug!(ConnectionSettings, self, origin: self.origin, timeout: self.timeout);

impl ConnectionSettings {
    /// Creates settings from addresses that are separated by commas.
    ///
    /// # Errors
    /// [`BucketErrorKind::Unusable`] if one is not an address.
    pub fn new(servers: &str) -> Result<Self, BucketError> {
        let servers = servers.split(',').map(|server| server.trim().parse());
        let servers: io::Result<Vec<ServerAddr>> = servers.collect();
        Ok(Self { servers: servers.map_err(invalid_address)?, ..Self::default() })
    }

    /// Connects, and watches for denied permissions. `on_event` is called with each event of the
    /// connection, and must not block.
    ///
    /// # Errors
    /// One line without a secret. [`BucketErrorKind::Unusable`], if the settings or their files
    /// are; [`Denied`](BucketErrorKind::Denied), if no server accepts the credentials;
    /// [`Unavailable`](BucketErrorKind::Unavailable), if none is reached.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn connect(
        &self,
        on_event: impl Fn(&Event) + Send + Sync + 'static,
    ) -> Result<Connection, BucketError> {
        let (options, addresses) = self.options()?;
        let watch = PermissionWatch::new();
        let observer = watch.clone();
        let options = options.event_callback(move |event| {
            observer.observe(&event);
            on_event(&event);
            ready(())
        });
        let limit = self.timeout.unwrap_or(Duration::MAX);
        let connected = tokio::time::timeout(limit, options.connect(addresses.as_slice())).await;
        let at = addresses.iter().map(|server| format!("{}:{}", server.host(), server.port()));
        let at = at.collect::<Vec<_>>().join(", ");
        let tls = if self.requires_tls() { "; TLS is required" } else { "" };
        let unreachable = |why: &str| {
            let message = format!("cannot reach a NATS server at {at}: {why}{tls}");
            BucketError::new(BucketErrorKind::Unavailable, message)
        };
        let error = match connected {
            Ok(Ok(client)) => return Ok(Connection::new(client, watch)),
            Ok(Err(error)) => error,
            Err(_) => return Err(unreachable("timed out")),
        };
        let denied = |why| {
            let message =
                format!("the NATS server at {at} {why}: check the user, the NKey or the file");
            BucketError::new(BucketErrorKind::Denied, message)
        };
        Err(match error.kind() {
            ConnectErrorKind::AuthorizationViolation => denied("denies access"),
            ConnectErrorKind::Authentication => denied("rejects the credentials"),
            _ => unreachable(&error_chain(&error)),
        })
    }

    /// Returns the options of the client, and the addresses without users and passwords.
    fn options(&self) -> Result<(ConnectOptions, Vec<ServerAddr>), BucketError> {
        let TlsFiles { authorities, client } = &self.tls;
        let client = client
            .iter()
            .flat_map(|(certificate, key)| [("TLS certificate", certificate), ("TLS key", key)]);
        for (what, file) in client.chain(authorities.iter().map(|file| ("TLS authorities", file))) {
            std::fs::File::open(file).map_err(|error| {
                self.unusable(format!("cannot read {what} in {}: {error}", file.display()))
            })?;
        }
        let options = match &self.credentials {
            Credentials::File(file) => {
                let text = read_text(file).map_err(|error| {
                    self.unusable(format!("cannot read credentials in {}: {error}", file.display()))
                })?;
                with_credentials(&text, Some(file.clone()), user_of(&self.servers))
                    .ok_or_else(|| self.unusable(format!("no credentials in {}", file.display())))?
            }
            Credentials::Content(text) => with_credentials(text, None, user_of(&self.servers))
                .ok_or_else(|| self.unusable("no credentials in the content".to_owned()))?,
            _ => ConnectOptions::new(),
        };
        let options = with_quick_reconnects(options);
        let (options, addresses) =
            with_servers(options, &self.servers[..], &self.tls).map_err(invalid_address)?;
        let mut options = match &self.credentials {
            Credentials::None | Credentials::File(_) | Credentials::Content(_) => options,
            Credentials::Seed(seed) => options.nkey(seed.clone()),
            Credentials::User(name, password) => {
                options.user_and_password(name.clone(), password.clone())
            }
            Credentials::Token(token) => options.token(token.clone()),
        };
        options = options.name("incumbent");
        if self.tls_first {
            options = options.tls_first().reconnect_to_server_callback(without_websockets);
        }
        if let Some(prefix) = &self.inbox_prefix {
            options = options.custom_inbox_prefix(prefix);
        }
        if let Some(timeout) = self.timeout {
            options = options.connection_timeout(timeout).request_timeout(Some(timeout));
        }
        if self.in_background {
            options = options.retry_on_initial_connect();
        }
        Ok((options, addresses))
    }

    /// Whether a server without TLS is refused.
    fn requires_tls(&self) -> bool {
        let by_address = self.servers.iter().any(ServerAddr::tls_required);
        let TlsFiles { authorities, client } = &self.tls;
        self.tls_first || authorities.is_some() || client.is_some() || by_address
    }

    fn unusable(&self, what: String) -> BucketError {
        let origin = self.origin.as_ref().map(|origin| format!(" ({origin})"));
        BucketError::new(BucketErrorKind::Unusable, what + &origin.unwrap_or_default())
    }
}

/// An error contains no part of an address, which may be a password.
fn invalid_address(error: io::Error) -> BucketError {
    let message = format!("server address: {error}; write it as nats://127.0.0.1:4222");
    BucketError::new(BucketErrorKind::Unusable, message)
}
