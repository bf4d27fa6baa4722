//! Processes of this machine: starting, watching and stopping them.

mod cgroup;
mod helper;
pub mod lookup;
mod pidfd;
pub mod reaper;
mod terminal;
pub mod tree;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

pub use self::cgroup::Cgroup;
pub use self::helper::{
    NO_COMMAND, StopTimes, Unsent, from_nanos, own_arguments, send, set_own_arguments, sleep_until,
    to_nanos,
};
pub use self::pidfd::WatchedProcess;
pub use self::reaper::is_in;
pub use self::terminal::Terminal;

/// From now on no other process of this user can read the credentials of the lock in the memory and
/// the environment of this one.
pub fn hide_credentials() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable); // never refused
}
