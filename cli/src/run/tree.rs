//! All processes below this one, however they came to be there.
//!
//! Both processes that use this are subreapers: what loses its parent becomes their child, so that nothing leaves the
//! tree by forking twice, and the tree is empty exactly when there is no child to wait for.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, pidfd_open,
    pidfd_send_signal, wait,
};

use super::cgroup::Cgroup;

/// How long to give the kernel to end what was killed, before looking for what was forked meanwhile.
const PASS: Duration = Duration::from_millis(2);

/// One process: its number may be used again, together with its start it may not.
struct Process {
    pid: Pid,
    parent: Pid,
    started: u64,
    has_ended: bool,
}

/// What became of children since the last look.
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

/// Kills every descendant, those that are forked meanwhile included, until none is left. Answers how children ended.
pub async fn kill_all(cgroup: Option<&Cgroup>) -> Vec<(Pid, WaitStatus)> {
    let mut ended = Vec::new();
    loop {
        if let Some(cgroup) = cgroup {
            cgroup.kill();
        }
        signal_all(Signal::KILL);
        let mut reaped = reap();
        ended.append(&mut reaped.changed);
        if reaped.none_left {
            return ended;
        }
        tokio::time::sleep(PASS).await;
    }
}

/// Takes note of every child that ended, stopped or went on.
pub fn reap() -> Reaped {
    let mut changed = Vec::new();
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
    loop {
        match wait(options) {
            Ok(Some(child)) => changed.push(child),
            Ok(None) => return Reaped { changed, none_left: false },
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Reaped { changed, none_left: true },
        }
    }
}

fn descendants() -> Vec<Process> {
    let mut children: HashMap<Pid, Vec<Process>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(process) = number.and_then(Pid::from_raw).and_then(look) {
            children.entry(process.parent).or_default().push(process);
        }
    }
    let mut found = children.remove(&getpid()).unwrap_or_default();
    let mut next = 0;
    while let Some(process) = found.get(next) {
        let below = children.remove(&process.pid);
        found.extend(below.into_iter().flatten());
        next += 1;
    }
    found
}

/// Whether it has not ended yet, be it that nobody has waited for it.
pub fn is_alive(pid: Pid) -> bool {
    look(pid).is_some_and(|process| !process.has_ended)
}

/// A process, from its `stat`: the fields after its name, which is in parentheses and may hold anything.
fn look(pid: Pid) -> Option<Process> {
    let stat = fs::read(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok().and_then(Pid::from_raw)?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(Process { pid, parent, started, has_ended })
}

/// Signals this very process, and not one that got its number meanwhile.
fn send(process: &Process, signal: Signal) {
    match pidfd_open(process.pid, PidfdFlags::empty()) {
        Ok(pidfd) => {
            if look(process.pid).is_some_and(|now| now.started == process.started) {
                let _ = pidfd_send_signal(pidfd, signal); // an error means that it has ended
            }
        }
        Err(rustix::io::Errno::NOSYS) => {
            let _ = kill_process(process.pid, signal);
        }
        Err(_) => {}
    }
}
