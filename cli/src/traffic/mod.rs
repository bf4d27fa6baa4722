//! What directs requests to the host of the leader.
//!
//! A process of its own does it (`process`), for the candidate (`handle`): so all is withdrawn in
//! time, also if the candidate is killed, hangs or is suspended.

mod handle;
mod messages;
mod process;
mod targets;

use std::time::Duration;

use clap::Args;

pub use self::handle::TrafficHandle;
pub use self::process::run;

/// The subcommand of the process.
pub const SUBCOMMAND: &str = "run-traffic";
/// The file beside the deadline file that is there while requests may be directed here.
pub const MARKER: &str = "directed";
/// How long the end of a term waits until all is withdrawn but the addresses.
pub const WITHDRAWAL: Duration = Duration::from_secs(1);

/// Parses the arguments of the program.
pub type ParseTraffic = fn(Vec<String>) -> Option<TrafficArgs>;

/// The flags of what directs requests to the leader.
#[derive(Debug, Clone, Default, Args)]
pub struct TrafficArgs {}

impl TrafficArgs {
    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        true
    }
}
