//! A TCP proxy that silences, redirects, holds and cuts connections, and loses replies.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// Forwards connections to a port of this machine, whatever protocol they carry. Dropping it closes
/// them.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    state: Arc<State>,
    accepting: AbortHandle,
}

#[derive(Debug, Default)]
struct State {
    target: AtomicU16,
    /// A connection that was accepted before the last of these passes nothing any more.
    silences: watch::Sender<u64>,
    /// New connections are closed at once.
    refuses: AtomicBool,
    /// Nothing passes for now.
    held: watch::Sender<bool>,
    /// The text of the next request whose reply is to be lost.
    loses_reply_to: Mutex<Option<&'static str>>,
    lost: AtomicUsize,
    connections: Mutex<JoinSet<()>>,
}

impl FaultProxy {
    /// A proxy in front of a server on this port.
    ///
    /// # Panics
    ///
    /// If no port is free.
    pub async fn start(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("the address of a bound socket").port();
        let state = Arc::new(State { target: target.into(), ..State::default() });
        let shared = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let target = shared.target.load(Ordering::SeqCst);
                let forward = Arc::clone(&shared).forward(client, target);
                let mut connections = shared.connections();
                if shared.refuses.load(Ordering::SeqCst) {
                    continue;
                }
                connections.spawn(forward);
                while connections.try_join_next().is_some() {}
            }
        });
        Self { port, state, accepting: accepting.abort_handle() }
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Forwards new connections to another server, and closes those to the first one.
    pub fn redirect(&self, target: u16) {
        self.state.target.store(target, Ordering::SeqCst);
        self.state.connections().abort_all();
    }

    /// Closes all connections, and new ones at once, until [`restore`](Self::restore).
    pub fn cut(&self) {
        let mut connections = self.state.connections();
        self.state.refuses.store(true, Ordering::SeqCst);
        connections.abort_all();
    }

    /// Serves new connections again.
    pub fn restore(&self) {
        self.state.refuses.store(false, Ordering::SeqCst);
    }

    /// Passes nothing more on the connections that are open now, and leaves them open. New ones are
    /// served.
    pub fn silence(&self) {
        self.state.silences.send_modify(|silences| *silences += 1);
    }

    /// Holds back what arrives on every connection, new ones too, in both directions, until
    /// [`release`](Self::release) delivers it: a network that is cut and comes back.
    pub fn hold(&self) {
        self.state.held.send_replace(true);
    }

    /// Delivers what was held back, however late, and what follows.
    pub fn release(&self) {
        self.state.held.send_replace(false);
    }

    /// Closes the connection on which the next request with this text arrives, once the server has
    /// replied to it.
    pub fn lose_reply(&self, request: &'static str) {
        *self.state.loses_reply_to() = Some(request);
    }

    /// The number of replies lost so far.
    pub fn lost_replies(&self) -> usize {
        self.state.lost.load(Ordering::SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.state.connections().abort_all();
    }
}

impl State {
    fn connections(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn loses_reply_to(&self) -> MutexGuard<'_, Option<&'static str>> {
        self.loses_reply_to.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the reply to this request is to be lost, which is decided once.
    fn takes(&self, request: &[u8]) -> bool {
        let mut text = self.loses_reply_to();
        text.take_if(|text| String::from_utf8_lossy(request).contains(*text)).is_some()
    }

    async fn forward(self: Arc<Self>, mut client: TcpStream, target: u16) {
        let mut silences = self.silences.subscribe();
        let since = *silences.borrow_and_update();
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", target)).await else { return };
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        tokio::select! {
            () = self.pass(&mut client, &mut server) => return,
            _ = silences.wait_for(|now| *now > since) => {}
        }
        std::future::pending::<()>().await; // both ends open
    }

    async fn pass(&self, client: &mut TcpStream, server: &mut TcpStream) {
        let (mut request, mut reply) = ([0; 16 << 10], [0; 16 << 10]);
        let mut loses = false;
        let mut held = self.held.subscribe();
        loop {
            tokio::select! {
                read = client.read(&mut request) => {
                    let Ok(length @ 1..) = read else { return };
                    loses |= self.takes(&request[..length]);
                    let _ = held.wait_for(|held| !held).await; // the sender is in `self`
                    if server.write_all(&request[..length]).await.is_err() {
                        return;
                    }
                }
                read = server.read(&mut reply) => {
                    let Ok(length @ 1..) = read else { return };
                    if loses {
                        self.lost.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                    let _ = held.wait_for(|held| !held).await;
                    if client.write_all(&reply[..length]).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}
