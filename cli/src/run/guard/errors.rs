//! Why a command is stopped that its guard cannot watch over.

use crate::error::{CliError, Code};

pub fn foreign() -> CliError {
    CliError::new(
        Code::Failed,
        "COMMAND was stopped, for it started a process that runs as another user, which nothing here may stop: \
         run incumbent as root, or COMMAND without sudo and the like",
    )
}

pub fn unguarded() -> CliError {
    CliError::new(
        Code::Failed,
        "the process that guards the command (run-guard) was killed, and the command with it",
    )
}
