//! Options by variables and by a file, for containers and services: `INCUMBENT_LEASE=10s` and
//! `lease = "10s"` are `--lease 10s`.
//!
//! What is missing on the command line is added to it before it is parsed, so a value means the
//! same and is checked in the same way wherever it stands.

mod command;
mod file;
mod line;
mod names;
mod source;

pub use self::command::Config;
pub use self::line::{CommandLine, withheld};
pub use self::names::{seen, with_variables};
