//! What all candidates share: flags, health, HTTP, systemd and the status line.

mod check;
mod health;
mod http;
mod moves;
mod reach;
mod refusals;
mod status_line;
pub mod systemd;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use incumbent::protocol::{Timing, TimingOptions};
use incumbent::{Advertisement, Changes, Election, ElectionBuilder, StartError, new_election};

use crate::error::{CliError, Code};
use crate::lock::{LeaseArgs, LockArgs, OpenedLock};
use crate::process::BackgroundTask;

pub use check::CheckProcesses;
pub use health::{Health, Probe, probes};
pub use moves::{CheckArgs, MoveArgs};
pub use reach::Reach;
pub use refusals::Refusals;
pub use status_line::{StatusLine, cool_down, cooling_down, describe, readiness};
pub use systemd::SOCKET as NOTIFY_SOCKET;

/// The flags of a candidate.
#[derive(Debug, Args)]
pub struct CandidateArgs {
    /// The election.
    #[arg(index = 1)]
    pub name: String,
    /// The identity, shown as the holder [default: the host's name; with Kubernetes POD_NAME, where
    /// it is set].
    #[arg(long)]
    identity: Option<String>,
    /// Serve HTTP at this port of the loopback address, at this address and port, or at this Unix
    /// socket.
    ///
    /// GET /leader: the leader as JSON: leader, token, since, whether it is this process (mine),
    /// where it can be reached (address, metadata), and whether it was seen to renew within its
    /// lease (fresh). /leader?wait=TOKEN: the same once the token is another one than TOKEN
    /// (`null`: none), or the leader has changed, /leader?wait: on the next change; after 60s in
    /// any case. /events: /leader as server-sent events, now and on each change, with the token as
    /// the id. /redirect/PATH: redirects (307) to PATH at the leader's address; 503 while no
    /// fresh leader advertises one. GET /livez: 200 while the process works, with the lock
    /// reachable or not; 503 once a deadline has passed without notice. GET /readyz: 200 while the
    /// candidate takes part; 503 before the lock's first response, once the lock was unreachable
    /// for longer than a lease, and while --check fails. GET /healthz: 503 if /livez returns it,
    /// or the lock was unreachable for longer than a lease. GET, HEAD or OPTIONS /leading: 200
    /// while this process leads and does not drain, by the clock; else 503. /standby: 200 while it
    /// takes part and does not lead; else 503. These return one line with the reason.
    /// GET /metrics: for Prometheus. One request per connection, of at most 16 KiB without a body.
    ///
    /// A request of a page of another site is refused (403), and one by a name that is not of this
    /// host: an IP address, localhost, the name of the host and that of --advertise are, and at an
    /// address that is not a loopback address also names without a dot and those in the search
    /// domains of the host, .svc, .cluster.local and .internal. /livez, /readyz, /healthz,
    /// /leading, /standby and /redirect answer every request.
    ///
    /// POST /resign, /move, /move?to=IDENTITY, /move?site=SITE, /stand-aside and /stand-ready act
    /// on this candidate, and return one line: 409 if it does not lead, or refuses to move. They
    /// need the socket unix:PATH, which is created for this user alone (mode 600), or the token of
    /// --http-token-file.
    #[arg(long, value_name = "[ADDRESS:]PORT|unix:PATH")]
    http: Option<String>,
    /// Allow POST over --http with the token in this file, as in `Authorization: Bearer TOKEN`.
    ///
    /// Reading the page of --http-ui requires it too. The token is sent in clear: use it on the
    /// loopback address, or behind a proxy with TLS. The file is read at the start, and refused if
    /// all users may access it.
    #[arg(long, value_name = "FILE", requires = "http")]
    http_token_file: Option<PathBuf>,
    /// Serve the page of `incumbent ui` under /ui/ of --http: all elections of the lock, live.
    ///
    /// An address that is not a loopback address requires --http-token-file; its token
    /// also allows to act on this candidate. Without a token every user of this host may read.
    #[arg(long, requires = "http")]
    http_ui: bool,
    /// Have /readyz of --http return 200 on the leader only.
    ///
    /// For a Service of Kubernetes that is to send requests to the leader alone. A rolling update
    /// waits until new pods are ready, which a standby then never is: use strategy Recreate, or
    /// maxUnavailable 100%.
    #[arg(long, requires = "http")]
    ready_when_leading: bool,
    /// The address of this process while it leads, for clients: `host:port` or a URL.
    ///
    /// It is written with every entry, readable by everyone who may read the lock: do not put a
    /// secret here.
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<String>,
    /// Metadata of this process while it leads. Repeat it for several pairs.
    #[arg(long, value_name = "KEY=VALUE", requires = "advertise", value_parser = pair)]
    metadata: Vec<(String, String)>,
    #[command(flatten)]
    pub lease: LeaseArgs,
    /// How the leadership moves.
    #[arg(skip)]
    pub moves: MoveArgs,
    /// How long the work may drain.
    #[arg(skip)]
    pub drain: Option<Duration>,
    /// Whether the election keeps a checkpoint.
    #[arg(skip)]
    pub checkpoint: bool,
    /// How long to try to reach the lock.
    #[arg(skip)]
    pub reach: Reach,
    /// Where terms are registered; `None`: with the sentinel that wraps this program.
    #[cfg(target_os = "linux")]
    #[arg(skip)]
    pub sentinel: Option<incumbent::sentinel::Sentinel>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write it as KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// A candidate in an election, shown on the terminal, by HTTP and to systemd.
pub struct RunningCandidate {
    pub election: Election,
    /// How long each write entitles the leader to lead.
    pub lease: Duration,
    pub status: StatusLine,
    /// The processes of the check.
    pub check: CheckProcesses,
    pub health: Arc<Health>,
    tasks: Vec<BackgroundTask>,
    http: Option<http::Server>,
}

impl CandidateArgs {
    /// The identity, if it is given.
    pub fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// Where HTTP is served, and the file with the token of those who may act.
    pub fn http(&self) -> (Option<&str>, Option<&Path>) {
        (self.http.as_deref(), self.http_token_file.as_deref())
    }

