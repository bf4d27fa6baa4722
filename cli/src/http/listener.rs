//! Sockets to serve HTTP at: an address and port, or a Unix socket.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
#[cfg(unix)]
use std::path::PathBuf;

use tokio::net::TcpListener;
#[cfg(unix)]
use tokio::net::UnixListener;

use super::connections;
use super::guard::{Guard, GuardedRoutes, Permission};
use crate::background::BackgroundTask;
use crate::error::{CliError, Code};
use crate::text::one_line;
#[cfg(unix)]
use crate::unix_socket::{self, SocketFile};

/// The flags that select a listener, for errors.
#[derive(Debug, Clone, Copy)]
pub struct Flags {
    pub address: &'static str,
    pub token_file: &'static str,
}

/// Where it listens.
#[derive(Debug, PartialEq, Eq)]
enum Address {
    Tcp(SocketAddr),
    #[cfg(unix)]
    Unix(PathBuf),
}

/// A socket that listens.
enum Socket {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener, SocketFile),
}

/// A socket that listens, and what it answers.
pub struct HttpListener {
    socket: Socket,
    pub guard: Guard,
}

/// It serves until it is dropped.
pub struct ServedHttp {
    _serves: BackgroundTask,
    #[cfg(unix)]
    _file: Option<SocketFile>,
}

impl HttpListener {
    /// `advertised`: the address at which clients reach this process.
    pub async fn bind(
        flags: Flags,
        address: &str,
        token_file: Option<&Path>,
        advertised: Option<&str>,
    ) -> Result<Self, CliError> {
        let address = Address::parse(flags.address, address)?;
        let permission = match (&address, token_file) {
            (Address::Tcp(_), None) => Permission::Nobody,
            (Address::Tcp(_), Some(file)) => Permission::of_file(flags.token_file, file)?,
            #[cfg(unix)]
            (Address::Unix(_), None) => Permission::Everybody,
            #[cfg(unix)]
            (Address::Unix(_), Some(_)) => {
                let Flags { address, token_file } = flags;
                let message =
                    format!("{token_file} has no effect with {address} unix:PATH: omit it");
                return Err(CliError::new(Code::Usage, message));
            }
        };
        let cannot = |why: &dyn std::error::Error| {
            let message = format!("cannot serve HTTP at {address}: {}", one_line(why));
            CliError::new(Code::Failed, message)
        };
        let socket = match &address {
            Address::Tcp(address) => {
                Socket::Tcp(TcpListener::bind(address).await.map_err(|error| cannot(&error))?)
            }
            #[cfg(unix)]
            Address::Unix(path) => {
                let socket = unix_socket::bind(path, "process")?;
                let file = SocketFile(path.clone());
                socket.set_nonblocking(true)?;
                Socket::Unix(UnixListener::from_std(socket)?, file)
            }
        };
        let is_exposed = match address {
            Address::Tcp(address) => !address.ip().is_loopback(),
            #[cfg(unix)]
            Address::Unix(_) => false,
        };
        let listener = Self { socket, guard: Guard::new(permission, is_exposed, advertised) };
        match listener.port() {
            // The port that was chosen, if it was 0.
            Some(address) => tracing::info!(%address, "serving HTTP"),
            None => tracing::info!(%address, "serving HTTP"),
        }
        Ok(listener)
    }

    /// The address and port; `None` for a Unix socket.
    pub fn port(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(socket) => socket.local_addr().ok(),
            #[cfg(unix)]
            Socket::Unix(..) => None,
        }
    }

    /// The URL of its port, or `address`, which names its Unix socket.
    pub fn url(&self, address: &str) -> String {
        match self.port() {
            Some(address) => format!("http://{address}/"),
            None => address.to_owned(),
        }
    }

    /// Serves these routes.
    pub fn serve(self, routes: GuardedRoutes) -> ServedHttp {
        let routes = routes.into_router();
        match self.socket {
            Socket::Tcp(socket) => {
                let client = |address: &SocketAddr| Some(connections::network_of(address.ip()));
                let serves = tokio::spawn(connections::serve(socket, client, routes));
                ServedHttp {
                    _serves: BackgroundTask(serves),
                    #[cfg(unix)]
                    _file: None,
                }
            }
            #[cfg(unix)]
            Socket::Unix(socket, file) => {
                let serves = tokio::spawn(connections::serve(socket, |_| None, routes));
                ServedHttp { _serves: BackgroundTask(serves), _file: Some(file) }
            }
        }
    }
}

impl Address {
    /// A bare port is bound to the loopback address; any other address must be given.
    fn parse(flag: &str, text: &str) -> Result<Self, CliError> {
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
