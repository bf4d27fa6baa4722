//! LifeObjects that are named by URLs, each by itself.

use incumbent::LockUrl;
use incumbent::lock::Need;
use incumbent::lock_url::Named;

use super::context::Exam;
use super::report::Report;
use super::{kubernetes, nats, objects, peers, postgres, sqlite};
use crate::error::{CliError, Code};
use crate::lock_args::{ElectionObjects, misplaced};
use crate::nats::BucketArgs;
use crate::text::one_line;

/// Examines each lock of a URL.
pub async fn examine(url: &LockUrl, exam: Exam<'_>, report: &mut Report) -> Result<(), CliError> {
    let locks = url.named();
    let of_nats = |lock: &incumbent::lock_url::NamedLock| matches!(lock.named, Ok(Named::Nats(_)));
    if exam.monitor.is_some() && !locks.iter().any(of_nats) {
        return Err(misplaced("--monitor", "nats"));
    }
    let several = locks.len() > 1;
    for lock in locks {
        if several {
            report.begin(lock.shown, lock.need == Need::BestEffort);
        }
        match lock.named {
            Ok(named) => one(named, exam, report).await?,
            Err(error) => report.error("settings", one_line(&error)),
        }
    }
    Ok(())
}

async fn one(named: Named, exam: Exam<'_>, report: &mut Report) -> Result<(), CliError> {
    match named {
        Named::Memory => {
            let what = "it is in one process, and there is nothing to check: no other process sees who leads";
            report.ok("memory", what);
        }
        Named::Nats(bucket) => {
            let exam = Exam { with_choria: bucket.with_choria, ..exam };
            nats::examine(&BucketArgs::named(bucket, exam.patience), exam, report).await?
        }
        Named::Kubernetes(named) => {
            let cluster = named.cluster().await.map_err(CliError::from)?;
            let objects = ElectionObjects::named(cluster, named.kind(), exam.patience);
            let name = named.object().or(exam.name);
            let lease = exam.lease.or(named.timing().map(|timing| timing.lease()));
            kubernetes::elections(&objects, name, exam.role, lease, report).await?;
        }
        Named::Postgres { probe, tables } => postgres::examine(&probe, tables, exam, report).await,
        Named::Sqlite { path, tables } => sqlite::examine(&path, tables, exam, report).await,
        Named::Objects(bucket) => objects::examine(&bucket, exam, report).await?,
        Named::Peers(peers) => peers::examine(&peers, exam, report).await,
        _ => {
            let message = "`doctor` knows nothing of this lock";
            return Err(CliError::new(Code::Usage, message));
        }
    }
    Ok(())
}
