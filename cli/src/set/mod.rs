//! `incumbent set`: many elections, evenly held by the members of a set.

#[cfg(target_os = "linux")]
mod args;
#[cfg(target_os = "linux")]
mod commands;
#[cfg(target_os = "linux")]
mod http;
mod info;
#[cfg(target_os = "linux")]
mod member;
#[cfg(target_os = "linux")]
mod seats;
#[cfg(target_os = "linux")]
mod work;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::error::{CliError, EXIT_CODES};
use crate::lock::LockArgs;
#[cfg(target_os = "linux")]
use crate::run::SentinelArgs;
#[cfg(target_os = "linux")]
pub use seats::run_seats;

/// Divide work among processes: run a part of it, and show who has which part.
///
/// A set has a fixed number of shards. Each shard K of the set NAME is the election NAME.K, with a
/// leader, a deadline and fencing tokens of its own. The members of the set lead them evenly.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub struct Set {
    #[command(flatten)]
    lock: LockArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    #[cfg(target_os = "linux")]
    Run(Box<args::SetRun>),
    #[cfg(not(target_os = "linux"))]
    Run(crate::campaign::linux_only::LinuxOnly),
    Info(info::SetInfo),
}

impl Set {
    /// Whether it only lists.
    pub fn lists(&self) -> bool {
        matches!(self.verb, Verb::Info(_))
    }

    pub async fn run(self) -> Result<ExitCode, CliError> {
        match self.verb {
            #[cfg(target_os = "linux")]
            Verb::Run(verb) => verb.run(self.lock, work::Naming::Shards).await,
            #[cfg(not(target_os = "linux"))]
            Verb::Run(_) => Err(crate::campaign::linux_only::LinuxOnly::refuse("set run")),
            Verb::Info(verb) => verb.run(&self.lock).await.map(|()| ExitCode::SUCCESS),
        }
    }

    /// The lock of the sentinel of a member.
    #[cfg(target_os = "linux")]
    pub fn sentinel_args(self) -> Option<SentinelArgs> {
        match self.verb {
            Verb::Run(_) => Some(SentinelArgs { lock: self.lock, object: None }),
            Verb::Info(_) => None,
        }
    }
}
