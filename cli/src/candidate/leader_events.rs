//! `GET /events`: the leader, as server-sent events.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, stream};
use incumbent::StatusWatch;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::Extent;

/// The most clients. Each keeps a connection; the others of the listener are left for probes.
const CLIENTS: usize = 32;

/// The clients that are sent events.
#[derive(Clone)]
pub struct LeaderEvents(Arc<Semaphore>);

/// The status of the election.
enum Election {
    /// Waits until the lock was reached.
    Opening(BoxFuture<'static, StatusWatch>),
    Open(Box<StatusWatch>),
}

/// What one client is sent.
struct Events<S> {
    election: Election,
    /// Returns the fields of `/leader`.
    show: S,
    /// The last ones that were sent.
    sent: Option<Value>,
    _permit: OwnedSemaphorePermit,
}

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
        let election = Election::Opening(status.boxed());
        let events = Events { election, show, sent: None, _permit: permit };
        let events =
            stream::unfold(events, async |mut events| Some((events.next().await?, events)));
        extent.events(events).keep_alive(KeepAlive::default()).into_response()
    }
}

impl<S: Fn() -> Value> Events<S> {
    /// The next event; `None` once the candidate has stopped.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let fields = (self.show)();
            if self.sent.as_ref() != Some(&fields) {
                let id = id_of(&fields);
                let event = Event::default().event("leader").id(&id).data(fields.to_string());
                self.sent = Some(fields);
                return Some(event);
            }
            self.changed().await?;
        }
    }

    /// Waits until the fields may have changed.
    async fn changed(&mut self) -> Option<()> {
        match &mut self.election {
            Election::Open(status) => status.changed().await.then_some(()),
            Election::Opening(opening) => {
                self.election = Election::Open(Box::new(opening.await));
                Some(())
            }
        }
    }
}

/// The token of a fresh leader; else empty.
fn id_of(fields: &Value) -> String {
    match fields["token"].as_u64() {
        Some(token) if fields["fresh"] == true => token.to_string(),
        _ => String::new(),
    }
}
