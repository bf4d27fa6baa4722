//! `--http`: the leader, health and metrics over HTTP.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Json, Router};
use incumbent::{Advertisement, Election};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::background::BackgroundTask;
use super::connections::{self, Extent};
use super::health::Health;
use super::leader_wait::{LeaderWait, MAX_WAIT};
use super::started::{Started, StartedElection};
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
}

#[derive(Clone)]
struct HttpState {
    started: Started,
    metrics: PrometheusHandle,
}

impl Server {
    /// Must be called before the campaign starts, which looks for a metrics recorder once.
    pub async fn start(address: &str) -> Result<Self, CliError> {
        let address = parse(address)?;
        let cannot = |why: &dyn std::error::Error| {
            let message = format!("cannot serve HTTP at {address}: {}", one_line(why));
            CliError::new(Code::Failed, message)
        };
        let socket = TcpListener::bind(address).await.map_err(|error| cannot(&error))?;
        let metrics = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)
            .and_then(PrometheusBuilder::install_recorder)
            .map_err(|error| cannot(&error))?;
        if let Ok(address) = socket.local_addr() {
            tracing::info!(%address, "serving HTTP");
        }
        let started = Started::default();
        let routes = Router::new()
            .route("/leader", get(leader))
            .route("/redirect/{*path}", any(redirect))
            .route("/livez", get(livez))
            .route("/readyz", get(readyz))
            .route("/healthz", get(healthz))
            .route("/metrics", get(render))
            .with_state(HttpState { started: Arc::clone(&started), metrics });
        let serves = BackgroundTask(tokio::spawn(connections::serve(socket, routes)));
        Ok(Self { started, _serves: serves })
    }

    /// Serves this election from now on.
    pub fn serve(&self, election: Election, health: Arc<Health>) {
        let _ = self.started.set(StartedElection { election, health }); // an error: already set
    }
}

/// A bare port is bound to the loopback address; any other address must be given.
fn parse(text: &str) -> Result<SocketAddr, CliError> {
    let port = text.parse().map(|port: u16| (Ipv4Addr::LOCALHOST, port).into());
    port.or_else(|_| text.parse()).map_err(|_| {
        let hint = "use a port, as in 8080, or an address and a port, as in 0.0.0.0:8080";
        CliError::new(Code::Usage, format!("invalid --http {text:?}: {hint}"))
    })
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
        let parsed = |text: &str| parse(text).map(|address| address.to_string()).ok();
        assert_eq!(parsed("8080").as_deref(), Some("127.0.0.1:8080"));
        assert_eq!(parsed("0.0.0.0:8080").as_deref(), Some("0.0.0.0:8080"));
        assert_eq!(parsed("[::1]:80").as_deref(), Some("[::1]:80"));
        for text in ["", ":8080", "65536", "0.0.0.0", "localhost", "::1:80", "-1"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
