//! The real locks.

mod nats;
pub mod objects;
mod postgres;
mod sqlite;

pub use nats::Nats;
pub use postgres::Postgres;
pub use sqlite::Sqlite;
