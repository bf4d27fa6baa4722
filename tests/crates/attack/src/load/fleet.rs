//! The candidates' processes.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use incumbent_test_support::Process;
use rustix::process::{Pid, Signal, kill_process};

use crate::faults::net::{Net, Node};
use crate::record::journal::Writer;

/// What a fleet is like. It decides which faults the promise covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Ours, with the default cool-down.
    Proven,
    /// Ours, not believing the server's clock.
    Strict,
    /// Ours, so declared, and one that behaves as Choria's do.
    Choria,
    /// Ours, each under a sentinel.
    Sentinel,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::Strict => "strict",
            Self::Choria => "choria",
            Self::Sentinel => "sentinel",
        }
    }
}

/// Which candidate is to be started, and for what.
#[derive(Debug, Clone)]
pub struct Orders {
    /// This very program.
    pub program: PathBuf,
    /// The command line of this project, which has the sentinel.
    pub incumbent: PathBuf,
    pub directory: PathBuf,
    pub bucket: String,
    pub election: String,
    pub lease: u64,
    /// Whether the candidates of an election are the voters of its quorum.
    pub is_quorum: bool,
    /// Their addresses.
    pub quorum: Vec<Ipv4Addr>,
    /// A member of etcd, if that is the lock.
    pub etcd: Option<String>,
    pub kind: Kind,
}

/// One candidate. Dropping it kills it.
#[derive(Debug)]
pub struct Candidate {
    index: usize,
    /// How many processes it has had.
    life: u32,
    ours: bool,
    paused: bool,
    /// Its process is dead; its sentinel may not have ended yet.
    killed: bool,
    /// Its sentinel, if it has one.
    process: Option<Process>,
    /// Whether `process` is a sentinel.
    guarded: bool,
}

impl Candidate {
    /// One that does not run yet.
    pub fn new(index: usize, ours: bool) -> Self {
        Self { index, life: 0, ours, paused: false, killed: false, process: None, guarded: false }
    }

    pub fn name(&self) -> String {
        let kind = if self.ours { 'c' } else { 'g' };
        format!("{kind}{}", self.index)
    }

    pub fn node(&self) -> Node {
        Node::Candidate(self.index)
    }

    pub fn is_ours(&self) -> bool {
        self.ours
    }

    /// Whether it is neither paused nor down.
    pub fn is_up(&self) -> bool {
        self.process.is_some() && !self.paused && !self.killed
    }

    pub fn is_killed(&self) -> bool {
        self.killed
    }

    pub fn start(&mut self, net: &Net, orders: &Orders) -> io::Result<()> {
        if self.process.is_some() && !self.killed {
            return Ok(());
        }
        let file = |name: &str| orders.directory.join(name).display().to_string();
        let words = [
            if self.ours { "candidate" } else { "choria-like" }.to_owned(),
            format!("--urls={}", net.urls(self.index).join(",")),
            format!("--bucket={}", orders.bucket),
            format!("--election={}", orders.election),
            format!("--identity={}", self.name()),
            format!("--life={}", self.life + 1),
            format!("--journal={}", file("journal")),
            format!("--fenced-store={}", file("fenced-store")),
            format!("--lease={}", orders.lease),
            // Some notice a silent server soon, some only when TCP does.
            format!("--ping={}", if self.index.is_multiple_of(2) { 1000 } else { 0 }),
        ];
        let flag = match orders.kind {
            Kind::Proven | Kind::Sentinel => None,
            Kind::Strict => Some("--strict".to_owned()),
            Kind::Choria => Some("--with-choria".to_owned()),
        };
        let mut arguments: Vec<_> = words.into_iter().chain(flag).collect();
        let is_me = |one: &&Ipv4Addr| net.address(self.node()) == Some(**one);
        let (me, others): (Vec<&Ipv4Addr>, Vec<_>) = orders.quorum.iter().partition(is_me);
        arguments.extend(me.into_iter().chain(others).map(|one| format!("--voter={one}")));
        arguments.extend(orders.etcd.iter().map(|member| format!("--etcd={member}")));
        let output = orders.directory.join(format!("{}.err", self.name()));
        self.guarded = self.ours && orders.kind == Kind::Sentinel;
        let mut program = &orders.program;
        if self.guarded {
            let sentinel = [
                "sentinel".to_owned(),
                "-v".to_owned(),
                format!("--server={}", net.urls(self.index).join(",")),
                format!("--bucket={}", orders.bucket),
                "--".to_owned(),
                orders.program.display().to_string(),
            ];
            arguments.splice(..0, sentinel);
            program = &orders.incumbent;
        }
        self.process = Some(net.spawn(self.node(), program, &arguments, &[], &output)?);
        self.life += 1;
        (self.paused, self.killed) = (false, false);
        Ok(())
    }

    /// The process that campaigns: its own, or that of its sentinel.
    fn candidate_pid(&self) -> Option<Pid> {
        let process = self.process.as_ref()?;
        let pid = i32::try_from(process.id()).ok()?;
        if !self.guarded {
            return Pid::from_raw(pid);
        }
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let children = tasks.flatten().filter_map(|task| {
            let children = fs::read_to_string(task.path().join("children")).ok()?;
            children.split_whitespace().next()?.parse().ok()
        });
        children.into_iter().find_map(Pid::from_raw)
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.candidate_pid() {
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills it as the kernel would, and journals that. Its sentinel ends by itself.
    pub fn kill(&mut self, journal: &Writer) {
        let ended = self.process.as_mut().is_none_or(|process| process.ended().is_some());
        if ended || self.killed || self.candidate_pid().is_none() {
            self.process = None;
            return; // not by us: the judge will say so
        }
        self.killed = true;
        if self.guarded {
            self.signal(Signal::KILL);
        } else {
            self.process = None;
        }
        journal.write_killed(&self.name(), self.life);
    }

    /// Kills its sentinel alone, and then the process itself.
    pub fn kill_with_sentinel(&mut self, journal: &Writer) {
        let Some(pid) = self.candidate_pid() else { return };
        (self.process, self.killed) = (None, true);
        let _ = kill_process(pid, Signal::KILL);
        journal.write_killed(&self.name(), self.life);
    }

    /// Kills it while its sentinel is paused.
    pub fn kill_beside_paused_sentinel(&mut self, journal: &Writer) {
        if let Some(sentinel) = &self.process {
            sentinel.pause();
        }
        self.kill(journal);
    }

    pub fn resume_sentinel(&self) {
        if let Some(sentinel) = &self.process {
            sentinel.resume();
        }
    }

    /// Asks it to end in order.
    pub fn terminate(&self) {
        if let Some(process) = &self.process {
            process.signal(Signal::TERM);
        }
    }

    /// Whether its process has ended: then it can be started again.
    pub fn has_ended(&mut self) -> bool {
        let ended = self.process.as_mut().is_none_or(|process| process.ended().is_some());
        if ended {
            self.process = None;
        }
        ended
    }

    pub fn pause(&mut self) {
        if self.guarded {
            self.signal(Signal::STOP);
        } else if let Some(process) = &self.process {
            process.pause();
        }
        self.paused = self.process.is_some();
    }

    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
        self.paused = false;
    }
}
