//! The guard: the parent process of the command.
//!
//! It is a subreaper and leads the command's process group. It stops the whole tree on request,
//! when its schedule has passed without a later one, or when the candidate is gone. So a candidate
//! that is killed, hangs, or is suspended does not leave a running command. The command, in turn,
//! is killed with the guard by a parent-death signal; the reaper, which is the guard's parent,
//! adopts and kills what is left. The tree has ended when one of both has no child to wait for, and
//! reports so.

mod config;
mod device;
mod exec;
mod handle;
mod messages;
mod process;
mod sentinel;
mod signals;

pub use self::config::{GuardConfig, SUBCOMMAND as GUARD_SUBCOMMAND};
pub use self::device::WatchdogDevice;
pub use self::exec::{SUBCOMMAND as EXEC_SUBCOMMAND, become_command};
pub use self::handle::{CommandEvent, CommandFailure, GuardHandle, unguarded, unstopped};
pub use self::messages::GuardRequest;
pub use self::process::watch;
pub use self::sentinel::{ParseArgs, SentinelArgs};
