//! Connections of clients: held, passed on, and cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use incumbent::discovery::{ConnectError, LeaderConnector, LeaderKey, LeaderStream};
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::sync::SetOnce;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::counters::{Counters, OneMore};
use crate::http::listen::Socket;
use crate::output;

/// What is buffered of each direction at most.
const BUFFER: usize = 64 * 1024;

/// When the peer of an idle connection is asked whether it is still there.
const KEEPALIVE: TcpKeepalive =
    TcpKeepalive::new().with_time(Duration::from_secs(60)).with_interval(Duration::from_secs(10));

/// What all connections have in common.
pub struct Proxied {
    pub connector: Arc<SetOnce<LeaderConnector>>,
    pub hold: Duration,
    /// Where the proxy listens.
    pub port: Option<SocketAddr>,
    pub counters: Counters,
    /// The leader that advertises this proxy, if there was one.
    pub own: Mutex<Option<LeaderKey>>,
}

/// The connections of clients. They end when this is dropped.
pub struct Connections {
    tasks: JoinSet<()>,
    limit: usize,
}

impl Connections {
    pub fn new(limit: u32) -> Self {
        Self { tasks: JoinSet::new(), limit: usize::try_from(limit).unwrap_or(usize::MAX) }
    }

    /// Accepts connections for as long as it is polled, and serves them in tasks of their own.
    pub async fn accept(&mut self, proxied: &Arc<Proxied>, socket: Socket) {
        match socket {
            Socket::Tcp(socket) => self.accept_at(proxied, socket).await,
            #[cfg(unix)]
            Socket::Unix(socket, _file) => self.accept_at(proxied, socket).await,
        }
    }

    async fn accept_at<L: Listener<Io: Client>>(&mut self, proxied: &Arc<Proxied>, mut socket: L) {
        loop {
            let (client, _) = socket.accept().await; // pauses after an error
            while self.tasks.try_join_next().is_some() {}
            if self.tasks.len() >= self.limit {
                proxied.counters.over_limit.increment(1);
                continue;
            }
            let proxied = Arc::clone(proxied);
            self.tasks.spawn(async move { proxied.serve(client).await });
        }
    }

    /// Waits until all connections have ended.
    pub async fn ended(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Proxied {
    async fn serve(&self, mut client: impl Client) {
        let counters = &self.counters;
        let _open = OneMore::of(&counters.open);
        counters.opened.increment(1);
        client.prepare();
        if self.leads_to_itself() {
            counters.not_connected.increment(1);
            return;
        }
        let held = OneMore::of(&counters.held);
        let connected = self.connect().await;
        drop(held);
        let (leader, mut term) = match connected {
            Ok(stream) => stream.into_parts(),
            Err(why) => {
                counters.not_connected.increment(1);
                tracing::info!(%why, "connection closed at the end of its hold");
                return;
            }
        };
        if self.is_own(&leader) {
            counters.not_connected.increment(1);
            let found = Some(LeaderKey::from(term.leader()));
            let known = std::mem::replace(&mut *self.own.lock(), found.clone());
            if known != found {
                let identity = &term.leader().identity;
                output::note(format!("{identity} advertises this proxy: connections are closed"));
            }
            return;
        }
        leader.prepare();
        // Who reads the end of a stream takes what came before it for the whole: both end with a
        // reset, also when the proxy stops, unless the copy is whole.
        client.reset_on_close(true);
        leader.reset_on_close(true);
        let mut leader = counters.count(leader);
        tokio::select! {
            biased; // nothing is passed on once the term is over
            () = term.over() => counters.cut.increment(1),
            copied = copy_bidirectional_with_sizes(&mut client, &mut leader, BUFFER, BUFFER) => {
                if copied.is_ok() {
                    client.reset_on_close(false);
                    leader.get_ref().get_ref().reset_on_close(false);
                }
            }
        }
    }

    /// Connects to the leader, within the hold.
    async fn connect(&self) -> Result<LeaderStream, ConnectError> {
        let end = Instant::now() + self.hold;
        let connector = timeout_at(end, self.connector.wait()).await;
        let connector = connector.map_err(|_| ConnectError::NoLeader)?.clone();
        connector.hold(end.saturating_duration_since(Instant::now())).connect().await
    }

    /// Whether the leader is known to advertise this proxy.
    fn leads_to_itself(&self) -> bool {
        let leader = self.connector.get().and_then(|to| to.observer().fresh_leader());
        leader.is_some_and(|leader| *self.own.lock() == Some(LeaderKey::from(&leader)))
    }

    /// Whether the proxy connected to itself, which would have no end.
    fn is_own(&self, leader: &TcpStream) -> bool {
        let (Some(own), Ok(peer), Ok(local)) = (self.port, leader.peer_addr(), leader.local_addr())
        else {
            return false;
        };
        let [own_ip, peer_ip, local_ip] = [own, peer, local].map(|at| at.ip().to_canonical());
        // At [::] it gets the connections of IPv4, too.
        let is_any = own.ip().is_unspecified() && (own.is_ipv6() || peer_ip.is_ipv4());
        (is_any || own_ip == peer_ip) && own.port() == peer.port() && peer_ip == local_ip
    }
}

/// A connection of a client, or to a leader.
trait Client: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// Sets it up.
    fn prepare(&self) {}

    /// Whether it ends with a reset: what was not sent is dropped, and its reader gets an error.
    fn reset_on_close(&self, _resets: bool) {}
}

impl Client for TcpStream {
    fn prepare(&self) {
        // Without these it is slower, or lasts longer.
        let _ = self.set_nodelay(true);
        let _ = SockRef::from(self).set_tcp_keepalive(&KEEPALIVE);
    }

    fn reset_on_close(&self, resets: bool) {
        let linger = resets.then_some(Duration::ZERO);
        let _ = SockRef::from(self).set_linger(linger); // an error: it has ended
    }
}

#[cfg(unix)]
impl Client for UnixStream {}
