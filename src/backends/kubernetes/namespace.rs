//! The name of a namespace, and whether the namespace exists.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Resource;

use super::api::Objects;
use super::api_client::ApiClient;
use crate::lock::{LockError, LockErrorKind};
use crate::time::timer::deadline_after;

/// The maximum length of a namespace's name.
const MAX_LEN: usize = 63;

/// Validates a namespace's name: an invalid name would address another path of the API server.
///
/// # Errors
/// Returns the rule in one line if the name is invalid.
pub fn check_namespace(name: &str) -> Result<(), String> {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let ends = name.starts_with('-') || name.ends_with('-');
    if (1..=MAX_LEN).contains(&name.len()) && !ends && name.bytes().all(fits) {
        return Ok(());
    }
    let shown = crate::util::text::escape_line(name, MAX_LEN);
    Err(format!(
        "{shown:?} cannot be the name of a namespace: up to {MAX_LEN} of the letters a-z, 0-9 and '-', with no '-' at either end"
    ))
}

/// Whether the namespace exists. Requires the permission to `get` it.
pub(super) async fn exists(
    access: &ApiClient,
    name: &str,
    timeout: Duration,
) -> Result<bool, LockError> {
    let namespaces = Objects::new(access.clone(), Namespace::url_path(&(), None), "Namespace", "");
    let got = namespaces.get(name, deadline_after(timeout)).await;
    let got = got.map_err(|failure| namespaces.lock_error(failure, name, "read", "get", false));
    Ok(got?.is_some())
}

/// Refuses objects of a missing namespace. Without the permission to get it, nothing is refused.
pub(super) async fn check_exists(objects: &Objects, timeout: Duration) -> Result<(), LockError> {
    let name = objects.namespace();
    match exists(objects.access(), name, timeout).await {
        Ok(false) => {
            let message = format!("no namespace {name}: create it, or choose another");
            Err(LockError::new(LockErrorKind::Missing, message))
        }
        Ok(true) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_no_path() {
        for good in ["default", "a-1", &"x".repeat(63)] {
            assert_eq!(check_namespace(good), Ok(()));
        }
        for bad in ["", "..", "a/b", "A", "-a", "a-", "a?b", "é", &"x".repeat(64)] {
            assert!(check_namespace(bad).is_err_and(|rule| rule.contains("a-z, 0-9")), "{bad:?}");
        }
    }
}
