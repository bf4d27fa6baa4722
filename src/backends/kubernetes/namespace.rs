//! What can be the name of a namespace.

/// The longest name of a namespace.
const LONGEST: usize = 63;

/// Refuses what can be no namespace, with the rule: a name that is none would ask for another path of the API server.
///
/// # Errors
/// The rule, in one line.
pub fn check_namespace(name: &str) -> Result<(), String> {
    let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let ends = name.starts_with('-') || name.ends_with('-');
    if (1..=LONGEST).contains(&name.len()) && !ends && name.bytes().all(fits) {
        return Ok(());
    }
    let shown = crate::util::text::escape_line(name, LONGEST);
    Err(format!(
        "{shown:?} cannot be the name of a namespace: up to {LONGEST} of the letters a-z, 0-9 and '-', which stands at neither end"
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
