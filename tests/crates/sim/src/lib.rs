//! A seeded world in virtual time around production [`Elector`](incumbent::protocol::Elector)s: one
//! election key on a model of a lock, the network and the processes, and everything that goes wrong
//! with them.
//!
//! A [`Schedule`] names a fleet and a seed, and everything follows from the two. [`run()`] plays it
//! out and checks at each step what must hold whatever happens; [`Schedule::shrink`] finds a
//! smaller one that fails as well.

mod candidate;
mod checker;
mod checkpoints;
mod choria;
mod clientgo;
mod driver;
mod faults;
mod figures;
mod fleet;
mod many;
mod moves;
mod network;
mod objects;
mod peers;
mod process;
mod quorum;
mod run;
mod scenario;
mod schedule;
mod sentinel;
mod server;
mod sets;
mod shelf;
mod tampering;
mod timeline;
mod trace;
mod world;

pub use candidate::{CandidateSetup, Polling};
pub use faults::{Fault, MoveStep};
pub use figures::{Checkpoints, Moved, Releases, Report, SetFigures, Violation};
pub use fleet::Fleet;
pub use many::{ManyElections, Played};
pub use moves::MoveSetup;
pub use objects::LoneLock;
pub use process::Drifting;
pub use quorum::QuorumSetup;
pub use run::{bound, run};
pub use scenario::{STORM, Scenario};
pub use schedule::{ParseScheduleError, Schedule};
pub use server::{Retention, Server, Stored, Time, failed, failure};
pub use sets::{MemberSetup, SetSetup};
pub use shelf::{Keeper, Shelf, ShelfBreach};
pub use timeline::Timeline;
pub use world::World;
