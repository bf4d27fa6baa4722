//! The socket of a sentinel.

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{error, warn};

use super::connection::{Shared, serve};
use crate::process::allow_files;

/// The most connections at a time.
const MAX_CONNECTIONS: usize = 1_024;
/// How long connections of dead processes may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(1);
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

    /// Accepts connections. It never returns. Cancel safe.
    pub async fn run(&mut self) {
        // A process needs two: the usual limit of 1,024 is that of some hundred processes. A
        // program that was started before does not inherit it.
        let _ = allow_files(u64::MAX); // fewer are served otherwise
        loop {
            tokio::select! {
                Some(_) = self.connections.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => self.serve(stream),
                    Err(error) => {
                        warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
    }

    fn serve(&mut self, stream: UnixStream) {
        let is_full = self.connections.len() >= MAX_CONNECTIONS;
        let refused = is_full.then(|| format!("it serves {MAX_CONNECTIONS} processes already"));
        self.connections.spawn(serve(stream, self.shared.clone(), refused));
    }

    /// Releases the entries of a program and of all processes below it, which are dead.
    pub async fn finish(mut self) {
        // Processes that died before they were accepted.
        while let Ok(Ok((stream, _))) = timeout(Duration::ZERO, self.listener.accept()).await {
            self.serve(stream);
        }
        let all = async { while self.connections.join_next().await.is_some() {} };
        let _ = timeout(END_TIMEOUT, all).await; // one that says nothing
        let Shared { registry, limit, .. } = &self.shared;
        let terms = registry.take_kept();
        let number = terms.len();
        // For all of them: a few are tried at a time.
        if timeout(*limit + END_TIMEOUT, registry.release(terms, *limit)).await.is_err() {
            error!(number, "not all locks were released in time: their leases decide");
        }
    }
}
