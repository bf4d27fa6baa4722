//! The parent of a tree: `run-reaper` in a list of processes.
//!
//! It starts one program, and ends when nothing is left of it: a guard that was killed leaves its
//! tree to its reaper. A program of its own, it has no other children: what it finds, it may kill,
//! and when it finds none, the tree has ended.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, stdin};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use incumbent::clock::{BootClock, Clock};
use rustix::net::{SendFlags, send};
use rustix::process::{
    Pid, Signal, WaitStatus, kill_process, kill_process_group, set_parent_process_death_signal,
};
use rustix::stdio::{dup2_stderr, dup2_stdout};

use super::cgroup::Cgroup;
use super::hide_credentials;
use super::terminal::Terminal;
use super::tree::{self, Tree};
use crate::output;
use crate::process::signals::SignalStreams;

/// This program, even if its file was replaced or removed since.
pub const OURSELVES: &str = "/proc/self/exe";
/// The subcommand of this process.
pub const SUBCOMMAND: &str = "run-reaper";

/// Has the reaper move the terminal to the program, and continue it.
pub const RESUME: Signal = Signal::USR1;
/// Has the reaper kill all of the tree now.
pub const KILL_TREE: Signal = Signal::USR2;

/// What the reaper writes to its standard input, if that is a socket: nothing of the tree is left.
pub const EMPTY: &str = "\"empty\"";
/// How long processes may take to end before they are reported.
pub const REPORT_AFTER: Duration = Duration::from_secs(1);

/// A reaper, to which the program and its arguments are to be added. The program gets a process
/// group of its own; the reaper has that of this process.
pub fn command(terminal: bool, cgroup: Option<&Path>) -> Command {
    let mut reaper = Command::new(OURSELVES);
    reaper.arg0("incumbent").arg(SUBCOMMAND).arg(if terminal { "terminal" } else { "-" });
    reaper.arg(cgroup.map_or("-".as_ref(), Path::as_os_str));
    reaper
}

/// Checks that a process of this program finds and may signal a child, as the end of a tree needs.
pub fn check() -> io::Result<()> {
    // A signal that was ignored at the start has its children vanish unseen.
    let _handler = SignalStreams::listen(&[Signal::CHILD])?;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let needed = [(Signal::CHILD, "SIGCHLD"), (RESUME, "SIGUSR1"), (KILL_TREE, "SIGUSR2")];
    if let Some((_, name)) =
        needed.into_iter().find(|(needed, _)| is_in(&status, "SigBlk:", *needed))
    {
        let why = format!("{name} is blocked; start incumbent without blocked signals");
        return Err(io::Error::other(why));
    }
    let tree = Tree::open()?;
    // Without arguments it ends at once.
    let mut child = Command::new(OURSELVES);
    child.arg0("incumbent").arg(SUBCOMMAND).stdin(Stdio::null());
    let mut child = child.spawn()?;
    let pid = Pid::from_child(&child);
    let is_listed = tree.children().contains(&pid);
    let signalled = kill_process(pid, Signal::KILL);
    child.wait()?;
    match (signalled, is_listed) {
        (Err(why), _) => {
            Err(io::Error::other(format!("it may not kill a child: {why}; allow this user kill")))
        }
        (Ok(()), false) => {
            let why = "/proc does not list its children; mount a /proc of this PID namespace";
            Err(io::Error::other(why))
        }
        (Ok(()), true) => Ok(()),
    }
}

