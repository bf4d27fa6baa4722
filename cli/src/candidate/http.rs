//! `--http`: the leader, health, metrics and actions over HTTP.

use std::path::Path;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, Uri};
use axum::response::{Redirect, Response};
use axum::routing::{any, get, post};
use axum::{Extension, Json, Router};
use incumbent::lock::Successor;
use incumbent::{Election, HandOverError};
use serde_json::Value;

use super::health::{Health, Probe, Started, StartedElection, probes};
use crate::console::ui;
use crate::error::CliError;
use crate::http::{
    Access, Extent, HTTP, HttpListener, LeaderEvents, ServedHttp, leader_fields, metrics,
    redirect_to, wait_if_asked,
};
use crate::lock::LockArgs;
use crate::output::text::printable;
use crate::process::BackgroundTask;

/// The HTTP server of a candidate. It serves from the start, before the lock was reached.
pub struct Server {
    started: Started,
    _serves: ServedHttp,
    /// Reads the lock for the page.
    _follows: Option<BackgroundTask>,
}

impl Server {
    /// Must be called before the campaign starts, which looks for a metrics recorder once. `page`:
    /// the lock whose elections a page shows.
    pub async fn start(
        address: &str,
        token_file: Option<&Path>,
        advertised: Option<&str>,
        page: Option<&LockArgs>,
        ready_when_leading: bool,
    ) -> Result<Self, CliError> {
        let listener = HttpListener::bind(HTTP, address, token_file, advertised).await?;
        let started = Started::default();
        let leader = Router::new()
            .route("/leader", get(leader))
            .route("/events", get(events_of_leader))
            .layer(Extension(LeaderEvents::default()))
            .with_state(Arc::clone(&started));
        let redirect = Router::new()
            .route("/redirect/{*path}", any(redirect))
            .with_state(Arc::clone(&started));
        let ready = if ready_when_leading { Health::leads } else { Health::is_ready };
        // Whether requests for the leader, or for a standby, are for this process.
        let roles: [(&str, Probe); 2] =
            [("/leading", Health::leads), ("/standby", Health::stands_by)];
        let probed = Arc::clone(&started);
        let probes = probes(ready, &roles, move |of| {
            probed.get().map(|StartedElection { election, health }| of(health, election))
        });
        let guard = &listener.guard;
        let mut routes = listener.routes(probes.merge(redirect), leader.merge(metrics()?)).with(
            guard,
            Access::Act,
            actions(Arc::clone(&started)),
        );
        let mut follows = None;
        if let Some(lock) = page {
            let (page, task) = ui::page_of(lock, &listener, HTTP)?;
            let to_page = Router::new().route("/ui", get(async || Redirect::temporary("ui/")));
            routes = routes.with(guard, Access::Public, to_page).nest("/ui/", page);
            follows = Some(task);
        }
        let serves = listener.serve(routes);
        Ok(Self { started, _serves: serves, _follows: follows })
    }

    /// Serves this election from now on.
    pub fn serve(&self, election: Election, health: Arc<Health>) {
        let _ = self.started.set(StartedElection { election, health }); // an error: already set
    }
}

async fn leader(
    State(started): State<Started>,
    Extension(extent): Extension<Extent>,
    RawQuery(query): RawQuery,
) -> Result<Json<Value>, Answer> {
    let status = async { started.wait().await.election.watch() };
    wait_if_asked(query.as_deref(), &extent, status, || show(&started)).await?;
    Ok(Json(show(&started)))
}

async fn events_of_leader(
    State(started): State<Started>,
    Extension(extent): Extension<Extent>,
    Extension(events): Extension<LeaderEvents>,
) -> Response {
    let reached = Arc::clone(&started);
    let status = async move { reached.wait().await.election.watch() };
    events.respond(&extent, status, move || show(&started))
}

