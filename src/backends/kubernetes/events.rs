//! Events on the object, as client-go writes them.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use k8s_openapi::api::core::v1::Event;
use kube::Resource;
use kube::api::PostParams;
use kube::core::Request;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tracing::debug;

use super::api_client::ApiClient;
use super::record::RecordLocation;
use crate::util::text::truncate;

/// How long an Event may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long an eviction is kept waiting for it.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(2);
/// The most bytes of an Event's message that the server takes.
const LONGEST_MESSAGE: usize = 1024;

/// Writes Events, best effort: an election does not wait for them.
pub(super) struct Recorder {
    access: ApiClient,
    namespace: String,
    /// Those under way: they end with the lock.
    telling: Mutex<JoinSet<()>>,
}

impl Recorder {
    pub(super) fn new(access: ApiClient, namespace: &str) -> Self {
        Self { access, namespace: namespace.to_owned(), telling: Mutex::default() }
    }

    pub(super) fn another(&self) -> Self {
        Self::new(self.access.clone(), &self.namespace)
    }

    /// Tells of something that happened to an object.
    pub(super) fn tell(&self, object: Value, message: &str) {
        let Ok(runtime) = Handle::try_current() else { return };
        let Some(request) = self.event(object, message) else { return };
        let tell = tokio::time::timeout(TIMEOUT, send(self.access.client().client, request));
        let mut telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        while telling.try_join_next().is_some() {}
        telling.spawn_on(tell.map(drop), &runtime);
    }

    /// Tells who evicted a holder. Answers once that is told, or soon where it cannot be.
    pub(super) async fn tell_eviction(&self, object: Value, holder: &str) {
        let tell = async {
            let by = self.who_we_are().await.unwrap_or_else(|| "somebody".to_owned());
            if let Some(request) = self.event(object, &format!("{holder} evicted by {by}")) {
                send(self.access.client().client, request).await;
            }
        };
        let _ = tokio::time::timeout(EVICTION_TIMEOUT, tell).await;
    }

    /// The user's name, as the API server knows us.
    async fn who_we_are(&self) -> Option<String> {
        let review =
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let request = Request::new("/apis/authentication.k8s.io/v1/selfsubjectreviews")
            .create(&PostParams::default(), serde_json::to_vec(&review).unwrap_or_default());
        let answer = self.access.client().client.request::<Value>(request.ok()?).await.ok()?;
        answer.pointer("/status/userInfo/username")?.as_str().map(str::to_owned)
    }

    fn event(&self, object: Value, message: &str) -> Option<http::Request<Vec<u8>>> {
        let now = RecordLocation::Annotation.now();
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "generateName": "leader-election-", "namespace": self.namespace },
            "involvedObject": object,
            "reason": "LeaderElection",
            "message": truncate(message, LONGEST_MESSAGE),
            "type": "Normal",
            "source": { "component": "incumbent" },
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        });
        Request::new(Event::url_path(&(), Some(&self.namespace)))
            .create(&PostParams::default(), serde_json::to_vec(&event).unwrap_or_default())
            .ok()
    }
}

async fn send(client: kube::Client, request: http::Request<Vec<u8>>) {
    if let Err(error) = client.request::<Value>(request).await {
        debug!(%error, "no Event");
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recorder")
    }
}
