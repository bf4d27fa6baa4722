//! An election on object storage: what the lock of `src/backends/object_storage` sees of the
//! stores, and what it makes of it.
//!
//! What it knows of an object, and how long it makes candidates wait, are the library's own
//! sources.

mod alone;
mod requests;
mod store;
mod tampering;
mod vimeo;

pub use alone::LoneLock;
pub(crate) use requests::{Exchange, HttpRequest, Reply, Room};
pub(crate) use store::Store;
pub(crate) use vimeo::{Step, Vimeo};