fn show(started: &Started) -> Value {
    let election = started.get().map(|started| &started.election);
    let leader = election.and_then(Election::leader);
    let mine = election.is_some_and(Election::is_leader);
    leader_fields(leader.as_ref(), mine)
}

/// Redirects any method: 307 preserves the method and the body.
async fn redirect(State(started): State<Started>, uri: Uri) -> Response {
    let leader = started.get().and_then(|started| started.election.fresh_leader());
    let path = uri.path_and_query().map_or("", |path| path.as_str());
    redirect_to(leader.as_ref(), path.strip_prefix("/redirect").unwrap_or_default())
}

type Answer = (StatusCode, String);

/// The routes of the actions.
fn actions(started: Started) -> Router {
    Router::new()
        .route("/resign", post(resign))
        .route("/move", post(hand_over))
        .route("/stand-aside", post(stand_aside))
        .route("/stand-ready", post(stand_ready))
        .with_state(started)
}

fn election(started: &Started) -> Result<&Election, Answer> {
    let connecting = || (StatusCode::SERVICE_UNAVAILABLE, "connecting to the lock\n".to_owned());
    started.get().map(|started| &started.election).ok_or_else(connecting)
}

async fn resign(State(started): State<Started>) -> Result<&'static str, Answer> {
    let election = election(&started)?;
    if !election.is_leader() {
        return Err((StatusCode::CONFLICT, "this candidate does not lead\n".to_owned()));
    }
    election.resign();
    Ok("resigning\n")
}

async fn hand_over(
    State(started): State<Started>,
    RawQuery(query): RawQuery,
) -> Result<String, Answer> {
    let election = election(&started)?;
    let successor = successor(query.as_deref()).map_err(|line| (StatusCode::BAD_REQUEST, line))?;
    match election.hand_over(successor).await {
        Ok(to) => Ok(format!("handing over to {}\n", printable(&to))),
        Err(why) => {
            let status = match why {
                HandOverError::Refused(_) | HandOverError::Answered(_) => StatusCode::CONFLICT,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            Err((status, format!("{}\n", printable(&why.to_string()))))
        }
    }
}

/// Parses `?to=IDENTITY` or `?site=SITE`.
fn successor(query: Option<&str>) -> Result<Successor, String> {
    let mut pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    match (pairs.next(), pairs.next()) {
        (None, _) => Ok(Successor::Any),
        (Some((name, value)), None) if name == "to" && !value.is_empty() => {
            Ok(Successor::Identity((*value).into()))
        }
        (Some((name, value)), None) if name == "site" && !value.is_empty() => {
            Ok(Successor::Site((*value).into()))
        }
        _ => Err("write ?to=IDENTITY, or ?site=SITE, or neither\n".to_owned()),
    }
}

async fn stand_aside(State(started): State<Started>) -> Result<&'static str, Answer> {
    cordon(&started, true)?;
    Ok("standing aside\n")
}

async fn stand_ready(State(started): State<Started>) -> Result<&'static str, Answer> {
    cordon(&started, false)?;
    Ok("no longer standing aside\n")
}

fn cordon(started: &Started, stands_aside: bool) -> Result<(), Answer> {
    let election = election(started)?;
    if let Some(started) = started.get() {
        started.health.cordon(stands_aside);
    }
    election.stand_aside(stands_aside);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_names_the_successor() {
        let parsed = |query| successor(query).ok();
        assert_eq!(parsed(None), Some(Successor::Any));
        assert_eq!(parsed(Some("")), Some(Successor::Any));
        assert_eq!(parsed(Some("to=c1+a%2Fb")), Some(Successor::Identity("c1 a/b".into())));
        assert_eq!(parsed(Some("site=eu-1")), Some(Successor::Site("eu-1".into())));
        for query in ["to", "c1", "from=c1", "to=c1&site=eu-1", "site=a&site=b", "TO=c1"] {
            assert_eq!(parsed(Some(query)), None, "{query}");
        }
    }
}
