//! `incumbent run`: a command that runs while this process leads.
//!
//! Three processes stand behind it. The campaigner (`term`, `keep`) holds the office. The guard (`guard`) is the parent
//! of the command, and ends its whole tree in time even if the campaigner cannot. The command becomes itself in `exec`,
//! tied to the guard. `life` is another campaigner, for `incumbent life`. `ward` is the campaigner's side of the guard, `words` is what the two say to each other.

mod cgroup;
mod channel;
mod deadline;
mod exec;
mod grace;
mod guard;
mod keep;
mod life;
mod lookup;
mod options;
mod pulse;
mod signals;
mod term;
mod terminal;
mod tree;
mod uptime;
mod ward;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use incumbent::clock::{self, BootClock, Instant};
use rustix::process::{DumpableBehavior, getpid, set_child_subreaper, set_dumpable_behavior};

use self::deadline::DeadlineFile;
use self::grace::Grace;
use self::life::ForLife;
pub use self::life::Life;
pub use self::options::Run;
use self::options::{OnExit, Program};
use self::pulse::Pulse;
use self::signals::{Signals, exit_code};
use self::term::Campaigner;
use crate::failure::{Code, Failure};
use crate::place::{At, Locks};

/// This program, even when its file has been replaced or removed since it started.
const OURSELVES: &str = "/proc/self/exe";

/// Waits until then. Cancel safe.
async fn sleep_until(instant: Instant) {
    clock::sleep_until(BootClock, instant).await;
}

/// The guard looks at its tree at least this often, whatever it is told of.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// For tests: what is reckoned from a lease and a grace, whatever they are.
#[cfg(test)]
pub fn reckon(lease: Duration, asked: Duration) {
    if let Ok(grace) = Grace::new(lease, Some(asked)) {
        let deadline = incumbent::clock::Instant::from_origin(asked);
        let _ = (grace.total(), grace.until(deadline), grace.kill_at(deadline));
    }
}

/// Does what the program was started for by itself, if it was.
pub fn inner(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match args.nth(1)?.to_str()? {
        guard::WORD => Some(guard::watch(args)),
        exec::WORD => Some(exec::become_command(args)),
        _ => None,
    }
}

impl Program {
    /// What must be so before its office is stood for: it can be run, and signals and orphans come to us. Else the exit code.
    fn prepare(&self) -> Result<Result<Signals, ExitCode>, Failure> {
        if let Some(program) = self.command.first()
            && let Err(missing) = lookup::check(program)
        {
            eprintln!("incumbent: {}", missing.message);
            return Ok(Err(ExitCode::from(missing.code)));
        }
        let signals = Signals::listen()?;
        // What leaves the tree of a guard that was killed comes to us.
        set_child_subreaper(Some(getpid())).map_err(std::io::Error::from)?;
        // A command of the same user cannot read our memory and environment, which prove to the lock who we are.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        Ok(Ok(signals))
    }
}

impl Run {
    pub async fn run(self) -> Result<ExitCode, Failure> {
        let mut signals = match self.program.prepare()? {
            Ok(signals) => signals,
            Err(code) => return Ok(code),
        };
        if let At::ForLife(locks) = self.place.at().await? {
            return self.for_life(locks)?.run(&mut signals).await;
        }
        let entrance = match self.candidacy.open(&self.place, signals.end()).await? {
            Ok(entrance) => entrance,
            Err(signal) => return Ok(ExitCode::from(exit_code(signal))),
        };
        let grace = Grace::new(entrance.lease(), self.grace)?;
        let file = DeadlineFile::make()?;
        uptime::check();
        let (candidate, _) = self.candidacy.stand(entrance, Some(grace.total()))?;
        let pulse = Pulse::start(candidate.election.clone());
        let campaigner = Campaigner { candidate, signals, file, grace, pulse, options: self };
        campaigner.run().await.map(ExitCode::from)
    }

    /// The same for a leader for life, whose flags are fewer.
    fn for_life(self, locks: Locks) -> Result<ForLife, Failure> {
        let flags = [("--keep", self.keep), ("--on-exit", self.on_exit != OnExit::Resign)];
        let flag = flags.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag);
        if let Some(flag) = flag.or_else(|| self.candidacy.given()) {
            let message = format!("{flag} says nothing with --kind for-life");
            return Err(Failure::new(Code::Usage, message));
        }
        Ok(ForLife {
            pod: self.candidacy.identity().map(str::to_owned),
            name: self.candidacy.name,
            program: self.program,
            grace: self.grace.unwrap_or(ForLife::GRACE),
            cluster: locks.cluster,
            carrier: locks.kind,
            poll: ForLife::POLL,
        })
    }
}
