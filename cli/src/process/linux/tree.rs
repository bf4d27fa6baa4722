//! All descendants of this process, which is a subreaper: orphans become its children.
//!
//! So no process leaves the tree by forking twice, and none is left if and only if there is no
//! child to wait for. Only that proves the end. What `/proc` shows is but a means: it may hide
//! processes, and it is read while they change.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::time::Duration;

use incumbent::clock::{BootClock, Clock, Instant};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, pidfd_send_signal,
    set_child_subreaper, test_kill_process, wait,
};

use super::cgroup::Cgroup;
use crate::output::text::printable;

/// The pause after a kill, before the next one of processes forked or orphaned meanwhile.
const PASS: Duration = Duration::from_millis(2);
/// The pause once processes take long to end: they are not about to fork.
const LATER_PASS: Duration = Duration::from_millis(50);
const A_WHILE: Duration = Duration::from_secs(1);

/// The descendants of this process.
pub struct Tree {
    /// The kernel's list of children of this thread, which is open before descriptors are short.
    /// This process can read it wherever `/proc` hides other processes.
    children: File,
    killing_since: Option<Instant>,
}

/// The result of killing the tree.
pub struct Killed {
    /// The status changes of children.
    pub changed: Vec<(Pid, WaitStatus)>,
    left: Option<String>,
}

impl Killed {
    /// The processes left although they were killed, with the reason; `None` if there are none.
    pub fn left(self) -> Option<String> {
        self.left
    }
}

/// Status changes of children since the last call.
pub struct Reaped {
    pub changed: Vec<(Pid, WaitStatus)>,
    /// There is no child, and so no descendant.
    pub none_left: bool,
}

impl Tree {
    /// Adopts orphans from now on. Must be called on the main thread, which starts all children:
    /// orphans become its children, too.
    pub fn adopt() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        Self::open()
    }

    pub(super) fn open() -> io::Result<Self> {
        const CHILDREN: &str = "/proc/thread-self/children";
        let open = File::open(CHILDREN);
        let children = open.map_err(|why| io::Error::new(why.kind(), format!("{CHILDREN}: {why}")));
        Ok(Self { children: children?, killing_since: None })
    }

    /// The children. One may be missing that has just been added.
    pub fn children(&self) -> Vec<Pid> {
        let mut file = &self.children;
        let mut text = String::new();
        let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
        read.map(|_| pids(&text)).unwrap_or_default()
    }

    /// Sends a signal to every descendant. It reaches those below a child that are visible.
    pub fn signal_all(&self, signal: Signal) {
        let children = self.children();
        let below: Vec<_> = children.iter().flat_map(|child| below(*child)).collect();
        for child in children {
            let _ = kill_process(child, signal); // not waited for yet: the id is its own
        }
        for (parent, pid) in below {
            if let Some(process) = Process::open(pid)
                && [Some(parent), Some(getpid())].contains(&process.parent)
            {
                process.send(signal);
            }
        }
    }

    /// Kills every descendant, including those forked meanwhile, until none is left or `give_up`
    /// has passed.
    pub async fn kill_all(&mut self, cgroup: Option<&Cgroup>, give_up: Instant) -> Killed {
        let mut changed = Vec::new();
        let since = *self.killing_since.get_or_insert_with(|| BootClock.now());
        loop {
            // The orphans of a child are children when it has been waited for.
            self.signal_all(Signal::KILL);
            // After the signals, and not waited for: it may be late.
            cgroup.map(Cgroup::kill);
            let mut reaped = reap();
            changed.append(&mut reaped.changed);
            if reaped.none_left {
                return Killed { changed, left: None };
            }
            let now = BootClock.now();
            if give_up <= now {
                return Killed { changed, left: Some(self.describe()) };
            }
            let pass = if now < since + A_WHILE { PASS } else { LATER_PASS };
            tokio::time::sleep(pass).await;
        }
    }

    /// Which processes are left although they were killed, and why.
    fn describe(&self) -> String {
        const SHOWN: usize = 3;
        let children = self.children();
        let mut shown: Vec<_> = children.iter().take(SHOWN).map(|child| describe(*child)).collect();
        match children.len() {
            0 => shown.push("a process was killed, and has not ended".to_owned()),
            all @ ..=SHOWN => debug_assert_eq!(shown.len(), all),
            all => shown.push(format!("and {} more", all - SHOWN)),
        }
        shown.join(", ")
    }
}

