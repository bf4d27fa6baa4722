//! The commands that work on Linux only, on other systems.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use crate::candidate::{CandidateArgs, RunningCandidate};
use crate::error::{CliError, Code};
use crate::lock::LockArgs;

/// Works on Linux only.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct LinuxOnly {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _args: Vec<OsString>,
}

impl LinuxOnly {
    /// The error of `incumbent COMMAND`.
    pub fn refuse(command: &str) -> CliError {
        let message = format!(
            "incumbent {command} works on Linux only, where all processes of a command can be \
             ended: use `incumbent campaign` here, or the library"
        );
        CliError::new(Code::Usage, message)
    }
}

/// Nothing goes with a term.
pub struct FollowedTerms;

impl FollowedTerms {
    pub async fn ended(self) {}
}

/// What goes with a term on Linux.
#[derive(Debug, Args)]
pub struct CampaignTerms {}

impl CampaignTerms {
    pub fn apply(&self, _candidate: &mut CandidateArgs) -> Result<(), CliError> {
        Ok(())
    }

    pub async fn prepare(&mut self, _lease: Duration) -> Result<Option<Duration>, CliError> {
        Ok(None)
    }

    pub fn follow(&mut self, _: &RunningCandidate, _: &LockArgs) -> FollowedTerms {
        FollowedTerms
    }
}
