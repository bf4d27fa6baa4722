//! Processes of this machine: starting, watching and stopping them.

mod cgroup;
pub mod lookup;
mod pidfd;
pub mod reaper;
mod rights;
mod signal_set;
mod stop_times;
mod terminal;
pub mod tree;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

pub use self::cgroup::Cgroup;
pub use self::pidfd::WatchedProcess;
pub use self::rights::drop_network_rights;
pub use self::signal_set::is_in;
pub use self::stop_times::{StopTimes, from_nanos, sleep_until, to_nanos};
pub use self::terminal::Terminal;

/// From now on no other process of this user can read the credentials of the lock in the memory and
/// the environment of this one.
pub fn hide_credentials() {
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable); // never refused
}

/// The arguments of this process before those of a command, and `rest`, as JSON; `None` if they are
/// not text.
pub fn own_arguments(rest: &[&str]) -> Option<String> {
    let args = std::env::args_os().take_while(|arg| arg != "--");
    let args = args.map(|arg| arg.into_string().ok()).collect::<Option<Vec<_>>>()?;
    serde_json::to_string(&[args, rest.iter().map(|arg| (*arg).to_owned()).collect()].concat()).ok()
}

/// What ends the arguments of this program where a command is required after them.
pub const NO_COMMAND: [&str; 2] = ["--", "true"];
