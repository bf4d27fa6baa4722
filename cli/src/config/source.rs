//! Where the value of an option comes from, and what may be shown of it.

use std::fmt;
use std::path::PathBuf;

use incumbent::LockUrl;

/// Where the values of an option come from, the weakest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Default,
    /// `in_table`: of the command.
    File {
        path: PathBuf,
        line: usize,
        in_table: bool,
    },
    Variable(String),
    CommandLine,
}

impl Source {
    /// Greater for a stronger one.
    pub fn rank(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File { in_table, .. } => 1 + u8::from(*in_table),
            Self::Variable(_) => 3,
            Self::CommandLine => 4,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line, .. } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::CommandLine => f.write_str("command line"),
        }
    }
}

/// Whether the value of an option may have a secret.
pub fn is_secret(option: &str, value: &str) -> bool {
    // Before the next of these a URL has the user and the host; the password may have blanks.
    let authority =
        |rest: &str| rest.split(['/', '?', '#']).next().is_some_and(|a| a.contains('@'));
    let of_url = value.split("://").skip(1).any(authority);
    // Also one that is malformed, such as a password with a slash.
    let of_lock = match option {
        "lock" => value.contains(['@', '?']),
        "server" => value.contains('@'),
        _ => false,
    };
    matches!(option, "password" | "user") || of_url || of_lock
}

/// The value without its secrets.
pub fn shown(option: &str, value: &str) -> String {
    if !is_secret(option, value) {
        return value.to_owned();
    }
    match value.parse::<LockUrl>() {
        Ok(url) if option == "lock" => url.to_string(),
        _ => "***".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_of_a_url_is_secret_wherever_the_url_stands() {
        for secret in [
            "http://u:p@h/",
            "curl http://h/ http://u:p@h/",
            "http://u:p  p\n@h",
            "nats://h,nats://u@h",
        ] {
            assert!(is_secret("check", secret), "{secret}");
        }
        for public in ["http://h/@me", "curl http://h/ && mail me@h", "http://h?to=me@h", "me@h"] {
            assert!(!is_secret("check", public), "{public}");
        }
        assert!(is_secret("server", "nats://u:p/p@h") && is_secret("lock", "nats://u:p/p@h"));
    }
}
