//! The guard: the parent of the command, a process of its own.
//!
//! It holds the tree together (it is a subreaper and leads the command's process group), and ends it when told to, when
//! the time it was told has passed and nothing more was heard, or when who started it is gone. So a campaigner that is
//! killed, hangs, or is suspended takes the command with it. The command, in turn, is tied to the guard by a
//! parent-death signal; what is left of the tree of a guard that was killed falls to the campaigner.

mod cgroup;
mod channel;
mod config;
mod errors;
mod exec;
mod foreign;
mod handle;
mod messages;
mod process;
mod signals;
mod tree;

pub use self::cgroup::Cgroup;
pub use self::config::{GuardConfig, SUBCOMMAND as GUARD_SUBCOMMAND};
pub use self::errors::{foreign, unguarded};
pub use self::exec::{NOT_EXECUTABLE, NOT_FOUND, SUBCOMMAND as EXEC_SUBCOMMAND, become_command};
pub use self::handle::{CommandEvent, GuardHandle};
pub use self::messages::{GuardRequest, StopTimes};
pub use self::process::watch;
