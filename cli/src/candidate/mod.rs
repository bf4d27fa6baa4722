//! What `run` and `campaign` have in common: how they stand in an election, and how they tell of it.

mod health;
mod http;
mod notify;
mod status;

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use incumbent::nats::Bucket;
use incumbent::protocol::{Timing, TimingOptions};
use incumbent::{Election, StartError, new_election};
use tokio::task::JoinHandle;

use self::health::Health;
use crate::connection::Standing;
use crate::election::check_name;
use crate::failure::Failure;
use crate::output;

pub use notify::SOCKET as NOTIFY_SOCKET;
pub use status::{StatusLine, describe};

/// Who stands where.
#[derive(Debug, Args)]
pub struct Candidacy {
    /// The election.
    #[arg(index = 1)]
    pub name: String,
    /// The name to show as holder [default: the host's name].
    #[arg(long)]
    identity: Option<String>,
    /// How long one write entitles to lead, as in 5s or 500ms: it is the TTL of a bucket that is made, too [default:
    /// the bucket's TTL, 60s for one that is made].
    #[arg(long, value_parser = humantime::parse_duration)]
    lease: Option<Duration>,
    /// Answer HTTP requests at this port of the loopback address, or at this address and port.
    ///
    /// GET /leader: who leads, as JSON: leader, token, since, and whether it is this process (mine). GET /healthz: 200
    /// while it campaigns well, 503 once a deadline has passed that was not told, or the lock has been out of reach
    /// for longer than a lease; with one line that says why. GET /metrics: for Prometheus.
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    http: Option<String>,
    #[command(flatten)]
    standing: Standing,
}

/// A bucket that is open, before standing in an election of it.
pub struct Entrance {
    bucket: Bucket,
    http: Option<http::Listener>,
    status: StatusLine,
}

/// A part in an election, told of on a terminal, by HTTP and to systemd.
pub struct Candidate {
    pub election: Election,
    pub status: StatusLine,
    attendants: Vec<Attendant>,
}

/// A task that ends with whoever has it.
struct Attendant(JoinHandle<()>);

impl Drop for Attendant {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Candidacy {
    /// Opens the bucket as soon as its server is in reach, unless `end` comes first.
    pub async fn open<T>(
        &self,
        end: impl Future<Output = T>,
    ) -> Result<Result<Entrance, T>, Failure> {
        check_name(&self.name)?;
        let told = TimingOptions { lease: self.lease, ..TimingOptions::default() };
        Timing::new(told, Duration::MAX).map_err(StartError::from)?;
        let http = match &self.http {
            Some(address) => Some(http::Listener::bind(address).await?),
            None => None,
        };
        let mut status = StatusLine::new();
        status.show(&format!("{}: connecting", self.name));
        let mut told = None;
        let mut waits = |status: &mut StatusLine, why: &Failure| {
            let why = format!("{why}; trying again");
            if told.as_ref() != Some(&why) {
                status.clear();
                output::note(format!("incumbent: {why}"));
            }
            status.show(&format!("{}: {why}", self.name));
            told = Some(why);
        };
        let opened = tokio::select! {
            bucket = self.standing.open(self.lease, |why| waits(&mut status, why)) => Ok(bucket),
            end = end => Err(end),
        };
        status.clear();
        match opened {
            Ok(bucket) => Ok(Ok(Entrance { bucket: bucket?, http, status })),
            Err(end) => Ok(Err(end)),
        }
    }

    /// Begins to stand.
    pub fn stand(&self, at: Entrance, grace: Option<Duration>) -> Result<Candidate, Failure> {
        let mut builder = new_election(&self.name, at.bucket.lock());
        if let Some(identity) = &self.identity {
            builder = builder.identity(identity);
        }
        if let Some(lease) = self.lease {
            builder = builder.lease(lease);
        }
        if let Some(grace) = grace {
            builder = builder.grace(grace);
        }
        let election = builder.start()?;
        let health = Arc::new(Health::new(self.lease(&at)));
        let mut attendants =
            vec![Attendant(tokio::spawn(follow(election.clone(), health.clone())))];
        if let Some(listener) = at.http {
            attendants.push(Attendant(tokio::spawn(listener.serve(election.clone(), health))));
        }
        Ok(Candidate { election, status: at.status, attendants })
    }

    /// How long one write entitles to lead.
    pub fn lease(&self, at: &Entrance) -> Duration {
        self.lease.unwrap_or(at.bucket.ttl())
    }
}

impl Candidate {
    /// Stops in order: what works must have stopped.
    pub async fn leave(&mut self) {
        self.status.clear();
        notify::stopping();
        self.election.stop().await;
        self.attendants.clear();
    }
}

/// Takes note of what changes, and passes it on to systemd.
async fn follow(election: Election, health: Arc<Health>) {
    let mut changes = election.changes();
    health.note(&election);
    let mut told = notify::ready(status::who(&election));
    while changes.next().await.is_some() {
        health.note(&election);
        told.update(status::who(&election));
    }
    health.ended();
}
