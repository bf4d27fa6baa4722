//! `incumbent sentinel`: releases the elections of a process that died.

mod connection;
mod locks;
mod registry;
mod server;
mod wrap;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tracing::info;

use self::connection::Shared;
use self::server::Server;
use crate::error::CliError;
use crate::http::unix_socket::{self, SocketFile};
use crate::lock::{LockArgs, SelectedLock, not_for_life};
use crate::process::signals::StopSignals;

pub use self::locks::SentinelLocks;
pub use self::registry::{RELEASE_TIMEOUT, Registry};

/// How long a sentinel that listens tries to release.
const LISTENING_RELEASE_TIMEOUT: Duration = Duration::from_secs(60);

/// Release the elections of a program at once if it crashes.
///
/// A program that uses the library incumbent registers its terms here. When its process is dead, by
/// SIGKILL, out of memory, an abort or a segmentation fault, its entries are released, and another
/// candidate leads within milliseconds instead of at the end of the lease. If the sentinel fails,
/// the lease decides as without one.
///
/// With PROGRAM it starts it, and may be the first process of a container: it forwards signals,
/// reaps orphans, and exits with the program's code. The program finds it by INCUMBENT_SENTINEL.
/// What the program leaves behind is killed before its entries are released.
///
/// With --listen it serves the programs of its own user that connect to PATH, on one host or in one
/// pod. They declare that their work dies with their process. No other user may enter the directory
/// of PATH, which is created if it is missing.
///
/// It connects to the lock by itself: give it the same --lock as the programs.
#[derive(Debug, Args)]
#[command(after_long_help = MANUAL)]
pub struct Sentinel {
    /// The program and its arguments, after `--`.
    #[arg(last = true, value_name = "PROGRAM", required_unless_present = "listen")]
    command: Vec<OsString>,
    /// Listen at this Unix socket.
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    listen: Option<PathBuf>,
    /// With Kubernetes: the object of the elections, as candidates name it.
    #[arg(long, value_name = "NAME")]
    object: Option<String>,
    #[command(flatten)]
    lock: LockArgs,
}

const MANUAL: &str = "\
Exit codes:
  PROGRAM's own, or 128 and the number of the signal that killed it. 127: no such program, 126: \
  not executable. With --listen 0 after SIGTERM or SIGINT. Else 1 failed, 2 usage.

Examples:
  incumbent sentinel -- my-daemon --verbose
  incumbent sentinel --lock sqlite:/srv/locks.db -- my-daemon
  incumbent sentinel --listen /run/user/1000/incumbent/socket
  INCUMBENT_SENTINEL=/run/user/1000/incumbent/socket my-daemon";

impl Sentinel {
    pub async fn run(self) -> Result<ExitCode, CliError> {
        if let SelectedLock::ForLife(_) = self.lock.at().await? {
            return Err(not_for_life("incumbent sentinel"));
        }
        let registry = Arc::new(Registry::new(SentinelLocks::new(self.lock, self.object)));
        match self.listen {
            None => wrap::run(&self.command, registry).await,
            Some(path) => {
                let mut signals = StopSignals::listen()?;
                let listener = unix_socket::bind_private(&path, "sentinel")?;
                let _file = SocketFile(path.clone());
                let shared = Shared { registry, wraps: false, limit: LISTENING_RELEASE_TIMEOUT };
                let mut server = Server::new(listener, shared)?;
                info!(path = %path.display(), "listening");
                tokio::select! {
                    _ = signals.next() => {}
                    () = server.run() => {}
                }
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}
