//! Plays random operations on the model of a lock and on the real one, and compares all of their
//! results.
//!
//! The simulation and the model check are worth as much as their model of a lock. Here that model,
//! [`incumbent_sim::Server`], or on an object [`incumbent_sim::LoneLock`], is put beside the real
//! thing: many elections side by side each get a random sequence of creates, renewals, releases,
//! evictions, races and waits through the library's own [`Lock`](incumbent::lock::Lock), and of
//! what others do. Every answer, every hint and whatever a read finds must be one that the model
//! allows.
//!
//! # What the model allows
//! - A request takes effect at some instant between its sending and its response. The model is
//!   evaluated at both ends.
//! - A store that judges by its clock knows better than we when it has stored something: at some
//!   instant of the request, too.
//! - An entry may be freed at any instant from the end of its life on. So a [`Model`] is the set of
//!   all states which agree with what was seen; what agrees with none of them is a difference. An
//!   entry that is freed before its time is one, and so is one that is still there [`NEVER`] after
//!   it.
//! - Revisions are compared by their order alone: those of a real lock may leave gaps.

mod acting;
mod branch;
mod draw;
mod key;
#[path = "../../../object_storage/kinds.rs"]
#[allow(dead_code, reason = "the tests share servers")]
mod kinds;
mod model;
mod run;
mod store;
pub mod stores;

pub use acting::{Act, Outcome};
pub use model::{Difference, Model, NEVER};
pub use run::{Options, Report, run};
pub use store::{Deed, HintDelivery, Rules, Store, Upheaval};
