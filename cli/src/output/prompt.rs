//! Confirmation of destructive commands.

use std::io::{self, Write};

use crate::error::{CliError, Code};
use crate::output;

/// Asks for confirmation on a terminal; fails elsewhere, and names `--force`.
///
/// Any answer but yes is an error.
pub fn confirm(question: &str, force: bool) -> Result<(), CliError> {
    if force {
        return Ok(());
    }
    if !output::is_interactive() {
        let question = anstream::adapter::strip_str(question);
        let message = format!("{question}: cannot ask without a terminal; use --force");
        return Err(CliError::new(Code::Failed, message));
    }
    let mut out = anstream::stderr();
    write!(out, "{question}? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(CliError::new(Code::Failed, "aborted")),
    }
}
