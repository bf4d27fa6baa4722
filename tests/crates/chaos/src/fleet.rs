//! The candidates' processes.

use std::io;
use std::path::PathBuf;

use incumbent_test_support::Process;
use rustix::process::Signal;

use crate::journal::{Event, Writer, now};
use crate::net::{Net, Node};

/// What a fleet is like. It decides which faults the promise covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Ours, with the default cool-down.
    Proven,
    /// Ours, not believing the server's clock.
    Strict,
    /// Ours, so declared, and one that behaves as Choria's do.
    Choria,
}

impl Kind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::Strict => "strict",
            Self::Choria => "choria",
        }
    }
}

/// Which candidate is to be started, and for what.
#[derive(Debug, Clone)]
pub struct Orders {
    /// This very program.
    pub program: PathBuf,
    /// The directory of the run.
    pub directory: PathBuf,
    /// The bucket.
    pub bucket: String,
    /// The election.
    pub election: String,
    /// The lease in milliseconds.
    pub lease: u64,
    /// What fleet it belongs to.
    pub kind: Kind,
}

/// One candidate. Dropping it kills it.
#[derive(Debug)]
pub struct Candidate {
    index: usize,
    ours: bool,
    paused: bool,
    process: Option<Process>,
}

impl Candidate {
    /// One that does not run yet.
    pub fn new(index: usize, ours: bool) -> Self {
        Self { index, ours, paused: false, process: None }
    }

    /// Its name in the log.
    pub fn name(&self) -> String {
        let kind = if self.ours { 'c' } else { 'g' };
        format!("{kind}{}", self.index)
    }

    /// Its place.
    pub fn node(&self) -> Node {
        Node::Candidate(self.index)
    }

    /// Whether it is one of ours.
    pub fn is_ours(&self) -> bool {
        self.ours
    }

    /// Whether it is neither paused nor down.
    pub fn is_up(&self) -> bool {
        self.process.is_some() && !self.paused
    }

    /// Starts it; does nothing while it runs.
    ///
    /// # Errors
    ///
    /// Those of starting it.
    pub fn start(&mut self, net: &Net, orders: &Orders) -> io::Result<()> {
        if self.process.is_some() {
            return Ok(());
        }
        let file = |name: &str| orders.directory.join(name).display().to_string();
        let words = [
            if self.ours { "candidate" } else { "choria-like" }.to_owned(),
            format!("--urls={}", net.urls(self.index).join(",")),
            format!("--bucket={}", orders.bucket),
            format!("--election={}", orders.election),
            format!("--identity={}", self.name()),
            format!("--log={}", file("log")),
            format!("--fenced-store={}", file("fenced-store")),
            format!("--lease={}", orders.lease),
            // Some notice a silent server soon, some only when TCP does.
            format!("--ping={}", if self.index.is_multiple_of(2) { 1000 } else { 0 }),
        ];
        let flag = match orders.kind {
            Kind::Proven => None,
            Kind::Strict => Some("--strict".to_owned()),
            Kind::Choria => Some("--with-choria".to_owned()),
        };
        let arguments: Vec<_> = words.into_iter().chain(flag).collect();
        let output = orders.directory.join(format!("{}.err", self.name()));
        self.process = Some(net.spawn(self.node(), &orders.program, &arguments, &[], &output)?);
        self.paused = false;
        Ok(())
    }

    /// Kills it as the kernel would, and logs that.
    pub fn kill(&mut self, log: &Writer) {
        let Some(mut process) = self.process.take() else { return };
        if process.ended().is_some() {
            return; // not by us: the checker will say so
        }
        let life = process.id();
        drop(process);
        log.write_of(now(), &self.name(), life, Event::Killed);
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

    /// Pauses it.
    pub fn pause(&mut self) {
        if let Some(process) = &self.process {
            process.pause();
            self.paused = true;
        }
    }

    /// Lets it go on.
    pub fn resume(&mut self) {
        if let Some(process) = &self.process {
            process.resume();
            self.paused = false;
        }
    }
}
