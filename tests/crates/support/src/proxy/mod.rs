//! A proxy that loses the messages that a test chooses, and cuts connections.
//!
//! It carries whole messages of the NATS protocol, so a connection from which it swallowed some
//! stays a valid one: what a test sees is lost messages, not a garbled stream. It does not speak
//! TLS.

mod connection;
mod frame;
mod request;
mod trap;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use async_nats::Client;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::server::{client_options, connected};
use trap::{Effect, Traps};

pub use request::Request;
pub use trap::Trap;

/// A direction through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// How many messages were swallowed each way.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    to_server: AtomicU64,
    to_client: AtomicU64,
}

impl Lost {
    fn one_way(&self, way: Way) -> &AtomicU64 {
        match way {
            Way::ToServer => &self.to_server,
            Way::ToClient => &self.to_client,
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct State {
    loses_to_server: bool,
    loses_to_client: bool,
    refuses: bool,
    cuts: u64,
}

impl State {
    fn loses(&self, way: Way) -> bool {
        match way {
            Way::ToServer => self.loses_to_server,
            Way::ToClient => self.loses_to_client,
        }
    }
}

/// A TCP proxy in front of one server, on a thread of its own, so that nothing a test does with its
/// own runtime delays it. Dropping it cuts its connections and closes its port.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: watch::Sender<State>,
    traps: Arc<Traps>,
    lost: Arc<Lost>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// A proxy in front of the server at this address, which may start later, or again.
    pub fn start(server: SocketAddr) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .expect("a port of the loopback interface");
        listener.set_nonblocking(true).expect("a socket that does not block");
        let address = listener.local_addr().expect("the address of a bound socket");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .expect("a runtime for the proxy");
        let (state, watched) = watch::channel(State::default());
        let traps = Arc::new(Traps::default());
        let lost = Arc::new(Lost::default());
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn({
            let (traps, lost) = (traps.clone(), lost.clone());
            move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = accept(listener, server, watched, traps, lost) => {}
                        _ = stopped => {}
                    }
                });
            }
        });
        Self { address, state, traps, lost, stop: Some(stop), thread: Some(thread) }
    }

    /// Where clients connect, as a URL.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// A new connection by way of it, for a server without users.
    pub async fn connect(&self) -> Client {
        connected(|| client_options().connect(self.url())).await
    }

    /// Swallows all messages that go one way from now on, with the connections open.
    pub fn lose(&self, way: Way) {
        self.state.send_modify(|state| match way {
            Way::ToServer => state.loses_to_server = true,
            Way::ToClient => state.loses_to_client = true,
        });
    }

    /// Swallows everything both ways, with all connections open, new ones too: a network that has
    /// gone silent.
    ///
    /// A connection made meanwhile has lost the server's greeting, and stays useless after
    /// [`pass`](Self::pass) until its client gives it up, or [`cut`](Self::cut).
    pub fn black_hole(&self) {
        self.lose(Way::ToServer);
        self.lose(Way::ToClient);
    }

    /// Lets everything through both ways.
    pub fn pass(&self) {
        self.state.send_modify(|state| {
            (state.loses_to_server, state.loses_to_client) = (false, false);
        });
    }

    /// How many messages, anything that a client and a server send to each other, were swallowed
    /// one way.
    pub fn swallowed(&self, way: Way) -> u64 {
        self.lost.one_way(way).load(Ordering::SeqCst)
    }

    /// Closes all connections, on both sides. New ones are served.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    /// Whether new connections are closed at once, as by a server that is down. Those there are
    /// stay.
    pub fn refuse(&self, refuses: bool) {
        self.state.send_modify(|state| state.refuses = refuses);
    }

    /// Swallows the next request that matches. The server never sees it.
    pub fn lose_request(&self, matches: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Trap {
        self.traps.set(Effect::LoseRequest, matches)
    }

    /// Swallows the reply to the next request that matches. The server has executed the request
    /// when the trap reports.
    pub fn lose_reply(&self, matches: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Trap {
        self.traps.set(Effect::LoseReply, matches)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn accept(
    listener: std::net::TcpListener,
    server: SocketAddr,
    state: watch::Receiver<State>,
    traps: Arc<Traps>,
    lost: Arc<Lost>,
) {
    let listener = TcpListener::from_std(listener).expect("a socket of this runtime");
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((client, _)) = accepted
                    && !state.borrow().refuses
                {
                    connections.spawn(connection::run(client, server, state.clone(), traps.clone(), lost.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
