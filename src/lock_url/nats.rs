//! Locks of `nats://HOST/BUCKET`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{ConnectErrorKind, ServerAddr};

use super::error::{LockUrlError, LockUrlErrorKind};
use super::parts::Parts;
use crate::backends::nats::{
    Bucket, BucketConfig, BucketErrorKind, DEFAULT_BUCKET, MAX_QUEUE_GROUPS, TlsFiles,
    connect_options, connect_to, with_servers,
};
use crate::lock::Lock;

/// The bucket that a `nats:` URL names, for inspection.
#[derive(Clone)]
#[non_exhaustive]
pub struct NatsBucket {
    /// The servers, possibly with a user and a password.
    pub servers: Vec<ServerAddr>,
    /// The bucket.
    pub bucket: String,
    /// The JetStream domain.
    pub domain: Option<String>,
    /// The prefix of the subjects on which responses arrive.
    pub inbox_prefix: Option<String>,
    /// A file with the user's credentials.
    pub creds: Option<PathBuf>,
    /// A file with the certificates of the authorities to trust.
    pub ca: Option<PathBuf>,
    /// Whether Choria's candidates take part in its elections.
    pub with_choria: bool,
}

#[derive(Clone)]
pub(super) struct NatsTarget {
    pub named: NatsBucket,
    ttl: Option<Duration>,
    /// The TTL of a bucket that is created.
    lease: Option<Duration>,
    create: bool,
    queue_groups: u8,
    shown: String,
}

impl NatsTarget {
    pub fn parse(parts: &mut Parts) -> Result<Self, LockUrlError> {
        let hosts = "it names no server, as nats://localhost:4222/MY_BUCKET does";
        let place = parts.place().strip_prefix("//").unwrap_or_default();
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        // The user of the first server applies to all servers.
        let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
        let at = if user.is_empty() { "" } else { "@" };
        let hosts_of = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
        let servers: Result<Vec<ServerAddr>, LockUrlError> = hosts_of
            .split(',')
            .map(|host| {
                let address = format!("{}://{user}{at}{host}", parts.scheme());
                address
                    .parse()
                    .ok()
                    .filter(|_| !host.is_empty())
                    .ok_or_else(|| parts.malformed(hosts))
            })
            .collect();
        let bucket = parts.decoded(path.trim_end_matches('/'))?;
        let named = NatsBucket {
            servers: servers?,
            bucket: if bucket.is_empty() { DEFAULT_BUCKET.to_owned() } else { bucket },
            domain: parts.take("domain"),
            inbox_prefix: parts.take("inbox-prefix"),
            creds: parts.take("creds").map(PathBuf::from),
            ca: parts.take("ca").map(PathBuf::from),
            with_choria: parts.take_flag("with-choria")?,
        };
        Ok(Self {
            named,
            ttl: parts.take_duration("ttl")?,
            lease: None,
            create: parts.take_create()?,
            queue_groups: queue_groups(parts)?,
            shown: parts.shown().to_owned(),
        })
    }

    pub fn with_lease(&mut self, lease: Duration) {
        self.lease = Some(lease);
    }

    pub fn without_create(&mut self) {
        self.create = false;
    }

    pub async fn open(&self) -> Result<Arc<dyn Lock>, LockUrlError> {
        let NatsBucket { servers, bucket, domain, inbox_prefix, creds, ca, with_choria } =
            &self.named;
        let tls = TlsFiles { authorities: ca.clone(), ..TlsFiles::default() };
        let (mut options, addresses) = with_servers(connect_options(), &servers[..], &tls)
            .map_err(|error| self.failed(LockUrlErrorKind::Malformed, "no server", error))?;
        if let Some(file) = creds {
            let read = options.credentials_file(file).await;
            options = read.map_err(|error| {
                let what = format!("the credentials file {} cannot be used", file.display());
                self.failed(LockUrlErrorKind::Unusable, &what, error)
            })?;
        }
        if let Some(prefix) = inbox_prefix {
            options = options.custom_inbox_prefix(prefix);
        }
        if self.ttl.is_some() {
            options = options.retry_on_initial_connect();
        }
        let connection = connect_to(addresses, options).await;
        let connection = connection.map_err(|error| {
            let kind = match error.kind() {
                ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                    LockUrlErrorKind::Denied
                }
                ConnectErrorKind::ServerParse | ConnectErrorKind::Tls => LockUrlErrorKind::Unusable,
                _ => LockUrlErrorKind::Unavailable,
            };
            self.failed(kind, "no connection to a server", error)
        })?;
        let mut config = BucketConfig::new(bucket)
            .create_if_missing(self.create)
            .with_choria(*with_choria)
            .queue_groups(self.queue_groups);
        if let Some(ttl) = self.lease {
            config = config.ttl(ttl);
        }
        if let Some(domain) = domain {
            config = config.domain(domain);
        }
        let opened = match self.ttl {
            Some(ttl) => Bucket::deferred(connection, config.ttl(ttl)),
            None if self.create => Bucket::create_or_open(connection, config).await,
            None => Bucket::open_with(connection, config).await,
        };
        let opened = opened.map_err(|error| {
            let kind = match error.kind() {
                BucketErrorKind::Unavailable => LockUrlErrorKind::Unavailable,
                BucketErrorKind::Denied => LockUrlErrorKind::Denied,
                BucketErrorKind::Missing => LockUrlErrorKind::Missing,
                _ => LockUrlErrorKind::Unusable,
            };
            self.failed(kind, &format!("bucket {bucket} cannot be used"), error)
        })?;
        Ok(Arc::new(opened.lock()))
    }

    fn failed(
        &self,
        kind: LockUrlErrorKind,
        what: &str,
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> LockUrlError {
        LockUrlError::with_source(kind, format!("{}: {what}", self.shown), error)
    }
}

fn queue_groups(parts: &mut Parts) -> Result<u8, LockUrlError> {
    let Some(text) = parts.take("queue-groups") else { return Ok(0) };
    let groups = text.parse().ok().filter(|groups| (1..=MAX_QUEUE_GROUPS).contains(groups));
    let rule = || format!("queue-groups={text} is not a number from 1 to {MAX_QUEUE_GROUPS}");
    groups.ok_or_else(|| parts.malformed(&rule()))
}

// Hides addresses, which may contain passwords.
partial_debug!(NatsBucket, self, bucket: self.bucket);

/// Hides addresses, which may contain passwords.
impl std::fmt::Debug for NatsTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}
