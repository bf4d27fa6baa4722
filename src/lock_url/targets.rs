//! What URLs name, for whoever examines it rather than stands there.

use super::LockUrl;
use super::Place;
use super::error::LockUrlError;
use crate::lock::Need;

#[cfg(feature = "kubernetes")]
pub use super::kubernetes::NamedObjects;
#[cfg(feature = "nats")]
pub use super::nats::NamedBucket;
#[cfg(feature = "peer")]
pub use super::peer::NamedPeers;

/// What one URL names, not opened: nothing was made, and nobody was asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum Named {
    /// A lock of this process.
    Memory,
    /// A bucket of NATS.
    #[cfg(feature = "nats")]
    Nats(NamedBucket),
    /// The objects of a Kubernetes namespace.
    #[cfg(feature = "kubernetes")]
    Kubernetes(NamedObjects),
    /// A PostgreSQL database.
    #[cfg(feature = "postgres")]
    Postgres {
        /// A way to ask it.
        probe: crate::backends::sql::PostgresProbe,
        /// Whether tables are made, and how.
        tables: crate::backends::sql::Tables,
    },
    /// A SQLite file.
    #[cfg(feature = "sqlite")]
    Sqlite {
        /// Where it is.
        path: std::path::PathBuf,
        /// Whether the file and its tables are made, and how.
        tables: crate::backends::sql::Tables,
    },
    /// Objects of a bucket.
    #[cfg(feature = "_objects")]
    Objects(crate::backends::object_storage::Bucket),
    /// A quorum of peers.
    #[cfg(feature = "peer")]
    Peers(NamedPeers),
}

/// One of the URLs of a [`LockUrl`].
#[derive(Debug)]
#[non_exhaustive]
pub struct NamedLock {
    /// The URL, without secrets.
    pub shown: String,
    /// What a term needs of it.
    pub need: Need,
    /// What it names; an error where its settings, or those of the environment, cannot be used.
    pub named: Result<Named, LockUrlError>,
}

impl LockUrl {
    /// What each of the URLs names, in their order, to be examined rather than opened. Asks nobody.
    pub fn named(&self) -> Vec<NamedLock> {
        let named = self.members.iter().map(|one| NamedLock {
            shown: one.shown.clone(),
            need: one.need,
            named: one.place.named(),
        });
        named.collect()
    }
}

impl Place {
    fn named(&self) -> Result<Named, LockUrlError> {
        match self {
            Self::Memory(_) => Ok(Named::Memory),
            #[cfg(feature = "nats")]
            Self::Nats(place) => Ok(Named::Nats(place.named.clone())),
            #[cfg(feature = "kubernetes")]
            Self::Kubernetes(place) => Ok(Named::Kubernetes(NamedObjects(place.clone()))),
            #[cfg(any(feature = "postgres", feature = "sqlite"))]
            Self::Sql(place) => place.named(),
            #[cfg(feature = "_objects")]
            Self::Objects(place) => place.bucket().map(Named::Objects),
            #[cfg(feature = "peer")]
            Self::Peer(place) => Ok(Named::Peers(place.named.clone())),
        }
    }
}
