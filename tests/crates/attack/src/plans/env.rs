//! The servers, the candidates and the network of a run, and how to wait for what they do.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, sleep};

use crate::faults::net::{Net, Node};
use crate::faults::table::Need;
use crate::judge::Judge;
use crate::load::admin::{Admin, insist};
use crate::load::fleet::{Candidate, Kind, Orders};
use crate::load::server::{NO_CLOCK, Server};
use crate::record::fenced_store;
use crate::record::journal::{Tail, Writer, now};

/// How many servers the faults of `chaos` strike.
pub const SERVERS: usize = 3;
/// How many candidates of ours there are then; the one like Choria's comes after them.
pub const OURS: usize = 5;
/// The bucket of all elections.
const BUCKET: &str = "CHAOS";
/// A leader that has given no sign of life for this long is none.
const FRESH: Duration = Duration::from_millis(300);
/// How long servers may take to be up to date again, also on a machine that stands still meanwhile.
const WELL_AGAIN: Duration = Duration::from_secs(180);
/// How often the journal is read.
const GLANCE: Duration = Duration::from_millis(20);

/// How large the environment is.
#[derive(Debug, Clone)]
pub struct Setup {
    pub servers: usize,
    /// Candidates of ours; the one like Choria's comes after them.
    pub candidates: usize,
    /// The bucket's TTL, and the lease unless another is ordered, in milliseconds.
    pub ttl: u64,
    /// On the loopback interface, even where network namespaces can be had.
    pub loopback: bool,
    /// Whether each server gets a small disk of its own, in memory.
    pub disks: bool,
}

/// Everything that runs. Fields are dropped in this order: processes before their network.
#[derive(Debug)]
pub struct TestEnv {
    /// The candidates: ours, then the one like Choria's.
    pub fleet: Vec<Candidate>,
    pub servers: Vec<Server>,
    pub net: Net,
    pub orders: Orders,
    pub journal: Writer,
    pub admin: Admin,
    /// All chance.
    pub rng: Rng,
    /// What has been read of the journal.
    pub judge: Judge,
    tail: Tail,
    rounds: u32,
}

