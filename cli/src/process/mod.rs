//! Processes of this machine: starting, watching and stopping them.

mod cgroup;
pub mod lookup;
mod pidfd;
mod signal_set;
pub mod tree;

pub use self::cgroup::Cgroup;
pub use self::pidfd::WatchedProcess;
pub use self::signal_set::is_in;
