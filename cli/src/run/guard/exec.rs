//! The process between guard and command: ties itself to the guard, and executes the command.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock};
use rustix::io::Errno;
use rustix::process::{Signal, geteuid, getppid, getuid, set_parent_process_death_signal};
use rustix::thread::{
    CapabilitySet, capabilities, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

use super::config::is_flag;
use super::messages::receive_fd;
use crate::output;
use crate::process::{Cgroup, StopTimes, lookup};

/// The subcommand of this process.
pub const SUBCOMMAND: &str = "run-exec";

/// Arguments: the guard's process id, the control group or `-`, the schedule or `-`, whether the
/// capabilities of the network are dropped, the command and its arguments. Standard input is a
/// socket: it passes the one of the command, and then each later schedule in a line.
pub fn become_command(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(guard), Some(cgroup)) = (args.next(), args.next()) else { return ExitCode::FAILURE };
    let (Some(until), Some(drops_capabilities)) = (args.next(), args.next()) else {
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
        let _ = Cgroup::enter(cgroup.as_ref()); // otherwise the tree is walked
    }
    let until = until.to_str().and_then(|until| serde_json::from_str(until).ok());
    let Some(mut until): Option<Option<StopTimes>> = until else { return ExitCode::FAILURE };
    let (guard, input) = match from_guard() {
        Ok(received) => received,
        Err(error) => {
            output::note(format!("incumbent: cannot start COMMAND: {error}"));
            return ExitCode::FAILURE;
        }
    };
    // It is not started. An exit would look like one of the command: the guard, whose clock shows
    // the same, reports the expiry and ends this process. Or the term was renewed meanwhile.
    let mut schedules = BufReader::new(guard).lines();
    while until.is_some_and(|until| until.ask_at <= BootClock.now()) {
        match schedules.next() {
            Some(Ok(later)) => until = serde_json::from_str(&later).unwrap_or(until),
            _ => thread::sleep(Duration::from_secs(1)), // the guard ends
        }
    }
    drop(schedules);
    if is_flag(&drops_capabilities)
        && let Err(error) = drop_network_capabilities()
    {
        output::note(format!(
            "incumbent: cannot drop CAP_NET_ADMIN and CAP_NET_RAW for COMMAND: {error}"
        ));
        return ExitCode::FAILURE;
    }
    let error = Command::new(&program).args(args).stdin(input).exec();
    output::note(format!("incumbent: cannot run {}: {error}", program.display()));
    ExitCode::from(lookup::exit_code(&error))
}

/// The socket of the guard, and the standard input of the command.
fn from_guard() -> io::Result<(UnixStream, OwnedFd)> {
    let guard = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let input = receive_fd(&guard)?;
    Ok((guard, input))
}

/// What it takes to add an address and to announce it.
const OF_ADDRESSES: [CapabilitySet; 2] = [CapabilitySet::NET_ADMIN, CapabilitySet::NET_RAW];

/// Drops `CAP_NET_ADMIN` and `CAP_NET_RAW` for this process and what it executes. It must have one
/// thread only.
///
/// A process that is not root may still execute programs that have them, or are root, by their
/// files, as `sudo`: only `CAP_SETPCAP` allows to forbid that.
fn drop_network_capabilities() -> io::Result<()> {
    let mut are_bounded = true;
    for capability in OF_ADDRESSES {
        configure_capability_in_ambient_set(capability, false)?;
        match remove_capability_from_bounding_set(capability) {
            Err(Errno::PERM) => are_bounded = false,
            removed => removed?,
        }
    }
    let mut sets = capabilities(None)?;
    for capability in OF_ADDRESSES {
        sets.effective.remove(capability);
        sets.permitted.remove(capability);
        sets.inheritable.remove(capability);
    }
    set_capabilities(None, sets)?;
    // A program that root executes gets all that is in the bounding set, but for this.
    if !are_bounded && (getuid().is_root() || geteuid().is_root()) {
        set_no_new_privs(true)?;
    }
    Ok(())
}
