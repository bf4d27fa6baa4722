//! HTTP servers: bounded connections, and who may act.

mod connections;
mod listener;
mod rights;

pub use self::connections::Extent;
pub use self::listener::{Flags, HttpListener, ServedHttp};
pub use self::rights::{Rights, check};
