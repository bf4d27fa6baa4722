//! What must hold before a command's election is taken part in.

use std::process::ExitCode;

use rustix::process::{DumpableBehavior, getpid, set_child_subreaper, set_dumpable_behavior};

use super::args::Program;
use super::lookup;
use super::signals::Signals;
use crate::error::CliError;

impl Program {
    /// What must be so before its office is stood for: it can be run, and signals and orphans come to us. Else the exit code.
    pub fn prepare(&self) -> Result<Result<Signals, ExitCode>, CliError> {
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
