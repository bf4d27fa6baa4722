//! Processes of this machine: starting, watching and stopping them.

mod cgroup;
pub mod lookup;
mod pidfd;
pub mod reaper;
mod signal_set;
mod terminal;
pub mod tree;

pub use self::cgroup::Cgroup;
pub use self::pidfd::WatchedProcess;
pub use self::signal_set::is_in;
pub use self::terminal::Terminal;
