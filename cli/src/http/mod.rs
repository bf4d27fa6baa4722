//! HTTP servers: bounded connections, and which requests are answered.

mod connections;
mod guard;
mod listener;

pub use self::connections::Extent;
pub use self::guard::{Access, Guard, GuardedRoutes, Permission};
pub use self::listener::{Flags, HttpListener, ServedHttp};
