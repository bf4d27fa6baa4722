//! What those who stand in an election have in common: how they do it, and how they tell of it.

mod background;
mod connections;
mod health;
mod http;
mod signals;
mod status_line;
mod systemd;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use incumbent::protocol::{Timing, TimingOptions};
use incumbent::{Advertisement, Changes, Election, StartError, new_election};

use self::background::BackgroundTask;
use self::health::Health;
use crate::error::CliError;
use crate::lock_args::{LeaseArgs, LockArgs, OpenedLock};
use crate::output;

pub use signals::StopSignals;
pub use status_line::{StatusLine, describe};
pub use systemd::SOCKET as NOTIFY_SOCKET;

/// Who stands where.
#[derive(Debug, Args)]
pub struct CandidateArgs {
    /// The election.
    #[arg(index = 1)]
    pub name: String,
    /// The name to show as holder [default: the host's name].
    #[arg(long)]
    identity: Option<String>,
    /// Answer HTTP requests at this port of the loopback address, or at this address and port.
    ///
    /// GET /leader: who leads, as JSON: leader, token, since, whether it is this process (mine), where it can be reached
    /// (address, metadata), and whether it has been seen to renew within its lease (fresh). /redirect/PATH: sends the client
    /// on (307) to PATH at that address; 503 while no fresh leader advertises one. GET /livez: 200 while the process
    /// does its work, whether the lock is in reach or not; 503 once a deadline has passed that was not told. GET /readyz:
    /// 200 while it takes part; 503 before the lock has answered, and once it has been out of reach for longer than a lease.
    /// GET /healthz: 503 where /livez says so, or the lock has been out of reach for longer than a lease. Each with one
    /// line that says why. GET /metrics: for Prometheus. One request a connection, of at most 16 KiB without a body.
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    http: Option<String>,
    /// Where this process can be reached while it leads: `host:port` or a URL, for whoever asks who leads.
    ///
    /// It is written with every entry, for all to read who may read the lock: no place for a secret.
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<String>,
    /// What else to say of this process while it leads. May be given several times.
    #[arg(long, value_name = "KEY=VALUE", requires = "advertise", value_parser = pair)]
    metadata: Vec<(String, String)>,
    #[command(flatten)]
    lease: LeaseArgs,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a key and a value are told as KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// A lock that is open, before lease in an election of it.
pub struct OpenedElection {
    opened: OpenedLock,
    http: Option<http::Server>,
    status: StatusLine,
}

/// A part in an election, told of on a terminal, by HTTP and to systemd.
pub struct RunningCandidate {
    pub election: Election,
    pub status: StatusLine,
    tasks: Vec<BackgroundTask>,
    http: Option<http::Server>,
}

impl CandidateArgs {
    /// The name to show, where it is told.
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// A flag that says something of campaigns with leases.
    pub fn given(&self) -> Option<&'static str> {
        let flags = [("--http", self.http.is_some()), ("--advertise", self.advertise.is_some())];
        let given = flags.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag);
        given.or_else(|| self.lease.given())
    }

    /// Opens the lock as soon as its server is in reach, unless `end` comes first.
    pub async fn open<T>(
        &self,
        lock: &LockArgs,
        end: impl Future<Output = T>,
    ) -> Result<Result<OpenedElection, T>, CliError> {
        let told = TimingOptions { lease: self.lease.lease, ..TimingOptions::default() };
        Timing::new(told, Duration::MAX).map_err(StartError::from)?;
        let http = match &self.http {
            Some(address) => Some(http::Server::start(address).await?),
            None => None,
        };
        let mut status = StatusLine::new();
        status.show(&format!("{}: connecting", self.name));
        let mut told = None;
        let mut waits = |status: &mut StatusLine, why: &CliError| {
            let why = format!("{why}; trying again");
            if told.as_ref() != Some(&why) {
                status.clear();
                output::note(format!("incumbent: {why}"));
            }
            status.show(&format!("{}: {why}", self.name));
            told = Some(why);
        };
        let opened = tokio::select! {
            opened = lock.open(&self.name, &self.lease, |why| waits(&mut status, why)) => Ok(opened),
            end = end => Err(end),
        };
        status.clear();
        match opened {
            Ok(opened) => Ok(Ok(OpenedElection { opened: opened?, http, status })),
            Err(end) => Ok(Err(end)),
        }
    }

    /// Begins to stand, and tells every change from then on.
    pub fn stand(
        &self,
        at: OpenedElection,
        grace: Option<Duration>,
    ) -> Result<(RunningCandidate, Changes<incumbent::Change>), CliError> {
        let mut builder = new_election(&self.name, at.opened.lock);
        if let Some(identity) = &self.identity {
            builder = builder.identity(identity);
        }
        if let Some(address) = &self.advertise {
            let said = Advertisement::new(address);
            let pairs = self.metadata.iter().cloned();
            builder =
                builder.advertise(pairs.fold(said, |said, (key, value)| said.with(key, value)));
        }
        if let Some(lease) = at.opened.told {
            builder = builder.lease(lease);
        }
        if let Some(grace) = grace {
            builder = builder.grace(grace);
        }
        if at.opened.with_choria {
            builder = builder.with_choria();
        }
        let (election, changes) = builder.start_with_changes()?;
        let health = Arc::new(Health::new(at.opened.lease));
        let tasks = vec![BackgroundTask(tokio::spawn(follow(election.clone(), health.clone())))];
        if let Some(server) = &at.http {
            server.tell(election.clone(), health);
        }
        Ok((RunningCandidate { election, status: at.status, tasks, http: at.http }, changes))
    }
}

impl OpenedElection {
    /// How long one write entitles to lead.
    pub fn lease(&self) -> Duration {
        self.opened.lease
    }
}

impl RunningCandidate {
    /// Stops in order: what works must have stopped.
    pub async fn leave(&mut self) {
        self.status.clear();
        systemd::stopping();
        self.election.stop().await;
        self.tasks.clear();
        self.http = None;
    }
}

/// Takes note of what changes, and passes it on to systemd.
async fn follow(election: Election, health: Arc<Health>) {
    let mut changes = election.changes();
    health.note(&election);
    let mut told = systemd::ready(status_line::who(&election));
    while changes.next().await.is_some() {
        health.note(&election);
        told.update(status_line::who(&election));
    }
    health.ended();
}
