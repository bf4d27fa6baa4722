//! Facts about the API server, and about the permissions of the present credentials.

use std::time::{Duration, SystemTime};

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::jiff::fmt::rfc2822::DateTimeParser;
use kube::Resource;
use serde_json::{Value, json};

use super::api::Objects;
use super::cluster::Cluster;
use crate::lock::{LockError, LockErrorKind};
use crate::time::timer::deadline_after;

/// Facts that the API server reports about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerFacts {
    /// Its version, as in `v1.36.2`. `None` if the permission to read it is missing.
    pub version: Option<String>,
    /// Its clock, in whole seconds, at the time of its response.
    pub date: Option<SystemTime>,
}

/// A permission that a Role grants.
///
/// ```
/// use incumbent::kubernetes::Permission;
///
/// let permission = Permission::new("update", "coordination.k8s.io", "leases").of(Some("my-app"));
/// assert_eq!((permission.verb, permission.name), ("update", Some("my-app")));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Permission<'a> {
    /// As in `get`.
    pub verb: &'a str,
    /// The API group of the resource: empty for the core group.
    pub group: &'a str,
    /// As in `leases`.
    pub resource: &'a str,
    /// The name of the object; `None`: any object.
    pub name: Option<&'a str>,
    /// Whether the resource is cluster-wide.
    pub cluster_wide: bool,
}

impl<'a> Permission<'a> {
    /// A permission to any object of a resource of the namespace.
    pub fn new(verb: &'a str, group: &'a str, resource: &'a str) -> Self {
        Self { verb, group, resource, name: None, cluster_wide: false }
    }

    /// The permission to the object of this name; `None`: to any object.
    #[must_use]
    pub fn of(self, name: Option<&'a str>) -> Self {
        Self { name, ..self }
    }

    /// The permission to a resource outside of namespaces.
    #[must_use]
    pub fn cluster_wide(self) -> Self {
        Self { cluster_wide: true, ..self }
    }
}

impl Cluster {
    /// Reads the API server's version and time.
    ///
    /// # Errors
    /// [`Denied`](LockErrorKind::Denied) if it does not accept the credentials, and
    /// [`Unavailable`](LockErrorKind::Unavailable) if no response arrived within `timeout`.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn server(&self, timeout: Duration) -> Result<ServerFacts, LockError> {
        let server = Objects::new(self.access().clone(), "/version".to_owned(), "API server's", "");
        let deadline = deadline_after(timeout);
        let (answer, date) = server.read_whole(deadline).await;
        let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(&date).ok());
        let version = match answer {
            Ok(answer) => answer.get("gitVersion").and_then(Value::as_str).map(str::to_owned),
            Err(failure) if failure.code() == 403 => None,
            Err(failure) => {
                return Err(server.lock_error(failure, "version", "read", "get", false));
            }
        };
        Ok(ServerFacts { version, date: date.map(SystemTime::from) })
    }

    /// Returns whether the present credentials have a permission. The permission is not used.
    ///
    /// # Errors
    /// As [`server`](Self::server); also [`Denied`](LockErrorKind::Denied) if the request for a
    /// review is not allowed.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time.
    pub async fn may(
        &self,
        permission: &Permission<'_>,
        timeout: Duration,
    ) -> Result<bool, LockError> {
        let reviews = SelfSubjectAccessReview::url_path(&(), None);
        let reviews = Objects::new(self.access().clone(), reviews, "SelfSubjectAccessReview", "");
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": {
                "verb": permission.verb,
                "group": permission.group,
                "resource": permission.resource,
                "name": permission.name.unwrap_or_default(),
                "namespace": if permission.cluster_wide { "" } else { self.namespace() },
            } },
        });
        let name = permission.resource;
        let answer = reviews.create(&review, deadline_after(timeout)).await;
        let answer = answer
            .map_err(|failure| reviews.lock_error(failure, name, "create", "create", false))?;
        answer.pointer("/status/allowed").and_then(Value::as_bool).ok_or_else(|| {
            let message = "the API server returned no result of the access review";
            LockError::new(LockErrorKind::Unavailable, message)
        })
    }
}
