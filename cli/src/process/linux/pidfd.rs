//! A process that is watched until it is dead.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use incumbent::sentinel::start_time;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

/// How long after the end of a connection its process may take to die.
const DEATH_TIMEOUT: Duration = Duration::from_secs(5);

/// One process, which a later one with the same id is not taken for.
pub struct WatchedProcess {
    pidfd: AsyncFd<OwnedFd>,
}

impl WatchedProcess {
    /// The process with this id, if it started at `started`, in clock ticks since the boot.
    ///
    /// # Errors
    /// There is no such process, or it cannot be checked.
    pub fn open(pid: Pid, started: u64) -> io::Result<Self> {
        // First the descriptor: an id that is read again after it shows that it is of this process.
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        match start_time(Some(pid.as_raw_pid())) {
            Some(found) if found == started => Self::new(pidfd),
            Some(_) => Err(io::Error::other("another process has its id")),
            None => Err(io::Error::other("it is not visible in /proc")),
        }
    }

    /// The process with this id, which made the channel and still has the other end of it.
    pub fn peer(pid: Pid, mut channel: &UnixStream) -> io::Result<Self> {
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let _none = channel.write(&[])?; // an error: it is closed
        Self::new(pidfd) // it is alive, so its id was not reused before
    }

    #[allow(deprecated, reason = "its successor is unsafe; an owned descriptor stays registered")]
    fn new(pidfd: OwnedFd) -> io::Result<Self> {
        Ok(Self { pidfd: AsyncFd::with_interest(pidfd, Interest::READABLE)? })
    }

    /// Waits until the process is dead, for as long as one may take whose connection is closed.
    ///
    /// # Errors
    /// It is still alive: a closed connection alone proves nothing.
    pub async fn dead_soon(&self) -> io::Result<()> {
        timeout(DEATH_TIMEOUT, self.dead()).await?
    }

    /// Waits until all threads of the process have ended. Cancel safe.
    pub async fn dead(&self) -> io::Result<()> {
        self.pidfd.readable().await.map(|mut guard| guard.retain_ready())
    }
}