impl TestEnv {
    /// Starts the network and the servers, and creates the bucket; prints what it found on this
    /// machine.
    pub async fn start(
        setup: &Setup,
        program: &Path,
        directory: &Path,
        seed: u64,
    ) -> io::Result<Self> {
        let &Setup { servers: count, candidates, ttl, loopback, disks } = setup;
        let net = Net::new(count, candidates + 1, loopback);
        let mut servers = Vec::new();
        for index in 0..count {
            let directory = directory.join(format!("s{index}"));
            servers.push(Server::new(index, directory, &net, count, disks)?);
        }
        for server in &mut servers {
            server.start(&net)?;
        }
        let urls = servers.iter().map(Server::url).collect();
        let journal = directory.join("journal");
        fenced_store::serve(&directory.join("fenced-store"))?;
        let admin = Admin::connect(urls, BUCKET, Duration::from_millis(ttl)).await?;
        admin.make_bucket().await?;
        Ok(Self {
            fleet: (0..=candidates).map(|it| Candidate::new(it, it < candidates)).collect(),
            servers,
            net,
            orders: Orders {
                program: program.to_owned(),
                incumbent: program.with_file_name("incumbent"),
                directory: directory.to_owned(),
                bucket: BUCKET.to_owned(),
                election: String::new(),
                lease: ttl,
                quorum: Vec::new(),
                is_quorum: false,
                etcd: None,
                kind: Kind::Proven,
            },
            journal: Writer::open(&journal, "harness", 1)?,
            admin,
            rng: Rng::with_seed(seed),
            judge: Judge::default(),
            tail: Tail::new(&journal),
            rounds: 0,
        })
    }

    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.orders.lease)
    }

    /// Why a fault cannot be had here.
    pub fn lacks(&self, need: Need) -> Option<String> {
        match need {
            Need::SmallDisk if !self.servers.iter().all(Server::has_disk) => {
                Some("no right to mount a small file system".to_owned())
            }
            Need::Sentinel if !self.orders.incumbent.exists() => {
                let program = self.orders.incumbent.display();
                Some(format!("no program {program}: build the package incumbent-cli"))
            }
            Need::Clock if !self.servers.iter().any(Server::has_clock) => Some(NO_CLOCK.to_owned()),
            need => self.net.lacks(need),
        }
    }

    /// Sends the fleet home, if there is one, and starts another in an election of its own.
    pub async fn new_fleet(&mut self, kind: Kind) -> io::Result<()> {
        self.dismiss().await?;
        if let (Kind::Sentinel, Some(why)) = (kind, self.lacks(Need::Sentinel)) {
            return Err(io::Error::other(why));
        }
        self.rounds += 1;
        self.orders.kind = kind;
        self.orders.election = format!("round-{}", self.rounds);
        self.start_fleet()
    }

    /// Sends the fleet home, and starts an election for each lease, with as many candidates as
    /// `each`. Returns their names.
    pub async fn new_fleets(&mut self, leases: &[u64], each: usize) -> io::Result<Vec<String>> {
        self.dismiss().await?;
        self.rounds += 1;
        let mut elections = Vec::new();
        for (fleet, &lease) in self.fleet.chunks_mut(each).zip(leases) {
            self.orders.lease = lease;
            self.orders.election = format!("round-{}-{lease}", self.rounds);
            if self.orders.is_quorum {
                let voters = fleet.iter().map(|one| self.net.address(one.node()));
                self.orders.quorum = voters.collect::<Option<_>>().ok_or_else(|| {
                    io::Error::other("no network namespaces, so no address for each voter")
                })?;
            }
            for candidate in fleet {
                candidate.start(&self.net, &self.orders)?;
            }
            elections.push(self.orders.election.clone());
        }
        Ok(elections)
    }

    /// Waits until this many elections have a leader.
    pub async fn await_leaders(&mut self, count: usize, limit: Duration) -> io::Result<()> {
        let (end, began) = (Instant::now() + limit, now());
        let fresh = || began.max(now().saturating_sub(FRESH.as_nanos() as u64));
        while self.judge.loads(fresh()).values().sum::<usize>() < count {
            if Instant::now() >= end {
                let error = format!("not all elections had a leader within {limit:?}");
                return Err(io::Error::other(error));
            }
            self.pass(GLANCE).await?;
        }
        Ok(())
    }

    /// Starts the candidates of the fleet that do not run.
    pub fn start_fleet(&mut self) -> io::Result<()> {
        for candidate in &mut self.fleet {
            if candidate.is_ours() || self.orders.kind == Kind::Choria {
                candidate.start(&self.net, &self.orders)?;
            }
        }
        Ok(())
    }

    /// Ends the fleet in order.
    pub async fn dismiss(&mut self) -> io::Result<()> {
        for candidate in &self.fleet {
            candidate.terminate();
        }
        let fleet = &mut self.fleet;
        insist("all candidates to stop", async || {
            fleet.iter_mut().all(Candidate::has_ended).then_some(())
        })
        .await?;
        self.glance()
    }

    /// Replays the histories of the processes, which have all ended.
    pub fn replay(&mut self) {
        self.judge.replay(&self.orders.directory.join("journal"));
    }

    /// Reads what is new in the journal.
    pub fn glance(&mut self) -> io::Result<()> {
        for line in self.tail.lines()? {
            self.judge.feed(&line);
        }
        Ok(())
    }

    /// Lets time pass, following the journal.
    pub async fn pass(&mut self, time: Duration) -> io::Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            sleep(GLANCE.min(end - Instant::now())).await;
            self.glance()?;
        }
        Ok(())
    }

    /// Who leads at this moment.
    pub fn leader(&self) -> Option<usize> {
        let (who, t) = self.judge.leader()?;
        if Duration::from_nanos(now().saturating_sub(t)) > FRESH {
            return None;
        }
        self.fleet.iter().position(|candidate| candidate.is_up() && candidate.name() == who)
    }

    /// Waits until a candidate that `may` has led for a second without a break, and returns it.
    /// None when `limit` has passed.
    pub async fn await_leader(
        &mut self,
        limit: Duration,
        may: impl Fn(&Candidate) -> bool,
    ) -> io::Result<Option<usize>> {
        let end = Instant::now() + limit;
        let mut since: Option<(usize, Instant)> = None;
        while Instant::now() < end {
            self.pass(GLANCE).await?;
            since = match (self.leader(), since) {
                (Some(leader), Some((who, at))) if leader == who => {
                    if at.elapsed() >= Duration::from_secs(1) {
                        return Ok(Some(leader));
                    }
                    Some((who, at))
                }
                (Some(leader), _) if may(&self.fleet[leader]) => Some((leader, Instant::now())),
                _ => None,
            };
        }
        Ok(None)
    }

    /// Waits until every server is healthy and every replica up to date.
    pub async fn await_servers(&mut self) -> io::Result<()> {
        let end = Instant::now() + WELL_AGAIN;
        loop {
            let mut healthy = true;
            for server in &self.servers {
                healthy = healthy && server.is_healthy().await;
            }
            if healthy && self.admin.is_replicated().await {
                return Ok(());
            }
            if Instant::now() >= end {
                let error = format!("the servers were not well again within {WELL_AGAIN:?}");
                return Err(io::Error::other(error));
            }
            self.pass(Duration::from_millis(100)).await?;
        }
    }

    /// The server that leads the bucket's stream.
    pub async fn stream_leader(&self) -> io::Result<usize> {
        let name = self.admin.stream_leader().await?;
        server_named(&name)
    }

    /// The server that leads JetStream's metadata.
    pub async fn meta_leader(&self) -> io::Result<usize> {
        let name = insist("a leader of the metadata", async || {
            for server in &self.servers {
                if let Some(jsz) = server.monitor("/jsz").await
                    && let Some(name) = jsz["meta_cluster"]["leader"].as_str()
                    && !name.is_empty()
                {
                    return Some(name.to_owned());
                }
            }
            None
        })
        .await?;
        server_named(&name)
    }

    /// A candidate of ours that runs and is not `leader`.
    pub fn standby(&mut self, leader: usize) -> Option<usize> {
        let others: Vec<_> =
            (0..OURS).filter(|index| *index != leader && self.fleet[*index].is_up()).collect();
        self.rng.choice(others)
    }

    /// Cuts a candidate off from every server.
    pub fn isolate(&mut self, candidate: usize) -> io::Result<()> {
        (0..self.servers.len())
            .try_for_each(|server| self.net.part(Node::Candidate(candidate), Node::Server(server)))
    }

    /// The last lines of the logs of the servers and the candidates.
    pub fn complaints(&self) -> Vec<(PathBuf, String)> {
        let files = self.servers.iter().map(Server::log).chain(
            self.fleet.iter().map(|one| self.orders.directory.join(format!("{}.err", one.name()))),
        );
        files
            .filter_map(|path| {
                let text = fs::read_to_string(&path).ok()?;
                let lines: Vec<_> = text.lines().collect();
                let tail = lines[lines.len().saturating_sub(5)..].join("\n");
                Some((path, tail))
            })
            .collect()
    }
}

fn server_named(name: &str) -> io::Result<usize> {
    let index = name.strip_prefix('s').and_then(|index| index.parse().ok());
    index.ok_or_else(|| io::Error::other(format!("no server is called {name:?}")))
}