    /// Whether a page is served.
    pub fn serves_page(&self) -> bool {
        self.http_ui
    }

    /// Whether `/readyz` is to return 200 only while it leads.
    pub fn is_ready_when_leading(&self) -> bool {
        self.ready_when_leading
    }

    /// Whether an address is advertised.
    pub fn advertises(&self) -> bool {
        self.advertise.is_some()
    }

    /// Opens the lock once its server is reachable, and starts the campaign. `prepare` derives the
    /// grace of the work from the lease, before the campaign. Returns the output of `end` if it
    /// completes before the lock is open.
    pub async fn start<T>(
        &self,
        lock: &LockArgs,
        end: impl Future<Output = T>,
        prepare: impl AsyncFnOnce(Duration) -> Result<Option<Duration>, CliError>,
    ) -> Result<Result<(RunningCandidate, Changes<incumbent::Change>), T>, CliError> {
        let options = TimingOptions { lease: self.lease.lease, ..TimingOptions::default() };
        Timing::new(options, Duration::MAX).map_err(StartError::from)?;
        let http = match &self.http {
            Some(address) => {
                let (token, page) = (self.http_token_file.as_deref(), self.http_ui.then_some(lock));
                let advertised = self.advertise.as_deref();
                Some(
                    http::Server::start(address, token, advertised, page, self.ready_when_leading)
                        .await?,
                )
            }
            None => None,
        };
        let processes = CheckProcesses::default();
        let check = self.moves.check.start(lock, &processes)?;
        let mut status = StatusLine::new();
        let opened = self.reach.open(lock, &self.name, &self.lease, &mut status, end).await?;
        if self.http_ui && opened.as_ref().is_ok_and(|opened| opened.lock.members().is_some()) {
            let message = "--http-ui cannot be used with several locks: each has a leader";
            return Err(CliError::new(Code::Usage, message));
        }
        let lock = match opened {
            Ok(lock) => lock,
            Err(end) => return Ok(Err(end)),
        };
        let grace = prepare(lock.lease).await?;
        let builder = new_election(&self.name, Arc::clone(&lock.lock));
        let (election, changes) =
            self.settings(self.moves.apply(builder, check), &lock, grace).start_with_changes()?;
        let health = Arc::new(Health::new(lock.lease));
        health.cordon(self.moves.stand_aside);
        let tasks = vec![BackgroundTask(tokio::spawn(follow(election.clone(), health.clone())))];
        if let Some(server) = &http {
            server.serve(election.clone(), Arc::clone(&health));
        }
        let lease = lock.lease;
        let candidate =
            RunningCandidate { election, lease, status, check: processes, health, tasks, http };
        Ok(Ok((candidate, changes)))
    }

    /// Applies the flags that say nothing of moves.
    fn settings(
        &self,
        mut builder: ElectionBuilder,
        lock: &OpenedLock,
        grace: Option<Duration>,
    ) -> ElectionBuilder {
        if let Some(identity) = &self.identity {
            builder = builder.identity(identity);
        }
        if let Some(address) = &self.advertise {
            let advertisement = Advertisement::new(address);
            let pairs = self.metadata.iter().cloned();
            builder = builder
                .advertise(pairs.fold(advertisement, |all, (key, value)| all.with(key, value)));
        }
        if let Some(lease) = lock.lease_override {
            builder = builder.lease(lease);
        }
        if let Some(grace) = grace {
            builder = builder.grace(grace);
        }
        if let Some(drain) = self.drain {
            builder = builder.drain(drain);
        }
        if self.checkpoint {
            builder = builder.checkpoint();
        }
        #[cfg(target_os = "linux")]
        if let Some(sentinel) = &self.sentinel {
            builder = builder.sentinel(sentinel.clone());
        }
        builder
    }
}

impl RunningCandidate {
    /// Stops the campaign. The work of the leader must have stopped.
    pub async fn stop(&mut self) {
        self.status.clear();
        systemd::stopping();
        self.election.stop().await;
        self.abandon();
    }

    /// Ends what is not the campaign: the program is about to exit.
    pub fn abandon(&mut self) {
        self.check.close();
        self.tasks.clear();
        self.http = None;
    }
}

/// Records changes in the health, and forwards them to systemd.
async fn follow(election: Election, health: Arc<Health>) {
    let mut changes = election.changes();
    health.note(&election);
    let mut service = systemd::ready(status_line::who(&election));
    while changes.next().await.is_some() {
        health.note(&election);
        service.update(status_line::who(&election));
    }
    health.ended();
}
