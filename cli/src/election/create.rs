//! `election create`.

use clap::Args;
use incumbent::lock_url::LockTarget;

use crate::error::one_line;
use crate::error::{CliError, Code};
use crate::lock::check_name;
use crate::lock::{ElectionObjects, LockArgs, SelectedLock};
use crate::output;

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
            SelectedLock::ForLife(_) => {
                let message = "a leader for life creates its lock itself: nothing to create";
                Err(CliError::new(Code::Usage, message))
            }
            SelectedLock::Elections(lock) => {
                let mut others = Vec::new();
                for target in lock.url.targets() {
                    match target.named {
                        Ok(LockTarget::Kubernetes(named)) => {
                            let object_name = named.object.clone();
                            let objects = lock.objects(named).await?;
                            object(&objects, object_name.as_deref().unwrap_or(name)).await?;
                        }
                        Ok(LockTarget::Nats(bucket)) if lock.is_of_flags => {
                            others.push(format!("bucket {}", bucket.bucket));
                        }
                        Ok(_) => others.push(lock.url.to_string()),
                        Err(error) => return Err(CliError::new(Code::Usage, one_line(&error))),
                    }
                }
                if let Some(what) = others.pop() {
                    lock.url.open().await?;
                    output::line(format!("{what} exists: {name} needs nothing else"))?;
                }
                Ok(())
            }
        }
    }
}

async fn object(objects: &ElectionObjects, name: &str) -> Result<(), CliError> {
    objects.check_name(name)?;
    let kind = objects.kind().name();
    match objects.create(name).await {
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
