//! What URLs name, for whoever examines it rather than stands there.

#[cfg(feature = "kubernetes")]
pub use super::kubernetes::KubernetesObjects;
#[cfg(feature = "nats")]
pub use super::nats::NatsBucket;
#[cfg(feature = "peer")]
pub use super::peer::PeerGroup;

/// What one URL names, not opened: nothing was made, and nobody was asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockTarget {
    /// A lock of this process.
    Memory,
    /// A bucket of NATS.
    #[cfg(feature = "nats")]
    Nats(NatsBucket),
    /// The objects of a Kubernetes namespace.
    #[cfg(feature = "kubernetes")]
    Kubernetes(KubernetesObjects),
    /// A PostgreSQL database.
    #[cfg(feature = "postgres")]
    Postgres {
        /// A way to ask it.
        probe: crate::backends::sql::PostgresProbe,
        /// Whether tables are made, and how.
        tables: crate::backends::sql::TableSetup,
    },
    /// A SQLite file.
    #[cfg(feature = "sqlite")]
    Sqlite {
        /// Where it is.
        path: std::path::PathBuf,
        /// Whether the file and its tables are made, and how.
        tables: crate::backends::sql::TableSetup,
    },
    /// Objects of a bucket.
    #[cfg(feature = "_objects")]
    Objects(crate::backends::object_storage::Bucket),
    /// A quorum of peers.
    #[cfg(feature = "peer")]
    Peers(PeerGroup),
}
