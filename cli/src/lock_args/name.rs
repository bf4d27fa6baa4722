//! Names of elections, which are keys of a bucket.

use crate::error::{CliError, Code};

/// Whether that can be a key.
pub fn is_key(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-/_=.".contains(&b);
    let dots = text.starts_with('.') || text.ends_with('.') || text.contains("..");
    !text.is_empty() && !dots && text.bytes().all(fits)
}

/// Refuses what cannot be the name of an election.
pub fn check_name(name: &str) -> Result<(), CliError> {
    if is_key(name) {
        return Ok(());
    }
    let message = format!("{name:?} cannot be the name of an election: no blanks, no wildcards");
    Err(CliError::new(Code::Usage, message))
}
