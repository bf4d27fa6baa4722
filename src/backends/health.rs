//! What the findings about a bucket and about an object of Kubernetes share.

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