/// Arguments: `terminal` or `-`, the control group or `-`, the program and its arguments.
pub fn run(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    hide_credentials(); // it has the environment of the guard
    let (Some(terminal), Some(cgroup)) = (args.next(), args.next()) else {
        return ExitCode::FAILURE;
    };
    let Some(program) = args.next() else { return ExitCode::FAILURE };
    let mut command = Command::new(&program);
    let is_guard = program == OURSELVES;
    if is_guard {
        command.arg0("incumbent");
    }
    // When its parent dies: a stopped guard does not notice that, and a check never does.
    let _ = set_parent_process_death_signal(Some(if is_guard { RESUME } else { KILL_TREE }));
    command.args(args).process_group(0);
    let cgroup = (cgroup != "-").then(|| Cgroup::at(cgroup.into()));
    let terminal = (terminal != "-").then(Terminal::of_group).flatten();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(reap(command, cgroup, terminal))) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            report(EMPTY); // it has not been started
            output::note(format!("incumbent: cannot run {}: {error}", program.display()));
            ExitCode::FAILURE
        }
    }
}

/// Runs the program, and then kills what it leaves. Returns its exit code, or why it was not
/// started.
async fn reap(
    mut command: Command,
    cgroup: Option<Cgroup>,
    terminal: Option<Terminal>,
) -> io::Result<u8> {
    let (mut tree, mut signals) = (Tree::adopt()?, take_signals()?);
    let program = Pid::from_child(&command.spawn()?);
    release_output();
    let lend = || terminal.as_ref().map(|terminal| terminal.lend(program));
    lend();
    let mut code = None;
    let mut note = |changed: &[(Pid, WaitStatus)]| {
        let ended = changed.iter().filter(|(pid, _)| *pid == program);
        code = code.or(ended.filter_map(|(_, status)| tree::exit_code(*status)).next());
        code
    };
    let mut kills = false;
    loop {
        let reaped = tree::reap();
        let has_ended = note(&reaped.changed).is_some();
        if reaped.none_left {
            break;
        }
        if kills || has_ended {
            let killed = tree.kill_all(cgroup.as_ref(), BootClock.now() + REPORT_AFTER).await;
            note(&killed.changed);
            match killed.left() {
                None => break,
                Some(left) => report(&self::left(&left)),
            }
            continue;
        }
        match signals.next().await {
            KILL_TREE => kills = true,
            RESUME => {
                lend();
                let _ = kill_process_group(program, Signal::CONT); // not waited for yet
            }
            _ => {} // a child
        }
    }
    report(EMPTY);
    drop(cgroup); // which may take a second
    Ok(note(&[]).unwrap_or(1))
}

/// Closes the output, which the program has: who reads it does not wait for this process, which
/// stays for as long as a process of the tree cannot be killed.
fn release_output() {
    if let Ok(nothing) = File::options().write(true).open("/dev/null") {
        let _ = dup2_stdout(&nothing);
        let _ = dup2_stderr(&nothing);
    }
}

/// What it writes about processes that it killed, and that have not ended.
pub fn left(processes: &str) -> String {
    serde_json::json!({ "left": processes }).to_string()
}

/// Needs no descriptor, as they may be short. An error: the reader has ended, or there is none.
fn report(line: &str) {
    let line = format!("{line}\n");
    let _ = send(stdin(), line.as_bytes(), SendFlags::NOSIGNAL);
}

/// Survives what a terminal, or a service manager, sends to all processes of a group.
fn take_signals() -> io::Result<SignalStreams> {
    let survived = [Signal::INT, Signal::QUIT, Signal::HUP, Signal::TERM, Signal::TSTP];
    drop(SignalStreams::default().and_unless_ignored(&survived)?);
    SignalStreams::listen(&[Signal::CHILD, RESUME, KILL_TREE])
}

/// Whether the signal is in the set of this field of a `status` file.
pub fn is_in(status: &str, field: &str, signal: Signal) -> bool {
    let set = status.lines().find_map(|line| line.strip_prefix(field));
    let set = set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    set >> (signal.as_raw() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_signals_are_read() {
        let status = "Name:\tx\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000000a00\n";
        assert!(is_in(status, "SigIgn:", Signal::HUP));
        assert!(is_in(status, "SigCgt:", Signal::USR1) && is_in(status, "SigCgt:", Signal::USR2));
        assert!(!is_in(status, "SigCgt:", Signal::TERM) && !is_in("", "SigIgn:", Signal::HUP));
    }
}
