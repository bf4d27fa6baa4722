//! `election create`.

use clap::Args;
use incumbent::lock_url::Named;

use crate::error::{CliError, Code};
use crate::lock_args::check_name;
use crate::lock_args::{ElectionObjects, LockArgs, SelectedLock};
use crate::output;
use crate::text::one_line;

/// Make what a new election needs before its first candidate stands.
///
/// With Kubernetes this makes the object, a Lease by default, marked as new: its first leader does not wait out a lease.
/// You vouch that no leader of an earlier object of this name is left; candidates also look whether the API server
/// remembers one. With another lock this makes the bucket or the tables, if they are missing. The election itself needs nothing
/// there.
#[derive(Args)]
pub struct Create {
    /// The election; with Kubernetes its object.
    name: String,
}

impl Create {
    pub async fn run(self, lock: &LockArgs) -> Result<(), CliError> {
        let name = self.name.as_str();
        check_name(name)?;
        match lock.at().await? {
            SelectedLock::Kubernetes(objects) => object(&objects, name).await,
            SelectedLock::ForLife(_) => {
                let message = "a leader for life makes its lock itself: there is nothing to make";
                Err(CliError::new(Code::Usage, message))
            }
            SelectedLock::Nats(args) => {
                let bucket = args.open(None, false).await?;
                output::line(format!(
                    "bucket {} is there: {name} needs nothing else",
                    bucket.name()
                ))
            }
            SelectedLock::Url(url, timeout) => {
                let timeout = timeout.unwrap_or(crate::nats::PATIENCE);
                let mut others = 0;
                for lock in url.named() {
                    match lock.named {
                        Ok(Named::Kubernetes(named)) => {
                            let cluster = named.cluster().await.map_err(CliError::from)?;
                            let objects = ElectionObjects::named(cluster, named.kind(), timeout);
                            object(&objects, named.object().unwrap_or(name)).await?;
                        }
                        Ok(_) => others += 1,
                        Err(error) => return Err(CliError::new(Code::Usage, one_line(&error))),
                    }
                }
                if others > 0 {
                    url.open().await?;
                    output::line(format!("{url} is there: {name} needs nothing else"))?;
                }
                Ok(())
            }
        }
    }
}

async fn object(objects: &ElectionObjects, name: &str) -> Result<(), CliError> {
    objects.check_name(name)?;
    let kind = objects.kind().name();
    match objects.records.create(name, objects.timeout).await {
        Ok(_) => output::line(format!("made the {kind} {}/{name}", objects.namespace())),
        Err(error) if error.kind() == incumbent::lock::LockErrorKind::Conflict => {
            let message = format!("there is a {kind} {}/{name} already", objects.namespace());
            Err(CliError::new(Code::Failed, message))
        }
        Err(error) => {
            objects.check_namespace().await?;
            Err(error.into())
        }
    }
}
