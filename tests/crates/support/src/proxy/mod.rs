//! A proxy that loses, holds and cuts the messages that a test chooses.
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

use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

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

/// What happens to messages that go one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Flow {
    /// They arrive.
    #[default]
    Pass,
    /// They are swallowed, and the connection stays open, without a notice.
    Lose,
    /// They wait, in order, until the flow is another.
    Hold,
}

/// How many messages the flow has swallowed each way.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    to_server: LostOneWay,
    to_client: LostOneWay,
}

#[derive(Debug, Default)]
struct LostOneWay {
    all: AtomicU64,
    /// The `PING` and `PONG` among them, which come at any time.
    pings: AtomicU64,
}

impl Lost {
    fn one_way(&self, way: Way) -> &LostOneWay {
        match way {
            Way::ToServer => &self.to_server,
            Way::ToClient => &self.to_client,
        }
    }

    fn add(&self, way: Way, message: &[u8]) {
        let lost = self.one_way(way);
        if message.starts_with(b"PING") || message.starts_with(b"PONG") {
            lost.pings.fetch_add(1, Ordering::SeqCst);
        }
        lost.all.fetch_add(1, Ordering::SeqCst);
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct State {
    to_server: Flow,
    to_client: Flow,
    refuses: bool,
    cuts: u64,
}

impl State {
    fn flow(&self, way: Way) -> Flow {
        match way {
            Way::ToServer => self.to_server,
            Way::ToClient => self.to_client,
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

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where clients connect, as a URL.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Where clients connect as a user, as a URL.
    pub fn url_as(&self, user: &str, password: &str) -> String {
        format!("nats://{user}:{password}@{}", self.address)
    }

    /// Sets what happens from now on to messages that go one way.
    pub fn flow(&self, way: Way, flow: Flow) {
        self.state.send_modify(|state| match way {
            Way::ToServer => state.to_server = flow,
            Way::ToClient => state.to_client = flow,
        });
    }

    /// Swallows everything both ways, with all connections open, new ones too: a network that has
    /// gone silent.
    ///
    /// A connection made meanwhile has lost the server's greeting, and stays useless after
    /// [`pass`](Self::pass) until its client gives it up, or [`cut`](Self::cut).
    pub fn black_hole(&self) {
        self.both(Flow::Lose);
    }

    /// Holds everything both ways: a network that is silent for a while and then delivers all.
    pub fn hold(&self) {
        self.both(Flow::Hold);
    }

    /// Lets everything through both ways, and what was held first.
    pub fn pass(&self) {
        self.both(Flow::Pass);
    }

    /// How many messages, anything that a client and a server send to each other, [`Flow::Lose`]
    /// has swallowed so far.
    pub fn swallowed(&self, way: Way) -> u64 {
        self.lost.one_way(way).all.load(Ordering::SeqCst)
    }

    /// How many messages [`Flow::Lose`] has swallowed so far, without `PING` and `PONG`, which
    /// belong to no request.
    pub fn swallowed_of_requests(&self, way: Way) -> u64 {
        // `add` counts a ping first, so one in between is at most missing here.
        let lost = self.lost.one_way(way);
        let pings = lost.pings.load(Ordering::SeqCst);
        lost.all.load(Ordering::SeqCst).saturating_sub(pings)
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
        self.traps.set(Effect::LoseRequest, false, matches)
    }

    /// Swallows every request that matches.
    pub fn lose_requests(
        &self,
        matches: impl Fn(&Request) -> bool + Send + Sync + 'static,
    ) -> Trap {
        self.traps.set(Effect::LoseRequest, true, matches)
    }

    /// Swallows the reply to the next request that matches. The server has executed the request
    /// when the trap reports.
    pub fn lose_reply(&self, matches: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Trap {
        self.traps.set(Effect::LoseReply, false, matches)
    }

    /// Holds the next request that matches until [`Trap::release`].
    pub fn hold_request(&self, matches: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Trap {
        self.traps.set(Effect::HoldRequest, false, matches)
    }

    /// Holds the reply to the next request that matches until [`Trap::release`].
    pub fn hold_reply(&self, matches: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Trap {
        self.traps.set(Effect::HoldReply, false, matches)
    }

    fn both(&self, flow: Flow) {
        self.state.send_modify(|state| {
            state.to_server = flow;
            state.to_client = flow;
        });
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
