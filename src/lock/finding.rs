//! What is wrong with a lock.

use std::fmt;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Elections work, but slower or at higher cost than possible; or for information.
    Notice,
    /// Elections work until an expected failure happens.
    Warning,
    /// Elections do not work, or their guarantees do not hold.
    Critical,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Critical => "critical",
        })
    }
}

/// What is wrong with a lock, or with the entry of an election. `Display` is one line, with what to
/// do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    severity: Severity,
    code: &'static str,
    message: String,
    fix: String,
}

impl Finding {
    /// Creates a finding. `message` ends with the punctuation before `fix`, which is empty if there
    /// is nothing to do.
    pub fn new(
        severity: Severity,
        code: &'static str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { severity, code, message: message.into(), fix: fix.into() }
    }

    /// Returns the severity.
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// Returns the kind of the finding, as in `one-replica`: the same in every version.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Returns what was found.
    pub fn message(&self) -> &str {
        self.message.trim_end_matches([';', ':'])
    }

    /// Returns what to do; nothing if the finding is for information.
    pub fn fix(&self) -> Option<&str> {
        Some(&*self.fix).filter(|fix| !fix.is_empty())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blank = if self.fix.is_empty() { "" } else { " " };
        write!(f, "{}{blank}{}", self.message, self.fix)
    }
}
