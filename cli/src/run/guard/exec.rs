//! The step between the guard and the command: ties the one to the other, and becomes the command.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use incumbent::clock::{BootClock, Clock};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::cgroup::Cgroup;
use super::messages::StopTimes;

/// How the guard asks for this step.
pub const SUBCOMMAND: &str = "run-exec";
/// Exit codes as of a shell.
pub const NOT_FOUND: u8 = 127;
pub const NOT_EXECUTABLE: u8 = 126;

/// The arguments: the guard's number, the control group to enter or `-`, until when the command may run or `-`, the
/// command and its own.
pub fn become_command(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(guard), Some(cgroup)) = (args.next(), args.next()) else { return ExitCode::FAILURE };
    let (Some(until), Some(program)) = (args.next(), args.next()) else { return ExitCode::FAILURE };
    let tied = set_parent_process_death_signal(Some(Signal::KILL));
    // A guard that ended before it could be tied to sends no signal.
    let parent = getppid().map_or(0, |pid| pid.as_raw_pid());
    if tied.is_err() || guard.to_str() != Some(&parent.to_string()) {
        return ExitCode::FAILURE;
    }
    if cgroup != "-" {
        let _ = Cgroup::at(cgroup.into()).enter(); // without it the tree is walked
    }
    let until: Option<StopTimes> = until.to_str().and_then(|until| until.parse().ok());
    if until.is_some_and(|until| until.ask_at <= BootClock.now()) {
        return ExitCode::FAILURE; // it was stopped on its way here
    }
    let error = Command::new(&program).args(args).exec();
    eprintln!("incumbent: cannot run {}: {error}", program.display());
    ExitCode::from(match error.kind() {
        ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    })
}
