//! Where a sentinel listens.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use tokio::io;
use tokio::net::UnixStream;

/// The variable with the address of the sentinel that wraps a program.
pub const ENVIRONMENT: &str = "INCUMBENT_SENTINEL";

/// Where a sentinel listens: a Unix socket.
///
/// An election that sets none uses the one that wraps its program, if there is one:
/// [`from_env`](Self::from_env).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sentinel {
    /// As in the environment variable: a path, or `@` and a name in the abstract namespace of Linux.
    address: Option<PathBuf>,
}

impl Sentinel {
    /// The sentinel that listens at this path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { address: Some(path.into()) }
    }

    /// The sentinel that wraps this program, by the variable `INCUMBENT_SENTINEL`; none without it.
    pub fn from_env() -> Self {
        let address = env::var_os(ENVIRONMENT).filter(|address| !address.is_empty());
        Self { address: address.map(Into::into) }
    }

    /// No sentinel, even if one wraps this program.
    pub fn none() -> Self {
        Self { address: None }
    }

    /// The address, as in the environment variable.
    pub fn address(&self) -> Option<&Path> {
        self.address.as_deref()
    }

    /// Connects to it.
    pub(super) async fn connect(&self) -> io::Result<UnixStream> {
        let Some(address) = &self.address else { return Err(io::ErrorKind::NotFound.into()) };
        match address.to_str().and_then(|address| address.strip_prefix('@')) {
            Some(name) => UnixStream::connect(format!("\0{name}")).await,
            None => UnixStream::connect(address).await,
        }
    }
}

impl fmt::Debug for Sentinel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some(address) => write!(f, "Sentinel({})", address.display()),
            None => f.write_str("Sentinel::none()"),
        }
    }
}
