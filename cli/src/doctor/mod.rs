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
mod postgres;
mod report;
mod rights;
#[cfg(target_os = "linux")]
mod sentinel;
mod server;
mod sqlite;
mod urls;

#[cfg(target_os = "linux")]
pub use self::rights::UNUSED_NAME;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use incumbent::lock_url::LockTarget;

use crate::error::CliError;
use crate::lock::{LockArgs, SelectedLock, check_name, misplaced, not_for_life};
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
                urls::check(&lock, context(lock.timeout()), &mut report).await?;
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
