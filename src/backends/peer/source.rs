//! Sources of peer addresses.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// The default refresh interval.
pub(super) const REFRESH: Duration = Duration::from_secs(10);

/// A source of peer addresses. The addresses may include this member's own.
pub trait PeerSource: fmt::Debug + Send + Sync + 'static {
    /// Returns the current addresses of the peers.
    ///
    /// # Errors
    /// [`SourceError`] if the addresses are not available. The member then keeps the previous
    /// addresses.
    fn addresses(&self) -> BoxFuture<'_, Result<Vec<SocketAddr>, SourceError>>;

    /// Returns how long to wait before the next query; `None`: the addresses never change. Default:
    /// 10 s.
    fn refresh(&self) -> Option<Duration> {
        Some(REFRESH)
    }
}

/// A fixed list.
impl PeerSource for Vec<SocketAddr> {
    fn addresses(&self) -> BoxFuture<'_, Result<Vec<SocketAddr>, SourceError>> {
        std::future::ready(Ok(self.clone())).boxed()
    }

    fn refresh(&self) -> Option<Duration> {
        None
    }
}

/// Every address of a DNS name, resolved periodically: a name of several hosts, or of a headless
/// Service.
#[derive(Debug, Clone)]
pub struct DnsSource {
    host: String,
    port: u16,
    refresh: Duration,
}

impl DnsSource {
    /// Creates a source of every IPv4 address of `host`, at `port`.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port, refresh: REFRESH }
    }

    /// Sets how long to wait before the next query. Default: 10 s.
    pub fn refresh(mut self, refresh: Duration) -> Self {
        self.refresh = refresh;
        self
    }
}

impl PeerSource for DnsSource {
    fn addresses(&self) -> BoxFuture<'_, Result<Vec<SocketAddr>, SourceError>> {
        async {
            match tokio::net::lookup_host((self.host.as_str(), self.port)).await {
                // democracy speaks IPv4 only.
                Ok(found) => Ok(found.filter(SocketAddr::is_ipv4).collect()),
                Err(error) => {
                    let message = format!("the peers' name {} cannot be resolved", self.host);
                    Err(SourceError::new(message, error))
                }
            }
        }
        .boxed()
    }

    fn refresh(&self) -> Option<Duration> {
        Some(self.refresh)
    }
}

/// The error of a [`PeerSource`].
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SourceError {
    message: String,
    source: Box<dyn Error + Send + Sync>,
}

impl SourceError {
    /// Creates an error. `message`: what failed; `source`: why.
    pub fn new(
        message: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { message: message.into(), source: source.into() }
    }
}
