//! Connections to the leader.

mod addresses;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tower_service::Service;

use self::addresses::Addresses;
use super::Leaders;
use super::stream::{FollowedTerm, LeaderStream};
use crate::election::Observer;
use crate::lock::{Advertisement, AdvertisementError};
use crate::protocol::Leader;

/// How long connections wait by default.
const HOLD: Duration = Duration::from_secs(10);

/// How often a leader that refuses connections is tried again, by all that wait for it together: it
/// may not listen yet.
const RETRY: Duration = Duration::from_millis(10);

/// How long one address of a leader is tried: packets to it may get lost.
const ATTEMPT: Duration = Duration::from_secs(1);

/// Connects to the fresh leader's advertised address, for hyper, tonic and others.
///
/// Without a leader, and while the leader refuses connections, a connection waits for up to the
/// [hold](Self::hold), and then fails. It fails later as soon as the term is over by the clock of
/// this process: see [`LeaderStream`]. The [`Uri`] does not matter.
///
/// ```no_run
/// # async fn of(lock: incumbent::memory::MemoryLock) -> Result<(), Box<dyn std::error::Error>> {
/// use incumbent::discovery::LeaderConnector;
/// use tonic::transport::Endpoint;
///
/// let connector = LeaderConnector::new(incumbent::observe("my_app", lock)?);
/// let channel = Endpoint::from_static("http://leader").connect_with_connector_lazy(connector);
/// # let _ = channel;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct LeaderConnector {
    observer: Observer,
    hold: Duration,
    refused: Arc<Refused>,
    addresses: Arc<Addresses>,
}

/// The connections that a leader has refused, and that are tried again.
#[derive(Debug, Default)]
struct Refused {
    count: AtomicU32,
    /// It accepted one of them.
    accepted: Notify,
}

/// One of them.
struct OneRefused<'a>(&'a Refused);

impl<'a> OneRefused<'a> {
    fn of(refused: &'a Refused) -> Self {
        refused.count.fetch_add(1, Ordering::Relaxed);
        Self(refused)
    }
}

impl Drop for OneRefused<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LeaderConnector {
    /// A connector to the leaders that this observer sees, with a hold of ten seconds.
    pub fn new(observer: Observer) -> Self {
        Self { observer, hold: HOLD, refused: Arc::default(), addresses: Arc::default() }
    }

    /// The observer.
    pub fn observer(&self) -> &Observer {
        &self.observer
    }

    /// Sets how long a connection may wait for a leader that accepts it. Choose more than the
    /// lease to outlast the crash of a leader.
    pub fn hold(mut self, hold: Duration) -> Self {
        self.hold = hold;
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// [`ConnectError`]: what was in the way at the end of the hold.
    ///
    /// # Cancel safety
    /// Dropping the returned future ends the attempt.
    pub async fn connect(&self) -> Result<LeaderStream, ConnectError> {
        let mut failure = ConnectError::NoLeader;
        match tokio::time::timeout(self.hold, self.attempts(&mut failure)).await {
            Ok(Some(stream)) => Ok(stream),
            Ok(None) => Err(ConnectError::Stopped),
            Err(_) => Err(failure),
        }
    }

    /// Tries until one succeeds; `None` once the observer has stopped. `failure`: that of the last
    /// attempt.
    async fn attempts(&self, failure: &mut ConnectError) -> Option<LeaderStream> {
        let mut leaders = Leaders::new(self.observer.clone());
        let mut leader = leaders.next().await?;
        loop {
            let attempt = async {
                let Some(leader) = &leader else {
                    *failure = ConnectError::NoLeader;
                    return std::future::pending().await;
                };
                self.connect_to(leader, failure).await
            };
            let stream = tokio::select! {
                biased; // a former leader is not connected to
                next = leaders.next() => {
                    leader = next?;
                    continue;
                }
                stream = attempt => stream,
            };
            if let Some(leader) = leader {
                return Some(LeaderStream::new(stream, FollowedTerm::new(leaders, leader)));
            }
        }
    }

    /// Tries until the leader accepts the connection.
    async fn connect_to(&self, leader: &Leader, failure: &mut ConnectError) -> TcpStream {
        let address = match address(leader) {
            Ok(address) => address,
            Err(why) => {
                *failure = why;
                return std::future::pending().await;
            }
        };
        let mut refused = None;
        loop {
            // What counts if the hold ends meanwhile.
            *failure = refusal(leader, io::ErrorKind::TimedOut.into());
            match self.attempt(address).await {
                Ok(stream) => {
                    let _ = stream.set_nodelay(true); // an error: it is slower
                    self.refused.accepted.notify_waiters();
                    return stream;
                }
                Err(error) => *failure = refusal(leader, error),
            }
            refused.get_or_insert_with(|| OneRefused::of(&self.refused));
            let pause = RETRY.saturating_mul(self.refused.count.load(Ordering::Relaxed));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.refused.accepted.notified() => {}
            }
        }
    }

    /// Tries each address once, and returns the error of the last one.
    async fn attempt(&self, (host, port): (&str, u16)) -> io::Result<TcpStream> {
        let mut failure = io::Error::other("the name has no address");
        for address in self.addresses.of(host).await?.iter() {
            let mut address = *address;
            address.set_port(port);
            match tokio::time::timeout(ATTEMPT, TcpStream::connect(address)).await {
                Ok(Ok(stream)) if is_to_itself(&stream) => {
                    // The port stays free for the leader, which does not listen yet.
                    let _ = stream.set_zero_linger();
                    failure = io::ErrorKind::ConnectionRefused.into();
                }
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => failure = error,
                Err(_) => failure = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(failure)
    }
}

/// Whether both ends are the same socket: a connection to a port of this host that nobody listens
/// at may get that port for its own.
fn is_to_itself(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(local), Ok(peer)) if local == peer)
}

fn refusal(leader: &Leader, error: io::Error) -> ConnectError {
    ConnectError::Refused(Arc::clone(&leader.identity), error)
}

fn address(leader: &Leader) -> Result<(&str, u16), ConnectError> {
    let identity = || Arc::clone(&leader.identity);
    let advertised = leader.advertisement.as_deref();
    let advertised = advertised.ok_or_else(|| ConnectError::NoAddress(identity()))?;
    let unusable = |why| ConnectError::BadAddress(identity(), advertised.address().to_owned(), why);
    Advertisement::host_and_port(advertised).map_err(unusable)
}

/// Why there is no connection to a leader.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No leader is known.
    #[error("no leader is known")]
    NoLeader,
    /// The leader advertises no address.
    #[error("{0} leads, and advertises no address")]
    NoAddress(Arc<str>),
    /// The leader cannot be connected to by its address.
    #[error("{0} leads, and advertises {1:?}: {2}")]
    BadAddress(Arc<str>, String, #[source] AdvertisementError),
    /// The leader refused the connection.
    #[error("{0} leads, and cannot be connected to: {1}")]
    Refused(Arc<str>, #[source] io::Error),
    /// The observer has stopped.
    #[error("the observer has stopped")]
    Stopped,
}

impl Service<Uri> for LeaderConnector {
    type Response = TokioIo<LeaderStream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect().await.map(TokioIo::new) })
    }
}
