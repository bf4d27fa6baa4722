//! Processes of this machine: starting, watching and stopping them.

mod cgroup;
pub mod lookup;
mod pidfd;
pub mod tree;

pub use self::cgroup::Cgroup;
pub use self::lookup::{NOT_EXECUTABLE, NOT_FOUND};
pub use self::pidfd::WatchedProcess;
