//! Processes of this machine: starting, watching and stopping them.

mod cgroup;
mod guards;
pub mod lookup;
mod pidfd;
mod signal_set;
pub mod tree;

pub use self::cgroup::Cgroup;
pub use self::guards::{Guards, reap_one};
pub use self::pidfd::WatchedProcess;
pub use self::signal_set::is_in;
