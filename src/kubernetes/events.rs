//! Events on the object, as client-go writes them.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::Resource;
use kube::api::PostParams;
use kube::core::Request;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tracing::debug;

use super::access::Access;
use super::record::Place;
use crate::text::head;

/// How long an Event may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of an Event's message that the server takes.
const LONGEST_MESSAGE: usize = 1024;

/// Writes Events, best effort: an election does not wait for them.
pub(super) struct Recorder {
    access: Access,
    namespace: String,
    /// Those under way: they end with the lock.
    telling: Mutex<JoinSet<()>>,
}

impl Recorder {
    pub(super) fn new(access: Access, namespace: &str) -> Self {
        Self { access, namespace: namespace.to_owned(), telling: Mutex::default() }
    }

    pub(super) fn another(&self) -> Self {
        Self::new(self.access.clone(), &self.namespace)
    }

    /// Tells of something that happened to an object.
    pub(super) fn tell(&self, object: Value, message: &str) {
        let Ok(runtime) = Handle::try_current() else { return };
        let now = Place::Annotation.now();
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "generateName": "leader-election-", "namespace": self.namespace },
            "involvedObject": object,
            "reason": "LeaderElection",
            "message": head(message, LONGEST_MESSAGE),
            "type": "Normal",
            "source": { "component": "incumbent" },
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        });
        let request = Request::new(Event::url_path(&(), Some(&self.namespace)))
            .create(&PostParams::default(), serde_json::to_vec(&event).unwrap_or_default());
        let Ok(request) = request else { return };
        let client = self.access.client().client;
        let tell = async move {
            match tokio::time::timeout(TIMEOUT, client.request::<Value>(request)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => debug!(%error, "no Event"),
                Err(_) => debug!("no Event: the API server did not answer in time"),
            }
        };
        let mut telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        while telling.try_join_next().is_some() {}
        telling.spawn_on(tell, &runtime);
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}
