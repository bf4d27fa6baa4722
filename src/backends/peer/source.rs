//! Where the addresses of peers come from.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// How often addresses are asked for again, where nothing else is said.
pub(super) const REFRESH: Duration = Duration::from_secs(10);

/// A source of addresses. It may name this member too.
pub trait PeerSource: fmt::Debug + Send + Sync + 'static {
    /// Where the peers are now.
    ///
    /// # Errors
    /// [`SourceError`] where that cannot be found out: those known before are kept.
    fn addresses(&self) -> BoxFuture<'_, Result<Vec<SocketAddr>, SourceError>>;

    /// When to ask again; `None`: never, the answer stays the same. Default: after 10 s.
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

/// Every address of a name in DNS, asked for again and again: a name of several hosts, or of a headless Service.
#[derive(Debug, Clone)]
pub struct DnsSource {
    host: String,
    port: u16,
    refresh: Duration,
}

impl DnsSource {
    /// The peers are at `port` of every IPv4 address of `host`.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port, refresh: REFRESH }
    }

    /// How long to wait before asking again. Default: 10 s.
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

/// Why the addresses of peers could not be found out.
#[derive(Debug)]
pub struct SourceError {
    message: String,
    source: Box<dyn Error + Send + Sync>,
}

impl SourceError {
    /// `message`: what cannot be done; `source`: why.
    pub fn new(
        message: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { message: message.into(), source: source.into() }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
