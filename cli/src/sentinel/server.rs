//! The socket of a sentinel.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener};
use std::path::Path;
use std::time::Duration;

use listenfd::ListenFd;
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tracing::warn;

use super::connection::{Shared, serve};
use crate::error::{CliError, Code};
use crate::unix_socket;

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

/// A socket in the abstract namespace, with its address as in the environment variable: it needs no
/// writable directory, and leaves no file.
pub fn bind_abstract() -> io::Result<(StdListener, String)> {
    let name = format!("incumbent-sentinel-{}-{:016x}", std::process::id(), rand());
    let address = SocketAddr::from_abstract_name(&name)?;
    Ok((StdListener::bind_addr(&address)?, format!("@{name}")))
}

/// Two processes with one id, in two PID namespaces, may share the abstract namespace.
fn rand() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// The socket that systemd passes, or a new one at this path with this mode. Returns whether it is
/// new: then its file is to be removed.
pub fn bind(path: &Path, mode: u32) -> Result<(StdListener, bool), CliError> {
    let passed = ListenFd::from_env().take_unix_listener(0).map_err(|error| {
        let message = format!("cannot listen at {}: {error}", path.display());
        CliError::new(Code::Failed, message)
    });
    if let Some(passed) = passed? {
        return Ok((passed, false));
    }
    Ok((unix_socket::bind(path, mode, "sentinel")?, true))
}
