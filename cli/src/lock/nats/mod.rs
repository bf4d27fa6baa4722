//! Connections to NATS, configured as the `nats` program does it.

mod args;
mod bucket;
mod context;
mod session;
mod settings;

pub use args::{ConnectionArgs, DEFAULT_TIMEOUT};
pub use bucket::BucketArgs;
pub use session::{Bounded, Session, check_bucket, next_refusal};
