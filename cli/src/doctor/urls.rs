//! Checks of locks given by URLs, each separately.

use incumbent::lock::Need;
use incumbent::lock_url::LockTarget;

use super::context::CheckContext;
use super::report::Report;
use super::{etcd, kubernetes, nats, objects, peers, postgres, sqlite};
use crate::error::one_line;
use crate::error::{CliError, Code};
use crate::lock::{ElectionLock, misplaced, open_within};

/// Checks each lock of a URL.
pub async fn check(
    selected: &ElectionLock,
    context: CheckContext<'_>,
    report: &mut Report,
) -> Result<(), CliError> {
    let locks = selected.url.targets();
    let of_nats =
        |lock: &incumbent::lock_url::UrlTarget| matches!(lock.named, Ok(LockTarget::Nats(_)));
    if context.monitor.is_some() && !locks.iter().any(of_nats) {
        return Err(misplaced("--monitor", "nats"));
    }
    let several = locks.len() > 1;
    for lock in locks {
        if several {
            report.begin(lock.shown, lock.need == Need::BestEffort);
        }
        match lock.named {
            Ok(named) => one(selected, named, context, report).await?,
            Err(error) => report.error("settings", one_line(&error)),
        }
    }
    match context.name.filter(|_| context.checkpoint) {
        Some(name) => checkpoint(selected, name, context, report).await,
        None => Ok(()),
    }
}

/// Reads the checkpoint of the election, and checks that its lock can keep one.
async fn checkpoint(
    selected: &ElectionLock,
    name: &str,
    context: CheckContext<'_>,
    report: &mut Report,
) -> Result<(), CliError> {
    const CHECK: &str = "checkpoint";
    let lock = match open_within(&selected.url.clone().without_create(), context.timeout).await {
        Ok(lock) => lock,
        Err(CliError::Message { message, .. }) => {
            report.unknown(CHECK, message);
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    let found = lock.checkpoint(name, context.timeout).await;
    // What a lock knows of its own settings, it knows after a request.
    let fits = lock.checkpoints().map_or(Ok(()), |store| store.check(name));
    match (fits, found) {
        (Err(why), _) => report.error(CHECK, why),
        (Ok(()), Err(error)) => report.error(CHECK, one_line(&error)),
        (Ok(()), Ok(None)) => report.ok(CHECK, "none yet: the first leader creates it"),
        (Ok(()), Ok(Some(stored))) => {
            report.ok(CHECK, format!("{} bytes", stored.data.len()));
        }
    }
    Ok(())
}

async fn one(
    selected: &ElectionLock,
    named: LockTarget,
    context: CheckContext<'_>,
    report: &mut Report,
) -> Result<(), CliError> {
    match named {
        LockTarget::Memory => {
            let what = "it is in one process, invisible to other processes: nothing to check";
            report.ok("memory", what);
        }
        LockTarget::Nats(mut bucket) => {
            let with_choria = bucket.with_choria || context.with_choria;
            let context = CheckContext { with_choria, ..context };
            bucket.connection.timeout = Some(context.timeout);
            nats::check(&bucket, context, report).await?
        }
        LockTarget::Kubernetes(named) => {
            let object = named.object.clone();
            let name = object.as_deref().or(context.name);
            let lease = context.lease.or(named.timing.map(|timing| timing.lease()));
            let objects = selected.objects(named).await?;
            kubernetes::elections(&objects, name, CheckContext { lease, ..context }, report)
                .await?;
        }
        LockTarget::Postgres { probe, tables } => {
            postgres::check(&probe, tables, context, report).await
        }
        LockTarget::Sqlite { path, tables } => sqlite::check(&path, tables, context, report).await,
        LockTarget::Objects(bucket) => objects::check(&bucket, context, report).await?,
        LockTarget::Etcd(etcd) => etcd::check(&etcd, context, report).await?,
        LockTarget::Peers(peers) => peers::check(&peers, context, report).await,
        _ => {
            let message = "`doctor` does not support this lock";
            return Err(CliError::new(Code::Usage, message));
        }
    }
    Ok(())
}
