//! `--http`: the leader, health, metrics and actions over HTTP.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Json, Router};
use incumbent::{Advertisement, Election};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde_json::{Value, json};
use tokio::net::{TcpListener, UnixListener};

use super::background::BackgroundTask;
use super::connections::{self, Extent};
use super::health::Health;
use super::http_actions;
use super::http_rights::Rights;
use super::leader_wait::{LeaderWait, MAX_WAIT};
use super::started::{Started, StartedElection};
use super::unix_socket::{self, SocketFile};
use crate::error::{CliError, Code};
use crate::text::one_line;
use crate::time_format;

/// Upper bounds of histograms, in seconds: renewals take milliseconds, takeovers up to a lease.
const BUCKETS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0];
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The HTTP server of a candidate. It serves from the start, before the lock was reached.
pub struct Server {
    started: Started,
    _serves: BackgroundTask,
    _file: Option<SocketFile>,
}

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

#[derive(Clone)]
struct HttpState {
    started: Started,
    metrics: PrometheusHandle,
}

impl Server {
    /// Must be called before the campaign starts, which looks for a metrics recorder once.
    pub async fn start(address: &str, token_file: Option<&Path>) -> Result<Self, CliError> {
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
        let started = Started::default();
        let routes = Router::new()
            .route("/leader", get(leader))
            .route("/redirect/{*path}", any(redirect))
            .route("/livez", get(livez))
            .route("/readyz", get(readyz))
            .route("/healthz", get(healthz))
            .route("/metrics", get(render))
            .with_state(HttpState { started: Arc::clone(&started), metrics })
            .merge(http_actions::routes(Arc::clone(&started), rights));
        let (serves, file) = match socket {
            Socket::Tcp(socket) => (tokio::spawn(connections::serve(socket, routes)), None),
            Socket::Unix(socket, file) => {
                (tokio::spawn(connections::serve(socket, routes)), Some(file))
            }
        };
        Ok(Self { started, _serves: BackgroundTask(serves), _file: file })
    }

    /// Serves this election from now on.
    pub fn serve(&self, election: Election, health: Arc<Health>) {
        let _ = self.started.set(StartedElection { election, health }); // an error: already set
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

async fn leader(
    State(state): State<HttpState>,
    Extension(extent): Extension<Extent>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, (StatusCode, String)> {
    let wait = LeaderWait::parse(query.as_deref());
    if let Some(wait) = wait.map_err(|line| (StatusCode::BAD_REQUEST, line))? {
        extent.extend(MAX_WAIT);
        wait.over(&state.started).await;
    }
    Ok(show(&state))
}

fn show(state: &HttpState) -> Json<Value> {
    let election = state.started.get().map(|started| &started.election);
    let leader = election.and_then(Election::leader);
    let leader = leader.as_ref();
    let advertisement = leader.and_then(|leader| leader.advertisement.as_deref());
    let fresh = || election.is_some_and(|election| election.fresh_leader().is_some());
    Json(json!({
        "leader": leader.map(|leader| &*leader.identity),
        "token": leader.and_then(|leader| leader.token).map(|token| token.0),
        "since": leader
            .and_then(|leader| leader.since_unix_ms)
            .and_then(time_format::from_unix_ms)
            .map(time_format::rfc3339),
        "mine": election.is_some_and(Election::is_leader),
        "address": advertisement.map(Advertisement::address),
        "metadata": advertisement.map(Advertisement::metadata),
        "fresh": leader.map(|_| fresh()),
    }))
}

/// Redirects any method: 307 preserves the method and the body.
async fn redirect(State(state): State<HttpState>, uri: Uri) -> Response {
    let leader = state.started.get().and_then(|started| started.election.fresh_leader());
    let advertisement = leader.as_ref().and_then(|leader| leader.advertisement.as_deref());
    let path = uri.path_and_query().map_or("", |path| path.as_str());
    let path = path.strip_prefix("/redirect").unwrap_or_default();
    let location = advertisement.map(|leader| HeaderValue::try_from(leader.location(path)));
    match location {
        Some(Ok(location)) => {
            (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, location)]).into_response()
        }
        _ => {
            let line = match &leader {
                Some(_) => "the leader advertises no address to redirect to\n",
                None => "no leader is known\n",
            };
            (StatusCode::SERVICE_UNAVAILABLE, line).into_response()
        }
    }
}

/// Whether the process works. An unreachable lock is not a reason to restart it.
async fn livez(State(state): State<HttpState>) -> (StatusCode, String) {
    respond(match state.started.get() {
        None => Ok("ok: connecting to the lock".to_owned()),
        Some(StartedElection { election, health }) => health.is_alive(election),
    })
}

/// Whether the candidate takes part: it could become leader.
async fn readyz(State(state): State<HttpState>) -> (StatusCode, String) {
    respond(match state.started.get() {
        None => Err("connecting to the lock".to_owned()),
        Some(StartedElection { election, health }) => health.is_ready(election),
    })
}

/// Both, without waiting for the lock's first response.
async fn healthz(State(state): State<HttpState>) -> (StatusCode, String) {
    respond(match state.started.get() {
        None => Err("connecting to the lock".to_owned()),
        Some(StartedElection { election, health }) => health.health(election),
    })
}

fn respond(health: Result<String, String>) -> (StatusCode, String) {
    let (status, line) = match health {
        Ok(line) => (StatusCode::OK, line),
        Err(line) => (StatusCode::SERVICE_UNAVAILABLE, line),
    };
    (status, line + "\n")
}

async fn render(State(state): State<HttpState>) -> impl IntoResponse {
    state.metrics.run_upkeep();
    ([(header::CONTENT_TYPE, METRICS)], state.metrics.render())
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
