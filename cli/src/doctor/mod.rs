//! `incumbent doctor`: what keeps elections from working, or will.

mod bucket;
mod choria;
#[cfg(target_os = "linux")]
mod clock;
mod context;
mod disk;
mod etcd;
mod fanout;
mod kubernetes;
mod nats;
mod objects;
mod peers;
mod permissions;
mod postgres;
mod report;
#[cfg(target_os = "linux")]
mod sentinel;
mod server;
mod sqlite;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use incumbent::lock::Need;
use incumbent::lock_url::{LockTarget, UrlTarget};

use crate::error::{CliError, Code, one_line};
use crate::lock::{
    ElectionLock, LockArgs, SelectedLock, check_name, misplaced, not_for_life, open_within,
};
use crate::output::Format;
use context::{CheckContext, Role};
use report::Report;

const LEVELS: &str = "\
Levels:
  ok       as it should be
  unknown  cannot be checked from here; does not count
  warning  elections work, but slowly or not after a failure to expect
  error    elections do not work, or are not safe

Exit codes:
  0      no problems found
  1      warnings
  2      errors, such as an unreachable server; or wrong usage
  128+n  ended by signal n";

/// Check whether elections can work here, and suggest a fix for each problem.
///
/// Checks the server, its JetStream and its clock, the round trip against the lease, the
/// permissions, and the bucket, with a line per finding, and whether hundreds of connections
/// receive each write; on Linux, also how far this machine's clock is slewed, and the sentinel of
/// INCUMBENT_SENTINEL or --sentinel. Nothing is stored: the permission to write is tried with a
/// write that the bucket must refuse.
///
/// With Kubernetes: the API server, its clock, the round trip, the permissions with the missing
/// rule of a Role, the namespace, and the object of NAME.
///
/// With a URL, each of several locks separately. A database: its version, whether it is the
/// primary, its clock, the tables and the permissions on them, what a failover may lose, and
/// whether notifications arrive. A file: whether it can be written, its journal, its file system,
/// and the free space. A bucket of object storage: whether it refuses conditional writes when it
/// must, tried on the object incumbent-doctor, which is removed again. etcd: its members, their
/// versions and alarms, the permissions, and candidates of etcd's own elections among the keys.
/// Peers: the address, the names, and how many of the quorum respond.
#[derive(Args)]
#[command(after_help = LEVELS)]
pub struct Doctor {
    /// The election whose permissions are tried, if they differ from those of others; with
    /// Kubernetes its object, which is checked.
    name: Option<String>,
    /// The role of the user that connects.
    #[arg(long, value_enum, default_value_t)]
    role: Role,
    /// The lease to check for [default: the bucket's TTL; with Kubernetes 15s].
    #[arg(long, value_parser = humantime::parse_duration)]
    lease: Option<Duration>,
    /// The address of the server's monitoring port, as in 127.0.0.1:8222, the only place where a
    /// server reports how it writes its files.
    #[arg(long, value_name = "HOST:PORT")]
    monitor: Option<String>,
    /// The socket of a sentinel to check, as programs use it; see `incumbent sentinel`.
    #[cfg(target_os = "linux")]
    #[arg(long, value_name = "PATH", env = incumbent::sentinel::ENVIRONMENT, hide_env_values = true)]
    sentinel: Option<std::path::PathBuf>,
    /// With NATS: Choria's candidates take part in the elections, and every candidate of this
    /// program is configured for it; in a URL, write `?with-choria` behind the bucket.
    #[arg(long)]
    with_choria: bool,
    /// The election NAME keeps a checkpoint: check that it can be read, and may be written.
    #[arg(long, requires = "name")]
    checkpoint: bool,
    /// The format of findings.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    lock: LockArgs,
}

impl Doctor {
    pub async fn run(self) -> Result<ExitCode, CliError> {
        self.name.as_deref().map_or(Ok(()), check_name)?;
        let mut report = Report::default();
        #[cfg(target_os = "linux")]
        let clock = clock::Watched::begin();
        let context = |timeout| CheckContext {
            name: self.name.as_deref(),
            role: self.role,
            lease: self.lease,
            timeout,
            monitor: self.monitor.as_deref(),
            with_choria: self.with_choria,
            checkpoint: self.checkpoint,
        };
        match self.lock.at().await? {
            SelectedLock::Elections(lock) => {
                let is_bucket = matches!(lock.of_flags(), Some(LockTarget::Nats(_)));
                if self.with_choria && !is_bucket {
                    return Err(misplaced("--with-choria", "nats"));
                }
                check(&lock, context(lock.timeout()), &mut report).await?;
            }
            SelectedLock::ForLife(_) if self.with_choria => {
                return Err(misplaced("--with-choria", "nats"));
            }
            SelectedLock::ForLife(_) if self.checkpoint => {
                return Err(not_for_life("--checkpoint"));
            }
            SelectedLock::ForLife(_) if self.monitor.is_some() => {
                return Err(misplaced("--monitor", "nats"));
            }
            SelectedLock::ForLife(locks) => {
                if self.lease.is_some() {
                    return Err(not_for_life("--lease"));
                }
                kubernetes::for_life(&locks, self.name.as_deref(), self.role, &mut report).await?;
            }
        }
        #[cfg(target_os = "linux")]
        {
            report.begin_machine();
            clock.finish(&mut report).await;
            if let Some(address) = self.sentinel.filter(|path| !path.as_os_str().is_empty()) {
                sentinel::check(&address, &mut report).await;
            }
        }
        report.print(self.output)?;
        Ok(report.exit_code())
    }
}

/// Checks each lock of a URL.
async fn check(
    selected: &ElectionLock,
    context: CheckContext<'_>,
    report: &mut Report,
) -> Result<(), CliError> {
    let locks = selected.url.targets();
    let of_nats = |lock: &UrlTarget| matches!(lock.named, Ok(LockTarget::Nats(_)));
    if context.monitor.is_some() && !locks.iter().any(of_nats) {
        return Err(misplaced("--monitor", "nats"));
    }
    let several = locks.len() > 1;
    for lock in locks {
        if several {
            report.begin(lock.shown, lock.need == Need::BestEffort);
        }
        match lock.named {
            Ok(named) => check_one(selected, named, context, report).await?,
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

/// Checks one lock, as its store is checked.
async fn check_one(
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
