//! What to check, besides the lock itself.

use std::time::Duration;

use clap::ValueEnum;

/// The role of the user that connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Role {
    /// Reads who leads.
    Observer,
    /// Takes part in elections.
    #[default]
    Candidate,
    /// Creates buckets, and evicts leaders.
    Administrator,
}

/// What to check, besides the lock itself.
#[derive(Debug, Clone, Copy)]
pub struct CheckContext<'a> {
    pub name: Option<&'a str>,
    pub role: Role,
    pub lease: Option<Duration>,
    /// The timeout of requests.
    pub timeout: Duration,
    pub monitor: Option<&'a str>,
    /// Whether Choria's candidates are configured to take part.
    pub with_choria: bool,
    /// Whether the election keeps a checkpoint.
    pub checkpoint: bool,
}
