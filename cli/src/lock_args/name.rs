//! Names of elections. With NATS they are keys of the bucket, and all locks have this rule.

use crate::error::{CliError, Code};

/// Whether the text is a valid key of a NATS bucket.
pub fn is_key(text: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"-/_=.".contains(&b);
    let dots = text.starts_with('.') || text.ends_with('.') || text.contains("..");
    !text.is_empty() && !dots && text.bytes().all(fits)
}

/// Refuses an invalid election name.
pub fn check_name(name: &str) -> Result<(), CliError> {
    if is_key(name) {
        return Ok(());
    }
    let message = format!("{name:?} is not a valid election name: use no blanks and no wildcards");
    Err(CliError::new(Code::Usage, message))
}
