//! The real locks.

mod etcd;
mod kubernetes;
mod nats;
pub mod objects;
mod postgres;
mod sqlite;

pub use etcd::Etcd;
pub use kubernetes::Kubernetes;
pub use nats::Nats;
pub use postgres::Postgres;
pub use sqlite::Sqlite;
