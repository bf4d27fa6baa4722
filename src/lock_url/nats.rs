//! Locks of `nats://HOST/BUCKET`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::ServerAddr;
use tokio::time::timeout;

use super::error::{LockUrlError, LockUrlErrorKind};
use super::parts::Parts;
use super::target::{OpenOptions, StoreTarget};
use crate::backends::nats::{
    Bucket, BucketConfig, BucketError, BucketErrorKind, Connection, ConnectionSettings,
    Credentials, DEFAULT_BUCKET, MAX_QUEUE_GROUPS, TlsFiles,
};
use crate::lock::Lock;
use crate::protocol::COMMON_MIN_LEASE;

/// How long a bucket on best effort is tried before the candidate begins without it.
const BEST_EFFORT_TIMEOUT: Duration = Duration::from_secs(2);

/// A bucket and the connection to it: what a `nats:` URL names. A [`LockUrl`](super::LockUrl) is
/// made from one that no URL can name, as with a password that is not in an address.
#[derive(Clone)]
#[non_exhaustive]
pub struct NatsBucket {
    /// The connection.
    pub connection: ConnectionSettings,
    /// The bucket.
    pub bucket: String,
    /// Whether Choria's candidates take part in its elections.
    pub with_choria: bool,
    /// The number of queue groups of its standbys, as of [`BucketConfig::queue_groups`].
    pub queue_groups: Option<u8>,
    ttl: Option<Duration>,
    /// The TTL of a bucket that is created.
    lease: Option<Duration>,
    create: bool,
    pub(super) shown: String,
}

impl NatsBucket {
    /// Creates the target that a URL with these settings and without options names.
    pub fn new(connection: ConnectionSettings, bucket: Option<&str>) -> Self {
        let bucket = bucket.unwrap_or(DEFAULT_BUCKET).to_owned();
        let hosts = connection.servers.iter().map(|one| format!("{}:{}", one.host(), one.port()));
        let shown = format!("nats://{}/{bucket}", hosts.collect::<Vec<_>>().join(","));
        Self {
            connection,
            bucket,
            with_choria: false,
            queue_groups: None,
            ttl: None,
            lease: None,
            create: true,
            shown: crate::util::text::escape_line(&shown, 200).into_owned(),
        }
    }

    /// Returns the configuration of the bucket, which creates nothing by itself.
    pub fn config(&self) -> BucketConfig {
        let mut config = BucketConfig::new(&self.bucket).with_choria(self.with_choria);
        if let Some(groups) = self.queue_groups {
            config = config.queue_groups(groups);
        }
        let of_lease = self.lease.map(|lease| lease.max(COMMON_MIN_LEASE));
        if let Some(ttl) = self.ttl.or(of_lease) {
            config = config.ttl(ttl);
        }
        match &self.connection.api_prefix {
            Some(prefix) => config.api_prefix(prefix),
            None => config,
        }
    }
}

impl StoreTarget for NatsBucket {
    type Named = Self;

    fn parse(parts: &mut Parts) -> Result<Self, LockUrlError> {
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
        let ttl = parts.take_duration("ttl")?;
        let connection = ConnectionSettings {
            servers: servers?,
            credentials: match parts.take("creds") {
                Some(file) => Credentials::File(PathBuf::from(file)),
                None => Credentials::None,
            },
            tls: TlsFiles { authorities: parts.take("ca").map(PathBuf::from), client: None },
            api_prefix: parts.take("domain").map(|domain| format!("$JS.{domain}.API")),
            inbox_prefix: parts.take("inbox-prefix"),
            in_background: ttl.is_some(),
            ..ConnectionSettings::default()
        };
        Ok(Self {
            with_choria: parts.take_flag("with-choria")?,
            ttl,
            create: parts.take_create()?,
            queue_groups: queue_groups(parts)?,
            shown: parts.shown().to_owned(),
            ..Self::new(connection, Some(&bucket).filter(|name| !name.is_empty()).map(|n| &**n))
        })
    }

    fn named(&self, options: OpenOptions) -> Result<Self, LockUrlError> {
        let (lease, create) = (options.lease.or(self.lease), options.create && self.create);
        Ok(Self { lease, create, ..self.clone() })
    }

    async fn open(&self, options: OpenOptions) -> Result<Arc<dyn Lock>, LockUrlError> {
        use LockUrlErrorKind::{Denied, Missing, Unavailable};
        if !options.may_wait {
            return self.open_now(options).await;
        }
        match timeout(BEST_EFFORT_TIMEOUT, self.open_now(options)).await {
            Ok(Ok(lock)) => Ok(lock),
            Ok(Err(error)) if !matches!(error.kind(), Unavailable | Denied | Missing) => Err(error),
            Ok(Err(_)) | Err(_) => self.open_later(options).await,
        }
    }
}

impl NatsBucket {
    /// Requests the bucket, unless the URL has its TTL.
    async fn open_now(&self, options: OpenOptions) -> Result<Arc<dyn Lock>, LockUrlError> {
        let connection = self.connection.connect(|_| ()).await;
        // Settings are of the URL, or of a file that it names.
        let connection = connection.map_err(|error| match error.kind() {
            BucketErrorKind::Unusable => error.with_kind(LockUrlErrorKind::Malformed),
            _ => failed(error),
        })?;
        let named = self.named(options)?;
        if named.ttl.is_some() {
            return named.deferred(connection);
        }
        let config = named.config();
        let opened = match named.create {
            true => Bucket::create_or_open(connection, config).await,
            false => Bucket::open_with(connection, config).await,
        };
        Ok(Arc::new(opened.map_err(failed)?.lock()))
    }

    /// Opens the bucket at its first use, and at each later one until that succeeds.
    async fn open_later(&self, options: OpenOptions) -> Result<Arc<dyn Lock>, LockUrlError> {
        let later = ConnectionSettings { in_background: true, ..self.connection.clone() };
        let connection = later.connect(|_| ()).await.map_err(failed)?;
        self.named(options)?.deferred(connection)
    }

    fn deferred(&self, connection: Connection) -> Result<Arc<dyn Lock>, LockUrlError> {
        let config = self.config().create_if_missing(self.create);
        Ok(Arc::new(Bucket::deferred(connection, config).map_err(failed)?.lock()))
    }
}

/// The message names the servers or the bucket.
fn failed(error: BucketError) -> LockUrlError {
    let kind = match error.kind() {
        BucketErrorKind::Unavailable => LockUrlErrorKind::Unavailable,
        BucketErrorKind::Denied => LockUrlErrorKind::Denied,
        BucketErrorKind::Missing => LockUrlErrorKind::Missing,
        BucketErrorKind::Exists | BucketErrorKind::Unusable => LockUrlErrorKind::Unusable,
    };
    error.with_kind(kind)
}

fn queue_groups(parts: &mut Parts) -> Result<Option<u8>, LockUrlError> {
    let Some(text) = parts.take("queue-groups") else { return Ok(None) };
    let groups = text.parse().ok().filter(|groups| *groups <= MAX_QUEUE_GROUPS);
    let rule = || format!("queue-groups={text} is not a number from 0 to {MAX_QUEUE_GROUPS}");
    groups.map(Some).ok_or_else(|| parts.malformed(&rule()))
}

/// Hides addresses, which may contain passwords.
impl std::fmt::Debug for NatsBucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown)
    }
}
