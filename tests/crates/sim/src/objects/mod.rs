//! An election on object storage: what the lock of `src/objects` sees of the stores, and what it makes of it.
//!
//! What it knows of an object, and how long it has anybody wait, are the library's own sources.

mod alone;
#[path = "../../../../../src/objects/election.rs"]
mod election;
mod http;
mod requests;
mod store;
#[path = "../../../../../src/objects/terms.rs"]
mod terms;
mod trouble;
mod vimeo;

pub use alone::LoneLock;
pub(crate) use http::{Asked, Reply};
pub(crate) use requests::{Exchange, Room};
pub(crate) use store::Store;
pub(crate) use vimeo::{Step, Vimeo};
