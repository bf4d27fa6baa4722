//! Where HTTP is served, by a candidate or a member of a set.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::{TcpListener, UnixListener};

use super::background::BackgroundTask;
use super::connections;
use super::http_rights::Rights;
use super::unix_socket::{self, SocketFile};
use crate::error::{CliError, Code};
use crate::text::one_line;

/// Upper bounds of histograms, in seconds: renewals take milliseconds, takeovers up to a lease.
const BUCKETS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Where it listens.
#[derive(Debug, PartialEq, Eq)]
enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A socket that listens.
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// A socket that listens, and the metrics to serve at it.
pub struct HttpListener {
    socket: Socket,
    metrics: PrometheusHandle,
    pub(super) rights: Rights,
}

/// It serves until it is dropped.
pub struct ServedHttp {
    _serves: BackgroundTask,
    _file: Option<SocketFile>,
}

impl HttpListener {
    /// Must be called before the campaign starts, which looks for a metrics recorder once.
    pub async fn bind(address: &str, token_file: Option<&Path>) -> Result<Self, CliError> {
        let address = Address::parse(address)?;
        let rights = match (&address, token_file) {
            (Address::Tcp(_), None) => Rights::Nobody,
            (Address::Tcp(_), Some(file)) => Rights::of_file(file)?,
            (Address::Unix(_), None) => Rights::Everybody,
            (Address::Unix(_), Some(_)) => {
                let message = "--http-token-file has no effect with --http unix:PATH: omit it";
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
            Address::Unix(path) => {
                let socket = unix_socket::bind(path, 0o600, "process")?;
                let file = SocketFile(path.clone());
                socket.set_nonblocking(true)?;
                Socket::Unix(UnixListener::from_std(socket)?, file)
            }
        };
        let metrics = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)
            .and_then(PrometheusBuilder::install_recorder)
            .map_err(|error| cannot(&error))?;
        match &socket {
            // The port that was chosen, if it was 0.
            Socket::Tcp(socket) => {
                if let Ok(address) = socket.local_addr() {
                    tracing::info!(%address, "serving HTTP");
                }
            }
            Socket::Unix(..) => tracing::info!(%address, "serving HTTP"),
        }
        Ok(Self { socket, metrics, rights })
    }

    /// The route of the metrics.
    pub fn metrics(&self) -> Router {
        Router::new().route("/metrics", get(render)).with_state(self.metrics.clone())
    }

    /// Serves these routes.
    pub fn serve(self, routes: Router) -> ServedHttp {
        let (serves, file) = match self.socket {
            Socket::Tcp(socket) => (tokio::spawn(connections::serve(socket, routes)), None),
            Socket::Unix(socket, file) => {
                (tokio::spawn(connections::serve(socket, routes)), Some(file))
            }
        };
        ServedHttp { _serves: BackgroundTask(serves), _file: file }
    }
}

impl Address {
    /// A bare port is bound to the loopback address; any other address must be given.
    fn parse(text: &str) -> Result<Self, CliError> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        let port = text.parse().map(|port: u16| (Ipv4Addr::LOCALHOST, port).into());
        port.or_else(|_| text.parse()).map(Self::Tcp).map_err(|_| {
            let hint = "use a port, as in 8080, an address and a port, as in 0.0.0.0:8080, \
                        or unix:PATH";
            CliError::new(Code::Usage, format!("invalid --http {text:?}: {hint}"))
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// One line: the health, or the problem.
pub fn respond(health: Result<String, String>) -> (StatusCode, String) {
    let (status, line) = match health {
        Ok(line) => (StatusCode::OK, line),
        Err(line) => (StatusCode::SERVICE_UNAVAILABLE, line),
    };
    (status, line + "\n")
}

async fn render(State(metrics): State<PrometheusHandle>) -> impl IntoResponse {
    metrics.run_upkeep();
    ([(header::CONTENT_TYPE, METRICS)], metrics.render())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_port_is_bound_to_loopback() {
        let parsed = |text: &str| Address::parse(text).map(|address| address.to_string()).ok();
        assert_eq!(parsed("8080").as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(parsed("0.0.0.0:8080").as_deref(), Some("0.0.0.0:8080"));
        assert_eq!(parsed("[::1]:80").as_deref(), Some("[::1]:80"));
        assert_eq!(parsed("unix:/run/c1.sock").as_deref(), Some("unix:/run/c1.sock"));
        for text in ["", "unix:", ":8080", "65536", "0.0.0.0", "localhost", "::1:80", "-1"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
