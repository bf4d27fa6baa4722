//! Where a sentinel listens.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::geteuid;
use tokio::io;
use tokio::net::UnixStream;

use super::wire::SentinelMessage;

/// The variable with the address of the sentinel that wraps a program.
pub const ENVIRONMENT: &str = "INCUMBENT_SENTINEL";

/// Where a sentinel listens: the absolute path of a Unix socket. It serves its own user only.
///
/// An election that sets none uses the one that wraps its program, if there is one:
/// [`from_env`](Self::from_env).
#[derive(Clone)]
pub struct Sentinel(pub(super) Kind);

/// What takes registrations.
#[derive(Clone)]
pub(super) enum Kind {
    None,
    /// As in the environment variable: the path of a socket.
    Address(PathBuf),
    Sink(Arc<dyn Fn(SentinelMessage) + Send + Sync>),
}

impl Sentinel {
    /// The sentinel that listens at this path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(Kind::Address(path.into()))
    }

    /// The sentinel that wraps this program, by the variable `INCUMBENT_SENTINEL`; none without it.
    pub fn from_env() -> Self {
        let address = env::var_os(ENVIRONMENT).filter(|address| !address.is_empty());
        Self(address.map_or(Kind::None, |address| Kind::Address(address.into())))
    }

    /// No sentinel, even if one wraps this program.
    pub fn none() -> Self {
        Self(Kind::None)
    }

    /// A function that takes the registrations, in order: for a parent process that is a sentinel
    /// by itself. It must not block.
    #[doc(hidden)]
    pub fn sink(sink: impl Fn(SentinelMessage) + Send + Sync + 'static) -> Self {
        Self(Kind::Sink(Arc::new(sink)))
    }

    /// The address, as in the environment variable.
    pub fn address(&self) -> Option<&Path> {
        match &self.0 {
            Kind::Address(address) => Some(address),
            Kind::None | Kind::Sink(_) => None,
        }
    }
}

/// Connects to the sentinel at this address. It may come from outside, so what listens there must
/// be a process of this user.
pub async fn connect(address: &Path) -> io::Result<UnixStream> {
    if !address.is_absolute() {
        return Err(io::Error::other("the address must be the absolute path of a socket"));
    }
    let stream = UnixStream::connect(address).await?;
    match stream.peer_cred()?.uid() == geteuid().as_raw() {
        true => Ok(stream),
        false => Err(io::Error::other("another user listens there: run it as the same user")),
    }
}

impl fmt::Debug for Sentinel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Address(address) => write!(f, "Sentinel({})", address.display()),
            Kind::Sink(_) => f.write_str("Sentinel::sink()"),
            Kind::None => f.write_str("Sentinel::none()"),
        }
    }
}
