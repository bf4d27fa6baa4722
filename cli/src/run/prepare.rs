//! Preparation of a process that runs a command.

use std::process::ExitCode;

use rustix::process::{DumpableBehavior, getpid, set_child_subreaper, set_dumpable_behavior};

use super::args::Program;
use super::signals::Signals;
use crate::error::CliError;
use crate::process::lookup;

impl Program {
    /// Checks the command, and sets up signals and the adoption of orphans. Returns the exit code
    /// of a missing command.
    pub fn prepare(&self) -> Result<Result<Signals, ExitCode>, CliError> {
        if let Some(program) = self.command.first()
            && let Err(missing) = lookup::check(program)
        {
            eprintln!("incumbent: {}", missing.message);
            return Ok(Err(ExitCode::from(missing.code)));
        }
        let signals = Signals::listen()?;
        // Adopt the descendants of a guard that was killed.
        set_child_subreaper(Some(getpid())).map_err(std::io::Error::from)?;
        // Processes of the same user cannot read the credentials in memory and environment.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        Ok(Ok(signals))
    }
}
