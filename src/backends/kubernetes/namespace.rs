//! Validation of namespace names.

/// The maximum length of a namespace's name.
const MAX_LEN: usize = 63;

/// Validates a namespace's name: an invalid name would address another path of the API server.
///
/// # Errors
/// Returns the rule in one line if the name is invalid.
pub fn check_namespace(name: &str) -> Result<(), String> {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let ends = name.starts_with('-') || name.ends_with('-');
    if (1..=MAX_LEN).contains(&name.len()) && !ends && name.bytes().all(fits) {
        return Ok(());
    }
    let shown = crate::util::text::escape_line(name, MAX_LEN);
    Err(format!(
        "{shown:?} cannot be the name of a namespace: up to {MAX_LEN} of the letters a-z, 0-9 and '-', with no '-' at either end"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_no_path() {
        for good in ["default", "a-1", &"x".repeat(63)] {
            assert_eq!(check_namespace(good), Ok(()));
        }
        for bad in ["", "..", "a/b", "A", "-a", "a-", "a?b", "é", &"x".repeat(64)] {
            assert!(check_namespace(bad).is_err_and(|rule| rule.contains("a-z, 0-9")), "{bad:?}");
        }
    }
}
