//! The real locks.

mod nats;
mod postgres;
mod sqlite;

pub use nats::Nats;
pub use postgres::Postgres;
pub use sqlite::Sqlite;
