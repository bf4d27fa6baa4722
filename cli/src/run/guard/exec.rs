//! The process between guard and command: ties itself to the guard, and executes the command.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::config::is_flag;
use crate::process::{Cgroup, StopTimes, drop_network_rights, lookup};

/// The subcommand of this process.
pub const SUBCOMMAND: &str = "run-exec";

/// Arguments: the guard's process id, the control group or `-`, the schedule or `-`, whether
/// the rights of the network are dropped, the command and its arguments.
pub fn become_command(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(guard), Some(cgroup)) = (args.next(), args.next()) else { return ExitCode::FAILURE };
    let (Some(until), Some(drops_rights)) = (args.next(), args.next()) else {
        return ExitCode::FAILURE;
    };
    let Some(program) = args.next() else { return ExitCode::FAILURE };
    let tied = set_parent_process_death_signal(Some(Signal::KILL));
    // A guard that already ended sends no signal.
    let parent = getppid().map_or(0, |pid| pid.as_raw_pid());
    if tied.is_err() || guard.to_str() != Some(&parent.to_string()) {
        return ExitCode::FAILURE;
    }
    if cgroup != "-" {
        let _ = Cgroup::at(cgroup.into()).enter(); // otherwise the tree is walked
    }
    let until = until.to_str().and_then(|until| serde_json::from_str(until).ok());
    let Some(until): Option<Option<StopTimes>> = until else { return ExitCode::FAILURE };
    // It is not started. An exit would look like one of the command: the guard, whose clock shows
    // the same, reports the expiry and ends this process.
    while until.is_some_and(|until| until.ask_at <= BootClock.now()) {
        thread::sleep(Duration::from_secs(1));
    }
    if is_flag(&drops_rights)
        && let Err(error) = drop_network_rights()
    {
        eprintln!("incumbent: cannot drop CAP_NET_ADMIN and CAP_NET_RAW for COMMAND: {error}");
        return ExitCode::FAILURE;
    }
    let error = Command::new(&program).args(args).exec();
    eprintln!("incumbent: cannot run {}: {error}", program.display());
    ExitCode::from(lookup::exit_code(&error))
}
