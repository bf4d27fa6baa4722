//! `incumbent leader`: who leads, for scripts.

use std::time::SystemTime;

use clap::Args;
use serde_json::json;

use crate::error::{CliError, Code};
use crate::lock::LockArgs;
use crate::lock::elections::{ElectionState, Elections};
use crate::output::text::printable;
use crate::output::{self, Format, Printing};

/// Print the leader of the election NAME, and exit with 0 if it is this host, with 3 if not.
///
/// It needs the permissions of an observer only, takes no part in the election and creates nothing.
/// A leader whose lease is over is none. Where the lock shows no time of a write (databases,
/// objects, peers), this waits for the leader's next renewal, so for a third of the lease or less,
/// and for a lease if the leader is gone. With Kubernetes the time of the last renewal is the
/// leader's.
///
/// The answer is of a moment, and no right to act: a holder that still cools down is printed too,
/// and another one may lead right after. A command that must not run twice belongs below
/// `incumbent run`.
#[derive(Args)]
#[command(after_help = CODES)]
pub struct Leader {
    /// The election; with Kubernetes its object.
    name: String,
    /// Exit with 0 if the leader has this identity [default: that of the candidates of this host
    /// that set none: the host's name; with Kubernetes POD_NAME, if it is set].
    #[arg(long)]
    identity: Option<String>,
    #[command(flatten)]
    printing: Printing,
    #[command(flatten)]
    lock: LockArgs,
}

const CODES: &str = "\
Exit codes:
  0      this host leads
  1      failed
  2      wrong usage
  3      another one leads, none does, or there is no such bucket or namespace
  4      no server reachable
  5      permission denied by the server
  128+n  ended by signal n

Examples:
  incumbent leader my_app
  incumbent leader my_app --quiet >/dev/null && ./only-on-the-leader
  incumbent leader my_app --identity \"$(cat /etc/my-id)\" --output json";

impl Leader {
    pub async fn run(self) -> Result<(), CliError> {
        let elections = Elections::open(&self.lock, Some(&self.name)).await?;
        let status = elections.now(&self.name).await?;
        let identity = self.identity.unwrap_or_else(|| elections.default_identity());
        let mine = status.holder().is_some_and(|holder| holder.identity == identity);
        if self.printing.output == Format::Json {
            let mut fields = status.to_json(SystemTime::now());
            if let Some(fields) = fields.as_object_mut() {
                fields.insert("mine".to_owned(), json!(mine));
            }
            output::json(&fields)?;
        } else {
            match &status.state {
                ElectionState::Held(holder) => output::line(printable(&holder.identity))?,
                // Not an error: nothing has to be done about it.
                ElectionState::Vacant(cause) => {
                    output::note(format!("incumbent: election {}: no leader ({cause})", self.name));
                }
            }
        }
        match mine {
            true => Ok(()),
            false => Err(CliError::Silent(Code::NotFound)),
        }
    }
}
