//! `incumbent kv`: buckets and their entries.

mod bucket;
mod entries;

use clap::{Args, Subcommand};

use crate::error::{CliError, Code, EXIT_CODES};
use crate::lock::is_key;
use crate::lock::nats::{ConnectionArgs, Session};
use crate::output::Format;

/// Read and change key-value buckets.
///
/// An election is a key in a bucket, and its value is the leader: `incumbent kv get
/// CHORIA_LEADER_ELECTION my_app` shows the leader. Buckets of any kind are supported; what is not
/// here, as history, purge and backup, `nats kv` of the NATS command line does.
#[derive(Args)]
#[command(after_help = EXIT_CODES)]
pub struct Kv {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// The format of results.
    #[arg(short, long, global = true, value_enum, default_value_t)]
    output: Format,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Add(bucket::Add),
    #[command(visible_alias = "ls")]
    List(bucket::List),
    #[command(visible_alias = "info")]
    Status(bucket::Status),
    Get(entries::Get),
    Put(entries::Put),
    #[command(visible_alias = "rm")]
    Del(entries::Del),
    Keys(entries::Keys),
    Watch(entries::Watch),
}

impl Kv {
    /// Whether it only lists.
    pub fn lists(&self) -> bool {
        use Verb::{Get, Keys, List, Status, Watch};
        matches!(self.verb, List(_) | Status(_) | Get(_) | Keys(_) | Watch(_))
    }

    pub async fn run(self) -> Result<(), CliError> {
        let format = self.output;
        // Invalid arguments are refused before a request to the server.
        self.verb.check()?;
        let session = Session::connect(&self.connection.settings()?).await?;
        match self.verb {
            Verb::Add(verb) => verb.run(&session, format).await,
            Verb::List(verb) => verb.run(&session, format).await,
            Verb::Status(verb) => verb.run(&session, format).await,
            Verb::Get(verb) => verb.run(&session, format).await,
            Verb::Put(verb) => verb.run(&session, format).await,
            Verb::Del(verb) => verb.run(&session).await,
            Verb::Keys(verb) => verb.run(&session, format).await,
            Verb::Watch(verb) => {
                verb.run(&session, format, self.connection.explicit_timeout()).await
            }
        }
    }
}

impl Verb {
    fn check(&self) -> Result<(), CliError> {
        match self {
            Self::Get(entries::Get { key, .. })
            | Self::Put(entries::Put { key, .. })
            | Self::Del(entries::Del { key: Some(key), .. }) => check_key(key),
            _ => Ok(()),
        }
    }
}

/// Refuses an invalid key.
fn check_key(key: &str) -> Result<(), CliError> {
    if is_key(key) {
        return Ok(());
    }
    let rule = "use the letters a-z, A-Z, 0-9, '-', '_', '=', '/', and single dots in between";
    Err(CliError::new(Code::Usage, format!("{key:?} is not a valid key: {rule}")))
}
