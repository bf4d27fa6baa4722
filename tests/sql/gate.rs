//! An address that leads to whichever server is the primary, and loses replies when told to.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use incumbent_test_support::Port;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

pub struct Gate {
    port: Port,
    state: Arc<State>,
    accepting: AbortHandle,
}

#[derive(Default)]
struct State {
    target: AtomicU16,
    /// Whether the next reply to a statement is to be lost, with its connection.
    loses_next: AtomicBool,
    lost: AtomicUsize,
    connections: Mutex<JoinSet<()>>,
}

impl Gate {
    pub async fn to(target: u16) -> Self {
        let port = Port::pick();
        let listener = TcpListener::bind(("127.0.0.1", port.number())).await.expect("a port");
        let state = Arc::new(State { target: target.into(), ..State::default() });
        let shared = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let target = shared.target.load(Ordering::SeqCst);
                let carry = carry(client, target, Arc::clone(&shared));
                let mut connections = shared.connections();
                connections.spawn(carry);
            }
        });
        Self { port, state, accepting: accepting.abort_handle() }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Leads to another server from here on; connections to the first one are cut.
    pub fn lead_to(&self, target: u16) {
        self.state.target.store(target, Ordering::SeqCst);
        self.state.connections().abort_all();
    }

    /// Loses the reply to the next statement that writes.
    pub fn lose_a_reply(&self) {
        self.state.loses_next.store(true, Ordering::SeqCst);
    }

    /// How many replies were lost.
    pub fn lost(&self) -> usize {
        self.state.lost.load(Ordering::SeqCst)
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl State {
    fn connections(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn carry(mut client: TcpStream, target: u16, state: Arc<State>) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    let (mut asked, mut answered) = ([0; 16 << 10], [0; 16 << 10]);
    let mut loses = false;
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(length @ 1..) = read else { return };
                let text = String::from_utf8_lossy(&asked[..length]);
                loses |= text.contains("UPDATE incumbent_elections")
                    && state.loses_next.swap(false, Ordering::SeqCst);
                if server.write_all(&asked[..length]).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut answered) => {
                let Ok(length @ 1..) = read else { return };
                if loses {
                    state.lost.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                if client.write_all(&answered[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}
