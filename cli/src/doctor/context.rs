//! What to check, besides the lock itself.

use std::time::Duration;

use clap::ValueEnum;

/// What a user is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Role {
    /// Sees who leads.
    Observer,
    /// Stands in elections.
    #[default]
    Candidate,
    /// Makes buckets, and evicts leaders.
    Administrator,
}

/// What is to be examined, besides the lock itself.
#[derive(Debug, Clone, Copy)]
pub struct CheckContext<'a> {
    pub name: Option<&'a str>,
    pub role: Role,
    pub lease: Option<Duration>,
    /// How long to wait for an answer.
    pub timeout: Duration,
    pub monitor: Option<&'a str>,
    /// Whether Choria's candidates are known to take part.
    pub with_choria: bool,
}
