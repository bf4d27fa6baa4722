//! Errors of a command that its guard cannot supervise.

use crate::error::{CliError, Code};

pub fn foreign() -> CliError {
    CliError::new(
        Code::Failed,
        "COMMAND was stopped: it started a process of another user, which cannot be signalled; \
         run incumbent as root, or COMMAND without sudo and the like",
    )
}

pub fn unguarded() -> CliError {
    CliError::new(Code::Failed, "the guard process (run-guard) was killed, and the command with it")
}
