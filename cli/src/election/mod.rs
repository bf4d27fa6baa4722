//! `incumbent election`: read elections, and act on them.

mod create;
mod evict;
mod file;
mod history;
mod info;
pub mod leader;
mod members;
mod move_leader;
mod pause;
mod successor;
mod watch;

use clap::{Args, Subcommand};

use crate::error::{CliError, EXIT_CODES};
use crate::lock::LockArgs;

/// Show who leads, and act on it.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub struct Election {
    #[command(flatten)]
    lock: LockArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    #[command(visible_alias = "ls")]
    List(info::List),
    Info(info::Info),
    Watch(watch::Watch),
    History(history::ShowHistory),
    Members(members::Members),
    Create(create::Create),
    Move(move_leader::Move),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Evict(evict::Evict),
    File(Box<file::KeepFile>),
}

impl Election {
    /// Whether it only lists.
    pub fn lists(&self) -> bool {
        use Verb::{History, Info, List, Members, Watch};
        matches!(self.verb, List(_) | Info(_) | Watch(_) | History(_) | Members(_))
    }

    pub async fn run(self) -> Result<(), CliError> {
        match self.verb {
            Verb::List(verb) => verb.run(&self.lock).await,
            Verb::Info(verb) => verb.run(&self.lock).await,
            Verb::Watch(verb) => verb.run(&self.lock).await,
            Verb::History(verb) => verb.run(&self.lock).await,
            Verb::Members(verb) => verb.run(&self.lock).await,
            Verb::Create(verb) => verb.run(&self.lock).await,
            Verb::Move(verb) => verb.run(&self.lock).await,
            Verb::Pause(verb) => verb.run(&self.lock).await,
            Verb::Resume(verb) => verb.run(&self.lock).await,
            Verb::Evict(verb) => verb.run(&self.lock).await,
            Verb::File(verb) => verb.run(&self.lock).await,
        }
    }
}
