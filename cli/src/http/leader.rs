//! The leader over HTTP: as JSON, at once or once it has changed; as events; as a redirect.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use incumbent::clock::{BootClock, Clock};
use incumbent::lock::Holder;
use incumbent::{Leader, StatusWatch};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use super::Flags;
use super::connections::Extent;

/// The flags of a candidate's server.
pub const HTTP: Flags = Flags { address: "--http", token_file: "--http-token-file" };

/// The fields of `/leader`.
pub fn leader_fields(leader: Option<&Leader>, mine: bool) -> Value {
    let mut fields = Holder::to_json(leader.map(Holder::from).as_ref());
    fields["mine"] = mine.into();
    fields["fresh"] = leader.map(|leader| leader.is_fresh(BootClock.now())).into();
    fields
}

/// Redirects to this path at the address of a fresh leader.
pub fn redirect_to(leader: Option<&Leader>, path: &str) -> Response {
    let advertisement = leader.and_then(|leader| leader.advertisement.as_deref());
    let location = advertisement.map(|leader| HeaderValue::try_from(leader.location(path)));
    match location {
        Some(Ok(location)) => {
            (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, location)]).into_response()
        }
        _ => {
            let line = match leader {
                Some(_) => "the leader advertises no address to redirect to\n",
                None => "no leader is known\n",
            };
            (StatusCode::SERVICE_UNAVAILABLE, line).into_response()
        }
    }
}

/// A handler of a probe, which answers one line: the health, or the problem.
pub fn probe(
    health: impl Fn() -> Result<String, String> + Clone + Send + Sync + 'static,
) -> impl Fn() -> Ready<(StatusCode, String)> + Clone + Send + Sync + 'static {
    move || {
        let (status, line) = match health() {
            Ok(line) => (StatusCode::OK, line),
            Err(line) => (StatusCode::SERVICE_UNAVAILABLE, line),
        };
        ready((status, line + "\n"))
    }
}

/// The most clients. Each keeps a connection; the others of the listener are left for probes.
const CLIENTS: usize = 32;

/// The clients that are sent events.
#[derive(Clone)]
pub struct LeaderEvents(Arc<Semaphore>);

impl Default for LeaderEvents {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(CLIENTS)))
    }
}

impl LeaderEvents {
    /// Sends one more client the fields of `/leader`, now and each time they change. `status`: that
    /// of the election, once the lock was reached.
    pub fn respond(
        &self,
        extent: &Extent,
        status: impl Future<Output = StatusWatch> + Send + 'static,
        show: impl Fn() -> Value + Send + 'static,
    ) -> Response {
        let Ok(permit) = Arc::clone(&self.0).try_acquire_owned() else {
            let line = format!("{CLIENTS} clients are sent events: no more are accepted\n");
            return (StatusCode::SERVICE_UNAVAILABLE, line).into_response();
        };
        // They may change when the lock was reached, and with each status from then on.
        let changes = stream::once(status).flat_map(|status| {
            let next =
                async |mut status: StatusWatch| status.changed().await.then_some(((), status));
            stream::once(ready(())).chain(stream::unfold(status, next))
        });
        let mut sent = None;
        let events = stream::once(ready(())).chain(changes).filter_map(move |()| {
            let _held = &permit;
            let fields = show();
            let event = (sent.as_ref() != Some(&fields)).then(|| {
                Event::default().event("leader").id(id_of(&fields)).data(fields.to_string())
            });
            sent = Some(fields);
            ready(event)
        });
        extent.events(events).keep_alive(KeepAlive::default()).into_response()
    }
}

/// The token of a fresh leader; else empty.
fn id_of(fields: &Value) -> String {
    match fields["token"].as_u64() {
        Some(token) if fields["fresh"] == true => token.to_string(),
        _ => String::new(),
    }
}

/// The longest wait.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Waits until the fields of `/leader` have changed, for `MAX_WAIT` at most, if the query of a
/// request asks for it; else refuses it. `status`: that of the election, once the lock was reached.
pub async fn wait_if_asked(
    query: Option<&str>,
    extent: &Extent,
    status: impl Future<Output = StatusWatch>,
    show: impl Fn() -> Value,
) -> Result<(), (StatusCode, String)> {
    if let Some(wait) = LeaderWait::parse(query).map_err(|line| (StatusCode::BAD_REQUEST, line))? {
        extent.extend(MAX_WAIT);
        wait.over(status, show).await;
    }
    Ok(())
}

/// What a client waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaderWait {
    /// The next change.
    Change,
    /// That the leader's token differs from this one.
    TokenOtherThan(Option<u64>),
}

impl LeaderWait {
    /// Parses the query of a request: `None` if it does not wait.
    fn parse(query: Option<&str>) -> Result<Option<Self>, String> {
        let mut parts = query.unwrap_or_default().split('&');
        let wait = parts.find_map(|part| match part.split_once('=') {
            Some(("wait", value)) => Some(value),
            None if part == "wait" => Some(""),
            _ => None,
        });
        match wait {
            None => Ok(None),
            Some("") => Ok(Some(Self::Change)),
            Some("null") => Ok(Some(Self::TokenOtherThan(None))),
            Some(token) => match token.parse() {
                Ok(token) => Ok(Some(Self::TokenOtherThan(Some(token)))),
                Err(_) => Err("write ?wait=TOKEN with the token of /leader, or ?wait\n".to_owned()),
            },
        }
    }

    async fn over(self, status: impl Future<Output = StatusWatch>, show: impl Fn() -> Value) {
        let end = Instant::now() + MAX_WAIT;
        tokio::select! {
            () = self.changed(status, show) => {}
            () = sleep_until(end) => {}
        }
    }

    async fn changed(self, status: impl Future<Output = StatusWatch>, show: impl Fn() -> Value) {
        let mut first = show();
        let mut status = status.await;
        if let Self::TokenOtherThan(known) = self {
            first = show(); // before, nothing was known of the lock
            if first["token"].as_u64() != known {
                return;
            }
        }
        while show() == first && status.changed().await {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_names_the_known_token() {
        for query in [None, Some(""), Some("waits"), Some("a=wait&b=1")] {
            assert_eq!(LeaderWait::parse(query), Ok(None), "{query:?}");
        }
        for query in ["wait", "wait=", "a=1&wait"] {
            assert_eq!(LeaderWait::parse(Some(query)), Ok(Some(LeaderWait::Change)), "{query}");
        }
        for (query, token) in [("wait=7", Some(7)), ("a&wait=0&b", Some(0)), ("wait=null", None)] {
            let wait = Ok(Some(LeaderWait::TokenOtherThan(token)));
            assert_eq!(LeaderWait::parse(Some(query)), wait, "{query}");
        }
        for query in ["wait=x", "wait=-1", "wait=18446744073709551616", "wait=%37"] {
            assert!(LeaderWait::parse(Some(query)).is_err(), "{query}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn wait_is_bounded() {
        let begun = Instant::now();
        // The lock is never reached.
        LeaderWait::Change.over(std::future::pending(), || Value::Null).await;
        assert_eq!(begun.elapsed().as_secs(), MAX_WAIT.as_secs());
    }
}
