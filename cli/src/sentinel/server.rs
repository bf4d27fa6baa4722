//! The socket of a sentinel.

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tracing::warn;

use super::connection::{Shared, serve};

/// The most connections at a time.
const MAX_CONNECTIONS: usize = 1_024;
/// The pause after an accept that failed, as without file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections, and serves each in a task.
pub struct Server {
    listener: UnixListener,
    shared: Shared,
    connections: JoinSet<()>,
}

impl Server {
    pub fn new(listener: StdListener, shared: Shared) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        Ok(Self { listener, shared, connections: JoinSet::new() })
    }

    /// Accepts connections for ever. Cancel safe.
    pub async fn run(&mut self) {
        loop {
            let room = self.connections.len() < MAX_CONNECTIONS;
            tokio::select! {
                Some(_) = self.connections.join_next() => {}
                accepted = self.listener.accept(), if room => match accepted {
                    Ok((stream, _)) => {
                        self.connections.spawn(serve(stream, self.shared.clone()));
                    }
                    Err(error) => {
                        warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }

    /// Waits until all entries of dead processes are released.
    pub async fn finish(mut self, limit: Duration) {
        // Processes that died before they were accepted.
        while let Ok(Ok((stream, _))) =
            tokio::time::timeout(Duration::ZERO, self.listener.accept()).await
        {
            self.connections.spawn(serve(stream, self.shared.clone()));
        }
        let all = async { while self.connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(limit, all).await; // the leases decide
    }
}
