//! Preparation of a process that runs a command.

use std::process::ExitCode;

use super::args::Program;
use super::signals::Signals;
use crate::error::{CliError, Code};
use crate::process::{hide_credentials, lookup, reaper};

impl Program {
    /// Checks the command, and whether it could be stopped, and sets up signals. Returns the exit
    /// code of a missing command.
    pub fn prepare(&self) -> Result<Result<Signals, ExitCode>, CliError> {
        if let Some(program) = self.command.first()
            && let Err(missing) = lookup::check(program)
        {
            eprintln!("incumbent: {}", missing.message);
            return Ok(Err(ExitCode::from(missing.code)));
        }
        let signals = Signals::listen()?;
        prepare_children("COMMAND")?;
        Ok(Ok(signals))
    }
}

/// Checks that `what` could be stopped, and hides the credentials of the lock from it.
pub fn prepare_children(what: &str) -> Result<(), CliError> {
    reaper::check().map_err(|why| {
        CliError::new(Code::Failed, format!("{what} could not be stopped here: {why}"))
    })?;
    hide_credentials();
    Ok(())
}
