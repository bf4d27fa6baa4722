//! `election create`.

use clap::Args;
use incumbent::LockUrl;
use incumbent::lock_url::LockTarget;

use crate::error::{CliError, Code};
use crate::lock_args::check_name;
use crate::lock_args::{ElectionObjects, LockArgs, SelectedLock};
use crate::output;
use crate::text::one_line;

/// Create what a new election needs before its first candidate campaigns.
///
/// With Kubernetes this creates the object, a Lease by default, marked as new: its first leader
/// does not wait for a lease. You confirm that no leader of an earlier object of this name is left.
/// With another lock this creates a missing bucket or missing tables. The election itself needs
/// nothing there.
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
                let message = "a leader for life creates its lock itself: nothing to create";
                Err(CliError::new(Code::Usage, message))
            }
            SelectedLock::Nats(bucket) => {
                let message = format!("bucket {} exists: {name} needs nothing else", bucket.bucket);
                LockUrl::from(*bucket).open().await?;
                output::line(message)
            }
            SelectedLock::Url(url, timeout) => {
                let timeout = timeout.unwrap_or(crate::nats::DEFAULT_TIMEOUT);
                let mut others = 0;
                for lock in url.targets() {
                    match lock.named {
                        Ok(LockTarget::Kubernetes(named)) => {
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
                    output::line(format!("{url} exists: {name} needs nothing else"))?;
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
        Ok(_) => output::line(format!("created the {kind} {}/{name}", objects.namespace())),
        Err(error) if error.kind() == incumbent::lock::LockErrorKind::Conflict => {
            let message = format!("the {kind} {}/{name} already exists", objects.namespace());
            Err(CliError::new(Code::Failed, message))
        }
        Err(error) => {
            objects.check_namespace().await?;
            Err(error.into())
        }
    }
}
