//! How a command reaches its server, as the `nats` program does it.

mod args;
mod bucket;
mod context;
mod credentials;
mod session;
mod settings;

pub use args::{ConnectionArgs, PATIENCE};
pub use bucket::BucketArgs;
pub use session::{Bounded, Session};
