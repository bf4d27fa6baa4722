//! `incumbent observe`: who leads, over HTTP, from a process that is no candidate.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::{any, get};
use axum::{Extension, Json, Router};
use clap::Args;
use incumbent::lock::Lock;
use incumbent::{Observer, State as ElectionState};
use serde_json::Value;
use tokio::sync::SetOnce;

use crate::error::{CliError, EXIT_CODES};
use crate::http::{
    Extent, HTTP, HttpListener, LeaderEvents, leader_fields, probe, redirect_to, wait_if_asked,
};
use crate::lock::{Attempts, LockArgs};
use crate::output;
use crate::process::signals::StopSignals;

/// Serve over HTTP who leads the elections NAME, from a process that is no candidate.
///
/// GET /NAME/leader, /NAME/leader?wait=TOKEN, /NAME/events and /NAME/redirect/PATH answer as those
/// of --http of `incumbent run`: `mine` is false, and `fresh` is whether the leader was seen to
/// renew within its lease, by the clock of this process. GET /livez: 200. GET /readyz: 200 once the
/// lock has responded for every election, and while it can be reached. Needs the permissions of an
/// observer, and creates nothing. It never leads: /leading and /standby are of candidates alone.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub struct Observe {
    /// The elections; with Kubernetes their objects.
    #[arg(required = true)]
    names: Vec<String>,
    /// Serve at this port of the loopback address, at this address and port, or at this Unix
    /// socket.
    #[arg(long, value_name = "[ADDRESS:]PORT|unix:PATH")]
    http: String,
    #[command(flatten)]
    lock: LockArgs,
}

/// The observed elections, once the lock was opened.
type Observed = Arc<SetOnce<HashMap<String, Observer>>>;

impl Observe {
    pub async fn run(self) -> Result<(), CliError> {
        let mut signals = StopSignals::listen()?;
        let listener = HttpListener::bind(HTTP, &self.http, None, None).await?;
        let at = listener.url(&self.http);
        let observed = Observed::default();
        let reads = Router::new()
            .route("/{name}/leader", get(leader))
            .route("/{name}/events", get(events))
            .layer(Extension(LeaderEvents::default()))
            .with_state(Arc::clone(&observed));
        let probed = Arc::clone(&observed);
        let public = Router::new()
            .route("/{name}/redirect/{*path}", any(redirect))
            .route("/livez", get(async || "ok\n"))
            .route("/readyz", get(probe(move || ready(&probed))))
            .with_state(Arc::clone(&observed));
        let routes = listener.routes(public, reads);
        let _serves = listener.serve(routes);
        let observers = tokio::select! {
            observers = self.open() => observers?,
            signal = signals.next() => return Err(CliError::Signal(signal)),
        };
        let _ = observed.set(observers); // it is empty
        output::note(format!("serving the leaders at {at}"));
        Err(CliError::Signal(signals.next().await))
    }

    async fn open(&self) -> Result<HashMap<String, Observer>, CliError> {
        let mut observers = HashMap::new();
        let mut shared: Option<Arc<dyn Lock>> = None;
        for name in &self.names {
            let lock = match &shared {
                Some(lock) => Arc::clone(lock),
                None => {
                    let on_retry = |why: &CliError| output::note(format!("incumbent: {why}"));
                    self.lock.open_existing(name, None, Attempts::UnlessTimeout, on_retry).await?
                }
            };
            if !self.lock.is_per_election() {
                shared = Some(Arc::clone(&lock));
            }
            let observer = incumbent::observe(name, lock)?;
            observers.insert(name.clone(), observer);
        }
        Ok(observers)
    }
}

/// Why a request is not answered, in one line.
type Refusal = (StatusCode, String);

/// The observer of this election.
fn find<'a>(observed: &'a Observed, name: &str) -> Result<&'a Observer, Refusal> {
    let Some(observers) = observed.get() else {
        return Err((StatusCode::SERVICE_UNAVAILABLE, "connecting to the lock\n".to_owned()));
    };
    observers.get(name).ok_or_else(|| {
        (StatusCode::NOT_FOUND, "this election is not observed: name it at the start\n".to_owned())
    })
}

async fn leader(
    State(observed): State<Observed>,
    Extension(extent): Extension<Extent>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Refusal> {
    let observer = find(&observed, &name)?;
    let status = std::future::ready(observer.watch());
    wait_if_asked(query.as_deref(), &extent, status, || show(observer)).await?;
    Ok(Json(show(observer)))
}

fn show(observer: &Observer) -> Value {
    leader_fields(observer.leader().as_ref(), false)
}

async fn events(
    State(observed): State<Observed>,
    Extension(extent): Extension<Extent>,
    Extension(events): Extension<LeaderEvents>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    let observer = find(&observed, &name)?.clone();
    let status = std::future::ready(observer.watch());
    Ok(events.respond(&extent, status, move || show(&observer)))
}

async fn redirect(
    State(observed): State<Observed>,
    Path((name, _)): Path<(String, String)>,
    uri: Uri,
) -> Result<Response, Refusal> {
    let observer = find(&observed, &name)?;
    // The path as it was sent: its escapes are the leader's.
    let path = uri.path_and_query().map_or("", |path| path.as_str());
    let path = path.splitn(4, '/').nth(3).map(|path| format!("/{path}"));
    Ok(redirect_to(observer.fresh_leader().as_ref(), &path.unwrap_or_default()))
}

fn ready(observed: &Observed) -> Result<String, String> {
    let observers = observed.get().ok_or("connecting to the lock")?;
    for (name, observer) in observers {
        check_responding(name, observer)?;
    }
    Ok("ok".to_owned())
}

/// Fails unless the lock responds for this election.
pub fn check_responding(name: &str, observer: &Observer) -> Result<(), String> {
    if let Some(failure) = observer.lock_failure() {
        return Err(format!("{name}: the lock cannot be reached: {}", failure.message));
    }
    if observer.state() == ElectionState::Unknown {
        return Err(format!("{name}: waiting for the first response of the lock"));
    }
    Ok(())
}
