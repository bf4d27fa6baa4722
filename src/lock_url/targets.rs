//! Targets of URLs, for inspection without opening them.

#[cfg(feature = "kubernetes")]
pub use super::kubernetes::{KubernetesObjects, ObjectKind};
#[cfg(feature = "nats")]
pub use super::nats::NatsBucket;
#[cfg(feature = "peer")]
pub use super::peer::PeerGroup;

/// The target of one URL, not opened: nothing was created, and no request was sent.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockTarget {
    /// A lock of this process.
    Memory,
    /// A bucket of NATS.
    #[cfg(feature = "nats")]
    Nats(Box<NatsBucket>),
    /// The objects of a Kubernetes namespace.
    #[cfg(feature = "kubernetes")]
    Kubernetes(KubernetesObjects),
    /// A PostgreSQL database.
    #[cfg(feature = "postgres")]
    Postgres {
        /// A connection for inspection.
        probe: crate::backends::sql::PostgresProbe,
        /// Whether to create tables, and for which lease.
        tables: crate::backends::sql::TableSetup,
    },
    /// A SQLite file.
    #[cfg(feature = "sqlite")]
    Sqlite {
        /// The path of the file.
        path: std::path::PathBuf,
        /// Whether to create the file and its tables, and for which lease.
        tables: crate::backends::sql::TableSetup,
    },
    /// Objects of a bucket.
    #[cfg(feature = "_objects")]
    Objects(crate::backends::object_storage::Bucket),
    /// Keys of etcd.
    #[cfg(feature = "etcd")]
    Etcd(crate::backends::etcd::Etcd),
    /// A quorum of peers.
    #[cfg(feature = "peer")]
    Peers(PeerGroup),
}
