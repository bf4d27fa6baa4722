//! HTTP servers at an address and port or a Unix socket: bounded connections, which requests are
//! answered, and the routes that several commands serve.

mod connections;
mod guard;
mod leader;
pub mod listen;
mod metrics;
#[cfg(unix)]
pub mod unix_socket;

use std::net::SocketAddr;
use std::path::Path;

use axum::Router;
use axum::serve::ListenerExt;

use crate::error::{CliError, Code};
use crate::http::listen::{Address, Socket};
#[cfg(unix)]
use crate::http::unix_socket::SocketFile;
use crate::process::BackgroundTask;

pub use self::connections::Extent;
pub use self::guard::{Access, Guard, GuardedRoutes, Permission};
pub use self::leader::{HTTP, LeaderEvents, leader_fields, probe, redirect_to, wait_if_asked};
pub use self::metrics::metrics;

/// The flags that select a listener, for errors.
#[derive(Debug, Clone, Copy)]
pub struct Flags {
    pub address: &'static str,
    pub token_file: &'static str,
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
        let socket = Socket::bind(&address, "serve HTTP").await?;
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
        self.socket.port()
    }

    /// The URL of its port, or `address`, which names its Unix socket.
    pub fn url(&self, address: &str) -> String {
        match self.port() {
            Some(address) => format!("http://{address}/"),
            None => address.to_owned(),
        }
    }

    /// Routes for all clients, and for those that may read.
    pub fn routes(&self, public: Router, reads: Router) -> GuardedRoutes {
        let routes = GuardedRoutes::default().with(&self.guard, Access::Public, public);
        routes.with(&self.guard, Access::Read, reads)
    }

    /// Serves these routes.
    pub fn serve(self, routes: GuardedRoutes) -> ServedHttp {
        let routes = routes.into_router();
        match self.socket {
            Socket::Tcp(socket) => {
                let client = |address: &SocketAddr| Some(connections::network_of(address.ip()));
                let socket = socket.tap_io(|stream| connections::drop_silent(stream));
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
