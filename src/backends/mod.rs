//! The locks: one folder per store, and what they share.

#[cfg(feature = "etcd")]
pub mod etcd;
#[allow(dead_code, reason = "each lock uses some of it")]
mod hint_hub;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod memory;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "_objects")]
pub mod object_storage;
#[cfg(feature = "peer")]
pub mod peer;
#[allow(dead_code, reason = "each lock uses some of it")]
pub mod seen;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub mod sql;
#[cfg(any(feature = "_objects", feature = "_sim"))]
#[allow(dead_code, reason = "each user uses some of it")]
pub mod vimeo_timing;
