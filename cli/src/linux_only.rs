//! The commands that work on Linux only, on other systems.

use std::ffi::OsString;

use clap::Args;

use crate::error::{CliError, Code};

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
