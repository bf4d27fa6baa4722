//! The target of one URL, on any backend.

use std::sync::Arc;
use std::time::Duration;

use super::error::LockUrlError;
#[cfg(feature = "etcd")]
use super::etcd;
#[cfg(feature = "kubernetes")]
use super::kubernetes;
use super::memory;
#[cfg(feature = "nats")]
use super::nats;
#[cfg(feature = "_objects")]
use super::objects;
use super::parts::Parts;
#[cfg(feature = "peer")]
use super::peer;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use super::sql;
use super::targets::LockTarget;
use crate::lock::Lock;

#[derive(Debug, Clone)]
pub(super) enum Target {
    Memory(memory::MemoryTarget),
    #[cfg(feature = "nats")]
    Nats(Box<nats::NatsBucket>),
    #[cfg(feature = "kubernetes")]
    Kubernetes(kubernetes::KubernetesObjects),
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    Sql(sql::SqlTarget),
    #[cfg(feature = "_objects")]
    Objects(objects::ObjectStorageTarget),
    #[cfg(feature = "etcd")]
    Etcd(etcd::EtcdTarget),
    #[cfg(feature = "peer")]
    Peer(Box<peer::PeerTarget>),
}

impl Target {
    pub fn parse(parts: &mut Parts) -> Result<Self, LockUrlError> {
        match parts.scheme() {
            "memory" => memory::MemoryTarget::parse(parts).map(Self::Memory),
            #[cfg(feature = "nats")]
            "nats" | "tls" => {
                nats::NatsBucket::parse(parts).map(|place| Self::Nats(Box::new(place)))
            }
            #[cfg(feature = "kubernetes")]
            "kubernetes" => kubernetes::KubernetesObjects::parse(parts).map(Self::Kubernetes),
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => sql::SqlTarget::parse_postgres(parts).map(Self::Sql),
            #[cfg(feature = "sqlite")]
            "sqlite" => sql::SqlTarget::parse_sqlite(parts).map(Self::Sql),
            #[cfg(feature = "gcs")]
            "gs" => objects::ObjectStorageTarget::parse(parts).map(Self::Objects),
            #[cfg(feature = "s3")]
            "s3" => objects::ObjectStorageTarget::parse(parts).map(Self::Objects),
            #[cfg(feature = "azure")]
            "az" => objects::ObjectStorageTarget::parse(parts).map(Self::Objects),
            #[cfg(feature = "etcd")]
            "etcd" | "etcds" => etcd::EtcdTarget::parse(parts).map(Self::Etcd),
            #[cfg(feature = "peer")]
            "peer" => peer::PeerTarget::parse(parts).map(|place| Self::Peer(Box::new(place))),
            scheme => Err(parts.unknown(feature_of(scheme))),
        }
    }

    pub fn with_lease(&mut self, lease: Duration) {
        match self {
            Self::Memory(place) => place.with_lease(lease),
            #[cfg(feature = "nats")]
            Self::Nats(place) => place.with_lease(lease),
            #[cfg(feature = "kubernetes")]
            Self::Kubernetes(place) => place.with_lease(lease),
            #[cfg(any(feature = "postgres", feature = "sqlite"))]
            Self::Sql(place) => place.with_lease(lease),
            #[cfg(feature = "_objects")]
            Self::Objects(place) => place.with_lease(lease),
            #[cfg(feature = "etcd")]
            Self::Etcd(place) => place.with_lease(lease),
            #[cfg(feature = "peer")]
            Self::Peer(place) => place.with_lease(lease),
        }
    }

    pub fn without_create(&mut self) {
        match self {
            #[cfg(feature = "nats")]
            Self::Nats(place) => place.without_create(),
            #[cfg(any(feature = "postgres", feature = "sqlite"))]
            Self::Sql(place) => place.without_create(),
            #[cfg(feature = "peer")]
            Self::Peer(place) => place.without_create(),
            #[allow(unreachable_patterns, reason = "as the features are")]
            _ => {}
        }
    }

    pub async fn open(&self) -> Result<Arc<dyn Lock>, LockUrlError> {
        match self {
            Self::Memory(place) => place.open(),
            #[cfg(feature = "nats")]
            Self::Nats(place) => place.open().await,
            #[cfg(feature = "kubernetes")]
            Self::Kubernetes(place) => place.open().await,
            #[cfg(any(feature = "postgres", feature = "sqlite"))]
            Self::Sql(place) => place.open().await,
            #[cfg(feature = "_objects")]
            Self::Objects(place) => place.open(),
            #[cfg(feature = "etcd")]
            Self::Etcd(place) => place.open(),
            #[cfg(feature = "peer")]
            Self::Peer(place) => place.open(),
        }
    }

    pub fn named(&self) -> Result<LockTarget, LockUrlError> {
        match self {
            Self::Memory(_) => Ok(LockTarget::Memory),
            #[cfg(feature = "nats")]
            Self::Nats(place) => Ok(LockTarget::Nats(place.clone())),
            #[cfg(feature = "kubernetes")]
            Self::Kubernetes(place) => Ok(LockTarget::Kubernetes(place.clone())),
            #[cfg(any(feature = "postgres", feature = "sqlite"))]
            Self::Sql(place) => place.named(),
            #[cfg(feature = "_objects")]
            Self::Objects(place) => place.bucket().map(LockTarget::Objects),
            #[cfg(feature = "etcd")]
            Self::Etcd(place) => Ok(LockTarget::Etcd(place.etcd())),
            #[cfg(feature = "peer")]
            Self::Peer(place) => Ok(LockTarget::Peers(place.named.clone())),
        }
    }
}

/// Returns the feature that supports a scheme.
pub(super) fn feature_of(scheme: &str) -> Option<&'static str> {
    match scheme {
        "nats" | "tls" => Some("nats"),
        "kubernetes" => Some("kubernetes"),
        "postgres" | "postgresql" => Some("postgres"),
        "sqlite" => Some("sqlite"),
        "gs" => Some("gcs"),
        "s3" => Some("s3"),
        "az" => Some("azure"),
        "etcd" | "etcds" => Some("etcd"),
        "peer" => Some("peer"),
        _ => None,
    }
}
