//! Actions on a candidate over HTTP: `POST /resign` and the like. Each is answered with one line.

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::routing::post;
use incumbent::lock::Successor;
use incumbent::{Election, HandOverError};

use super::health::Started;
use crate::text::printable;

type Answer = (StatusCode, String);

/// The routes of the actions.
pub fn routes(started: Started) -> Router {
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
    election(&started)?.stand_aside(true);
    Ok("standing aside\n")
}

async fn stand_ready(State(started): State<Started>) -> Result<&'static str, Answer> {
    election(&started)?.stand_aside(false);
    Ok("no longer standing aside\n")
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
