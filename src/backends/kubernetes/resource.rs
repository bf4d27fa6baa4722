//! The kinds of objects that carry a lock, and their names.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints};

use super::record::RecordLocation;
use crate::lock::{LockError, LockErrorKind};

/// The maximum length of an object's name.
pub(super) const MAX_NAME_LEN: usize = 253;

/// Marks the lock on a Lease.
#[derive(Debug, Clone, Copy)]
pub enum LeaseKind {}
/// Marks the lock on a ConfigMap.
#[derive(Debug, Clone, Copy)]
pub enum ConfigMapKind {}
/// Marks the lock on an Endpoints object.
#[derive(Debug, Clone, Copy)]
pub enum EndpointsKind {}

/// A kind of object that carries a lock.
pub trait ResourceKind: sealed::ResourceKind {}

impl<C: sealed::ResourceKind> ResourceKind for C {}

mod sealed {
    use crate::backends::kubernetes::record::RecordLocation;

    pub trait ResourceKind: Send + Sync + 'static {
        type Object: k8s_openapi::Resource + kube::Resource<DynamicType = ()>;
        const KIND: &'static str = <Self::Object as k8s_openapi::Resource>::KIND;
        const API_VERSION: &'static str = <Self::Object as k8s_openapi::Resource>::API_VERSION;
        const LOCATION: RecordLocation;

        fn path(namespace: &str) -> String {
            <Self::Object as kube::Resource>::url_path(&(), Some(namespace))
        }
    }
}

impl sealed::ResourceKind for LeaseKind {
    type Object = Lease;
    const LOCATION: RecordLocation = RecordLocation::Spec;
}

impl sealed::ResourceKind for ConfigMapKind {
    type Object = ConfigMap;
    const LOCATION: RecordLocation = RecordLocation::Annotation;
}

impl sealed::ResourceKind for EndpointsKind {
    type Object = Endpoints;
    const LOCATION: RecordLocation = RecordLocation::Annotation;
}

/// Returns the naming rule if `name` is not a valid object name.
pub(super) fn check_object_name(name: &str) -> Result<(), String> {
    let letters = name
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'));
    let parts = name
        .split('.')
        .all(|part| !part.is_empty() && !part.starts_with('-') && !part.ends_with('-'));
    if letters && parts && (1..=MAX_NAME_LEN).contains(&name.len()) {
        return Ok(());
    }
    let shown: String = name.chars().take(64).collect();
    Err(format!(
        "{shown:?} is not a valid name of a Kubernetes object: up to {MAX_NAME_LEN} of the letters a-z, 0-9, '-' and '.', where every part between dots begins and ends with a letter or digit; set the object with object(), or rename the election"
    ))
}

/// As [`check_object_name`]: an invalid name would address another resource.
pub(super) fn check_object(name: &str) -> Result<(), LockError> {
    check_object_name(name).map_err(|rule| LockError::new(LockErrorKind::Misconfigured, rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_object_can_have_are_refused_with_the_rule() {
        for good in ["a", "my-app", "a.b-c.d9", &"x".repeat(253)] {
            assert_eq!(check_object_name(good), Ok(()));
        }
        for bad in ["", "my_app", "A", "-a", "a-", "a..b", ".a", "é", "a/b", &"x".repeat(254)] {
            assert!(check_object_name(bad).is_err_and(|rule| rule.contains("a-z, 0-9")), "{bad:?}");
        }
    }
}
