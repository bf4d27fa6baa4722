//! What directs requests to the host of the leader.
//!
//! A process of its own does it (`process`), for the candidate (`handle`): so all is withdrawn in
//! time, also if the candidate is killed, hangs or is suspended.

mod address;
mod handle;
mod messages;
mod process;
mod service;
mod targets;

pub use self::handle::TrafficHandle;
pub use self::messages::{MARKER, SUBCOMMAND, WITHDRAWAL};
pub use self::process::run;
pub use self::targets::{ParseTraffic, TrafficArgs};
