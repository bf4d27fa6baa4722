//! Sockets to listen at: an address and port, or a Unix socket.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
#[cfg(unix)]
use std::path::PathBuf;

use tokio::net::TcpListener;
#[cfg(unix)]
use tokio::net::UnixListener;

use crate::error::one_line;
use crate::error::{CliError, Code};
#[cfg(unix)]
use crate::http::unix_socket::{self, SocketFile};

/// Where it listens.
#[derive(Debug, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    #[cfg(unix)]
    Unix(PathBuf),
}

/// A socket that listens.
pub enum Socket {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener, SocketFile),
}

impl Socket {
    /// `operation`: what it is for, as in "serve HTTP".
    pub async fn bind(address: &Address, operation: &str) -> Result<Self, CliError> {
        let cannot = |why: &dyn std::error::Error| {
            let message = format!("cannot {operation} at {address}: {}", one_line(why));
            CliError::new(Code::Failed, message)
        };
        Ok(match address {
            Address::Tcp(address) => {
                Self::Tcp(TcpListener::bind(address).await.map_err(|error| cannot(&error))?)
            }
            #[cfg(unix)]
            Address::Unix(path) => {
                let socket = unix_socket::bind(path, "process")?;
                let file = SocketFile(path.clone());
                socket.set_nonblocking(true)?;
                Self::Unix(UnixListener::from_std(socket)?, file)
            }
        })
    }

    /// The address and port; `None` for a Unix socket.
    pub fn port(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket) => socket.local_addr().ok(),
            #[cfg(unix)]
            Self::Unix(..) => None,
        }
    }
}

impl Address {
    /// A bare port is bound to the loopback address; any other address must be given.
    pub fn parse(flag: &str, text: &str) -> Result<Self, CliError> {
        #[cfg(unix)]
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        let port = text.parse().map(|port: u16| (Ipv4Addr::LOCALHOST, port).into());
        port.or_else(|_| text.parse()).map(Self::Tcp).map_err(|_| {
            let hint = "use a port, as in 8080, an address and a port, as in 0.0.0.0:8080, \
                        or unix:PATH";
            CliError::new(Code::Usage, format!("invalid {flag} {text:?}: {hint}"))
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            #[cfg(unix)]
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_port_is_bound_to_loopback() {
        let parsed = |text: &str| Address::parse("--http", text).map(|at| at.to_string()).ok();
        assert_eq!(parsed("8080").as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(parsed("0.0.0.0:8080").as_deref(), Some("0.0.0.0:8080"));
        assert_eq!(parsed("[::1]:80").as_deref(), Some("[::1]:80"));
        assert_eq!(parsed("unix:/run/c1.sock").as_deref(), Some("unix:/run/c1.sock"));
        for text in ["", "unix:", ":8080", "65536", "0.0.0.0", "localhost", "::1:80", "-1"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
