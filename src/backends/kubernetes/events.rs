//! Events on the object of an election, as client-go writes them.

use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use kube::Resource;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::debug;

use super::api::Objects;
use super::api_client::ApiClient;
use super::record::RecordLocation;
use crate::time::timer::deadline_after;
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
    events: Objects,
    /// The writes in progress, which end with the lock.
    in_progress: Mutex<JoinSet<()>>,
}

impl Recorder {
    pub(super) fn new(access: ApiClient, namespace: &str) -> Self {
        let path = Event::url_path(&(), Some(namespace));
        let events = Objects::new(access, path, "Event", namespace);
        Self { events, in_progress: Mutex::default() }
    }

    pub(super) fn clone_config(&self) -> Self {
        Self { events: self.events.clone(), in_progress: Mutex::default() }
    }

    /// Writes an Event about an object in the background.
    pub(super) fn record_event(&self, object: Value, message: &str) {
        let Ok(runtime) = Handle::try_current() else { return };
        let (events, event) = (self.events.clone(), self.event(object, message));
        let mut in_progress = locked(&self.in_progress);
        while in_progress.try_join_next().is_some() {}
        in_progress.spawn_on(
            async move { write(&events, &event, deadline_after(TIMEOUT)).await },
            &runtime,
        );
    }

    /// Writes an Event about an eviction and the user that requested it. Returns once it is
    /// written, or after a short timeout.
    pub(super) async fn record_eviction(&self, object: Value, holder: &str) {
        let deadline = deadline_after(EVICTION_TIMEOUT);
        let by = self.user_name(deadline).await.unwrap_or_else(|| "an unknown user".to_owned());
        let event = self.event(object, &format!("{holder} evicted by {by}"));
        write(&self.events, &event, deadline).await;
    }

    /// Returns the user name of the present credentials, as the API server knows it.
    async fn user_name(&self, deadline: Instant) -> Option<String> {
        let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews".to_owned();
        let access = self.events.access().clone();
        let reviews = Objects::new(access, reviews, "SelfSubjectReview", "");
        let review =
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
        let response = reviews.create(&review, deadline).await.ok()?;
        response.pointer("/status/userInfo/username")?.as_str().map(str::to_owned)
    }

    fn event(&self, object: Value, message: &str) -> Value {
        let now = RecordLocation::Annotation.now();
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "generateName": "leader-election-", "namespace": self.events.namespace() },
            "involvedObject": object,
            "reason": "LeaderElection",
            "message": truncate(message, MAX_MESSAGE_LEN),
            "type": "Normal",
            "source": { "component": "incumbent" },
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        })
    }
}

async fn write(events: &Objects, event: &Value, deadline: Instant) {
    if let Err(failure) = events.create(event, deadline).await {
        let error = events.lock_error(failure, "leader-election-*", "create", "create", true);
        debug!(%error, "Event not written");
    }
}

partial_debug!(Recorder, self);