/// Collects every child that ended, stopped or continued.
pub fn reap() -> Reaped {
    let mut changed = Vec::new();
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
    loop {
        match wait(options) {
            Ok(Some(child)) => changed.push(child),
            Ok(None) => return Reaped { changed, none_left: false },
            Err(Errno::CHILD) => return Reaped { changed, none_left: true },
            Err(_) => {} // interrupted
        }
    }
}

/// The exit code, as a shell reports it; `None` for a child that stopped or continued.
pub fn exit_code(status: WaitStatus) -> Option<u8> {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|n| 128 + n))?;
    Some(u8::try_from(code).unwrap_or(u8::MAX))
}

/// Whether the process is visible, and below this one.
pub fn is_descendant(pid: Pid) -> bool {
    let parent = |pid: &Pid| Process::open(*pid)?.parent;
    std::iter::successors(parent(&pid), parent).any(|ancestor| ancestor == getpid())
}

/// The process group of this process; `None` if it is that of another PID namespace.
pub fn own_group() -> Option<Pid> {
    Process::open(getpid())?.group
}

/// The visible processes below this one, each with its parent.
fn below(root: Pid) -> Vec<(Pid, Pid)> {
    let mut found = vec![];
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        let threads = fs::read_dir(format!("/proc/{}/task", parent.as_raw_pid()));
        for thread in threads.into_iter().flatten().flatten() {
            let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            let children = pids(&text);
            found.extend(children.iter().map(|child| (parent, *child)));
            parents.extend(children);
        }
    }
    found
}

fn pids(text: &str) -> Vec<Pid> {
    text.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Why a child is left although it was killed.
fn describe(child: Pid) -> String {
    let process = Process::open(child);
    let why = match process.as_ref().map(|process| &*process.state) {
        _ if test_kill_process(child) == Err(Errno::PERM) => {
            "runs as another user and cannot be signalled"
        }
        Some("D") => "was killed, and is in uninterruptible sleep",
        _ => "was killed, and has not ended",
    };
    let name = process.map(|process| format!(" ({})", printable(&process.name)));
    format!("process {}{} {why}", child.as_raw_pid(), name.unwrap_or_default())
}

/// A process that was visible when it was opened.
struct Process {
    /// Its directory in `/proc`, which does not become that of a later process with its id.
    directory: File,
    pid: Pid,
    parent: Option<Pid>,
    group: Option<Pid>,
    state: String,
    name: String,
}

impl Process {
    /// Reads its `stat`: the fields follow its name, which is in parentheses and may contain any
    /// character.
    fn open(pid: Pid) -> Option<Self> {
        let directory = File::open(format!("/proc/{}", pid.as_raw_pid())).ok()?;
        let stat = openat(&directory, "stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let mut text = Vec::new();
        File::from(stat.ok()?).read_to_end(&mut text).ok()?;
        let name_begin = text.iter().position(|byte| *byte == b'(')? + 1;
        let name_end = text.iter().rposition(|byte| *byte == b')')?;
        let name = String::from_utf8_lossy(text.get(name_begin..name_end)?).into_owned();
        let fields = std::str::from_utf8(text.get(name_end + 1..)?).ok()?;
        let mut fields = fields.split_ascii_whitespace();
        let state = fields.next()?.to_owned();
        let mut id = || Pid::from_raw(fields.next()?.parse().ok()?);
        let (parent, group) = (id(), id());
        Some(Self { directory, pid, parent, group, state, name })
    }

    fn send(&self, signal: Signal) {
        match pidfd_send_signal(&self.directory, signal) {
            Ok(()) | Err(Errno::SRCH) => {} // it may have ended
            // Where the directory cannot be used, the id is most likely still that of the process.
            Err(_) => drop(kill_process(self.pid, signal)), // it may be another user's
        }
    }
}
