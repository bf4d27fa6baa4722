//! Events on the object of an election, as client-go writes them.

use std::sync::Mutex;
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

use super::api::Objects;
use super::api_client::ApiClient;
use super::connection::without_secrets;
use super::record::RecordLocation;
use crate::util::locked;
use crate::util::text::truncate;

/// The timeout of writing an Event.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How long an eviction waits for its Event.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum size in bytes of an Event's message, which the server enforces.
const MAX_MESSAGE_LEN: usize = 1024;

impl Objects {
    /// Returns a reference to one of the objects.
    pub(super) fn reference(&self, api_version: &str, name: &str, object: &Value) -> Value {
        json!({
            "apiVersion": api_version,
            "kind": self.kind(),
            "namespace": self.namespace(),
            "name": name,
            "uid": object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default(),
        })
    }
}

/// Writes Events, best effort: an election does not wait for them.
pub(super) struct Recorder {
    access: ApiClient,
    namespace: String,
    /// The writes in progress, which end with the lock.
    in_progress: Mutex<JoinSet<()>>,
}

impl Recorder {
    pub(super) fn new(access: ApiClient, namespace: &str) -> Self {
        Self { access, namespace: namespace.to_owned(), in_progress: Mutex::default() }
    }

    pub(super) fn clone_config(&self) -> Self {
        Self::new(self.access.clone(), &self.namespace)
    }

    /// Writes an Event about an object in the background.
    pub(super) fn record_event(&self, object: Value, message: &str) {
        let Ok(runtime) = Handle::try_current() else { return };
        let Some(request) = self.event(object, message) else { return };
        let write = tokio::time::timeout(TIMEOUT, send(self.access.client().client, request));
        let mut in_progress = locked(&self.in_progress);
        while in_progress.try_join_next().is_some() {}
        in_progress.spawn_on(write.map(drop), &runtime);
    }

    /// Writes an Event about an eviction and the user that requested it. Returns once it is
    /// written, or after a short timeout.
    pub(super) async fn record_eviction(&self, object: Value, holder: &str) {
        let write = async {
            let by = self.user_name().await.unwrap_or_else(|| "an unknown user".to_owned());
            if let Some(request) = self.event(object, &format!("{holder} evicted by {by}")) {
                send(self.access.client().client, request).await;
            }
        };
        let _ = tokio::time::timeout(EVICTION_TIMEOUT, write).await;
    }

    /// Returns the user name of the present credentials, as the API server knows it.
    async fn user_name(&self) -> Option<String> {
        let review =
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let request = Request::new("/apis/authentication.k8s.io/v1/selfsubjectreviews")
            .create(&PostParams::default(), serde_json::to_vec(&review).unwrap_or_default());
        let response = self.access.client().client.request::<Value>(request.ok()?).await.ok()?;
        response.pointer("/status/userInfo/username")?.as_str().map(str::to_owned)
    }

    fn event(&self, object: Value, message: &str) -> Option<http::Request<Vec<u8>>> {
        let now = RecordLocation::Annotation.now();
        let event = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "generateName": "leader-election-", "namespace": self.namespace },
            "involvedObject": object,
            "reason": "LeaderElection",
            "message": truncate(message, MAX_MESSAGE_LEN),
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
        debug!(error = %without_secrets(error), "Event not written");
    }
}

partial_debug!(Recorder, self);
