//! All descendants of this process.
//!
//! Both processes that use this are subreapers: orphans become their children. So no process leaves
//! the tree by forking twice, and the tree is empty if and only if there is no child to wait for.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, pidfd_open,
    pidfd_send_signal, test_kill_process, wait,
};

use super::cgroup::Cgroup;
use crate::text::printable;

/// The pause after a kill, before the next search for forked processes.
pub(super) const PASS: Duration = Duration::from_millis(2);
/// The same for processes that take long to end: they are not about to fork.
const LATER_PASS: Duration = Duration::from_millis(50);
const A_WHILE: Duration = Duration::from_secs(1);

/// A process. Its id may be reused; the id with its start time is unique.
pub struct Process {
    pub pid: Pid,
    pub(super) parent: Pid,
    group: Option<Pid>,
    pub started: u64,
    state: String,
    name: String,
}

impl Process {
    fn has_ended(&self) -> bool {
        matches!(&*self.state, "Z" | "X")
    }

    /// Whether the process changed its user, so that this process may not signal it.
    fn may_not_be_signalled(&self) -> bool {
        test_kill_process(self.pid) == Err(Errno::PERM)
    }

    /// Why the process is left although it was killed.
    fn describe(&self) -> String {
        let why = match &*self.state {
            _ if self.may_not_be_signalled() => "runs as another user and cannot be signalled",
            "D" => "was killed, and is in uninterruptible sleep",
            _ => "was killed, and has not ended",
        };
        format!("process {} ({}) {why}", self.pid.as_raw_pid(), printable(&self.name))
    }
}

/// The result of killing the tree.
pub struct Killed {
    /// The status changes of children.
    pub changed: Vec<(Pid, WaitStatus)>,
    pub(super) left: Vec<Process>,
}

impl Killed {
    /// The processes left although they were killed, with the reason; `None` if there are none.
    pub fn left(&self) -> Option<String> {
        self.left_outside(None)
    }

    /// The same without those of this process group.
    pub fn left_outside(&self, group: Option<Pid>) -> Option<String> {
        const SHOWN: usize = 3;
        let is_outside = |process: &&Process| group.is_none() || process.group != group;
        let left: Vec<_> = self.left.iter().filter(is_outside).collect();
        let mut shown: Vec<_> = left.iter().take(SHOWN).map(|one| one.describe()).collect();
        if left.len() > SHOWN {
            shown.push(format!("and {} more", left.len() - SHOWN));
        }
        (!shown.is_empty()).then(|| shown.join(", "))
    }
}

/// Status changes of children since the last call.
pub struct Reaped {
    pub changed: Vec<(Pid, WaitStatus)>,
    /// There is no child, and so no descendant.
    pub none_left: bool,
}

/// Sends a signal to every descendant.
pub fn signal_all(signal: Signal) {
    for process in descendants() {
        send(&process, signal);
    }
}

/// Sends a signal to a child and every descendant of it.
pub fn signal_below(child: Pid, signal: Signal) {
    // Another process may have the id of a child that was collected.
    let Some(root) = read(child).filter(|process| process.parent == getpid()) else { return };
    for process in [root].into_iter().chain(below(child)) {
        send(&process, signal);
    }
}

/// Kills every descendant, including those forked meanwhile, until none is left or `give_up` has
/// passed.
pub async fn kill_all(cgroup: Option<&Cgroup>, give_up: Instant) -> Killed {
    let mut changed = Vec::new();
    let later = BootClock.now() + A_WHILE;
    loop {
        if let Some(cgroup) = cgroup {
            cgroup.kill();
        }
        signal_all(Signal::KILL);
        let mut reaped = reap();
        changed.append(&mut reaped.changed);
        if reaped.none_left {
            return Killed { changed, left: Vec::new() };
        }
        let now = BootClock.now();
        if give_up <= now {
            let left = descendants();
            if !left.is_empty() {
                return Killed { changed, left };
            }
        }
        tokio::time::sleep(if now < later { PASS } else { LATER_PASS }).await;
    }
}

/// The first descendant that neither a signal nor the kill of the group reaches.
pub fn foreign(cgroup: Option<&Cgroup>) -> Option<Process> {
    let is_reached = |process: &Process| cgroup.is_some_and(|group| group.holds(process.pid));
    descendants().into_iter().find(|process| {
        !process.has_ended() && process.may_not_be_signalled() && !is_reached(process)
    })
}

/// Collects every child that ended, stopped or continued.
pub fn reap() -> Reaped {
    let mut changed = Vec::new();
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
    loop {
        match wait(options) {
            Ok(Some(child)) => changed.push(child),
            Ok(None) => return Reaped { changed, none_left: false },
            Err(Errno::INTR) => {}
            Err(_) => return Reaped { changed, none_left: true },
        }
    }
}

fn descendants() -> Vec<Process> {
    below(getpid())
}

/// The descendants of a process.
pub(super) fn below(root: Pid) -> Vec<Process> {
    let mut children: HashMap<Pid, Vec<Process>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(process) = number.and_then(Pid::from_raw).and_then(read) {
            children.entry(process.parent).or_default().push(process);
        }
    }
    let mut found = children.remove(&root).unwrap_or_default();
    let mut next = 0;
    while let Some(process) = found.get(next) {
        let below = children.remove(&process.pid);
        found.extend(below.into_iter().flatten());
        next += 1;
    }
    found
}

/// The exit code, as a shell reports it; `None` for a child that stopped or continued.
pub fn exit_code(status: WaitStatus) -> Option<u8> {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|n| 128 + n))?;
    Some(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Whether the process is below this one.
pub fn is_descendant(pid: Pid) -> bool {
    descendants().iter().any(|process| process.pid == pid)
}

/// Whether the process has not ended. A zombie has.
pub fn is_alive(pid: Pid) -> bool {
    read(pid).is_some_and(|process| !process.has_ended())
}

/// Reads a process from its `stat`: the fields follow its name, which is in parentheses and may
/// contain any character.
fn read(pid: Pid) -> Option<Process> {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    let name_begin = stat.iter().position(|byte| *byte == b'(')? + 1;
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let name = String::from_utf8_lossy(stat.get(name_begin..name_end)?).into_owned();
    let fields = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?.to_owned();
    let parent = fields.next()?.parse().ok().and_then(Pid::from_raw)?;
    let group = fields.next()?.parse().ok().and_then(Pid::from_raw);
    let started = fields.nth(16)?.parse().ok()?;
    Some(Process { pid, parent, group, started, state, name })
}

/// Signals this process, and not a later one with the same id.
pub(super) fn send(process: &Process, signal: Signal) {
    match pidfd_open(process.pid, PidfdFlags::empty()) {
        Ok(pidfd) => {
            if read(process.pid).is_some_and(|now| now.started == process.started) {
                let _ = pidfd_send_signal(pidfd, signal); // see `foreign` for a denied one
            }
        }
        Err(Errno::NOSYS) => {
            let _ = kill_process(process.pid, signal);
        }
        Err(_) => {}
    }
}
