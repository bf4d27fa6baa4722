//! A set whose members are killed, stopped, paused, partitioned and added, until the time is over
//! or something is wrong.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fs, io};

use incumbent_test_support::{Cluster, FaultProxy, PostgresServer, Server};

use crate::judge::{Gap, Report};
use crate::load::members::{FaultKind, Members};
use crate::record::journal::now;

/// How large and how long.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    #[arg(long, value_enum, default_value_t = StoreKind::Nats)]
    store: StoreKind,
    #[arg(long, default_value_t = 64)]
    shards: usize,
    /// The most members at a time: this many processes.
    #[arg(long, default_value_t = 8)]
    members: usize,
    /// The lease, in seconds.
    #[arg(long, default_value_t = 3)]
    lease: u64,
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// For how many seconds the set is to be even before the next fault.
    #[arg(long, default_value_t = 3)]
    quiet: u64,
    /// Repeats the choices of an earlier run.
    #[arg(long)]
    seed: Option<u64>,
    /// Where to write the imbalance over time: a table for `scripts/plot.py`.
    #[arg(long)]
    plot: Option<PathBuf>,
}

/// Which servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StoreKind {
    /// A nats-server.
    Nats,
    /// A cluster of three nats-servers.
    NatsCluster,
    /// A PostgreSQL server.
    Postgres,
}

/// The running servers.
enum Store {
    Nats(Box<Server>),
    NatsCluster(Box<Cluster>),
    Postgres(PostgresServer),
}

impl Store {
    async fn start(kind: StoreKind) -> Self {
        match kind {
            StoreKind::Nats => Self::Nats(Box::new(Server::start().await)),
            StoreKind::NatsCluster => Self::NatsCluster(Box::new(Cluster::start().await)),
            StoreKind::Postgres => {
                Self::Postgres(PostgresServer::start(&["max_connections=400"]).await)
            }
        }
    }

    /// What stands between one member and each server, and the URLs behind it.
    async fn proxies(&self) -> (Vec<FaultProxy>, Vec<String>) {
        let ports = match self {
            Self::Nats(server) => vec![server.address().port()],
            Self::NatsCluster(cluster) => {
                cluster.servers().iter().map(|server| server.address().port()).collect()
            }
            Self::Postgres(server) => vec![server.port()],
        };
        let (mut proxies, mut urls) = (Vec::new(), Vec::new());
        for port in ports {
            let proxy = FaultProxy::start(port).await;
            let host = format!("127.0.0.1:{}", proxy.port());
            urls.push(match self {
                Self::Nats(_) | Self::NatsCluster(_) => format!("nats://{host}"),
                Self::Postgres(_) => {
                    format!("postgres://postgres@{host}/postgres?sslmode=disable")
                }
            });
            proxies.push(proxy);
        }
        (proxies, urls)
    }
}

/// A sign of life that is older is none of now.
const FRESH: Duration = Duration::from_millis(500);
/// How much longer than a few leases what must come may take, also on a machine that stands still
/// meanwhile.
const ROOM: Duration = Duration::from_secs(120);
/// How much longer than a few leases it may take after a fault until every shard is led.
const FAULT_ROOM: Duration = Duration::from_secs(10);
/// How often the journal is read.
const STEP: Duration = Duration::from_millis(100);

/// Runs the plan with members that are `program`, and prints what comes of it.
pub async fn run(options: &Options, program: &Path) -> io::Result<ExitCode> {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let mut run = Run {
        options,
        random: fastrand::Rng::with_seed(seed),
        store: Store::start(options.store).await,
        members: Members::new(program)?,
        began: Instant::now(),
        samples: Vec::new(),
        struck: Vec::new(),
        faults: Vec::new(),
        slowest_led: Duration::ZERO,
        slowest_even: Duration::ZERO,
        relapses: 0,
    };
    for _ in 0..options.members {
        run.add().await?;
    }
    run.attack().await?;
    run.finish().await
}

struct Run<'a> {
    options: &'a Options,
    random: fastrand::Rng,
    members: Members,
    store: Store,
    began: Instant,
    samples: Vec<Sample>,
    struck: Vec<FaultAt>,
    /// What must not be, other than what the judge finds.
    faults: Vec<String>,
    /// The longest time from a fault until every shard was led.
    slowest_led: Duration,
    /// The longest time from the end of the last fault until the set was even for the quiet time.
    slowest_even: Duration,
    /// How many times the set was even, and after less than the quiet time no longer.
    relapses: usize,
}

impl Run<'_> {
    async fn add(&mut self) -> io::Result<String> {
        let (proxies, urls) = self.store.proxies().await;
        let Options { shards, lease, .. } = *self.options;
        self.members.add("member", &urls, shards, lease, proxies)
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(self.options.lease)
    }

    /// Each kind of fault at least once, however short the soak.
    async fn attack(&mut self) -> io::Result<()> {
        self.settle("the start", ROOM).await?;
        let wanted = Duration::from_secs_f64(self.options.minutes * 60.0);
        let mut due = FaultKind::ALL.to_vec();
        self.random.shuffle(&mut due);
        while self.faults.is_empty() && (self.began.elapsed() < wanted || !due.is_empty()) {
            let kind = self.choose(&mut due);
            let mut what = self.strike(kind).await?;
            // Some of them before the set has settled after the one before.
            while self.random.f64() < 0.35 {
                let pause = self.lease().mul_f64(self.random.f64());
                self.watch(pause, |_, _| false).await?;
                let kind = self.choose(&mut due);
                what = format!("{what}, {}", self.strike(kind).await?);
            }
            self.settle(&what, FAULT_ROOM).await?;
        }
        Ok(())
    }

    fn choose(&mut self, due: &mut Vec<FaultKind>) -> FaultKind {
        let possible = |kind: &FaultKind, run: &Self| match kind {
            FaultKind::Added => run.members.count() < run.options.members,
            // There is always somebody who can lead, and nearly always enough to be even.
            FaultKind::Killed | FaultKind::Stopped => {
                run.members.healthy().len() > run.options.members / 2
            }
            FaultKind::Paused | FaultKind::Partitioned => run.members.healthy().len() > 2,
        };
        if let Some(at) = due.iter().position(|kind| possible(kind, self)) {
            return due.remove(at);
        }
        let kinds: Vec<_> =
            FaultKind::ALL.into_iter().filter(|kind| possible(kind, self)).collect();
        // Members come as often as they go.
        let missing = self.options.members - self.members.count();
        if missing > 0 && self.random.usize(..4) < missing {
            return FaultKind::Added;
        }
        *self.random.choice(&kinds).unwrap_or(&FaultKind::Added)
    }

    async fn strike(&mut self, kind: FaultKind) -> io::Result<String> {
        let healthy = self.members.healthy();
        let (ns, seconds) = (now(), self.began.elapsed().as_secs_f64());
        let mut lasts = Duration::ZERO;
        let member = if kind == FaultKind::Added {
            self.add().await?
        } else {
            let member = self.random.choice(&healthy).cloned().unwrap_or_default();
            // Shorter than a lease, about one, and far longer.
            let leases = [0.3, 0.8, 1.0, 1.2, 3.0];
            lasts = self.lease().mul_f64(*self.random.choice(&leases).unwrap_or(&1.0));
            self.members.strike(&member, kind, lasts);
            member
        };
        self.struck.push(FaultAt { ns, seconds, kind, member: member.clone() });
        Ok(match kind {
            FaultKind::Paused | FaultKind::Partitioned => format!("{member} {kind} for {lasts:?}"),
            _ => format!("{member} {kind}"),
        })
    }

    /// Waits until every shard is led, for `room` longer than it should take, and the set is even,
    /// and watches it for a while. Returns how uneven it then is.
    async fn settle(&mut self, after: &str, room: Duration) -> io::Result<usize> {
        let (shards, quiet) = (self.options.shards, Duration::from_secs(self.options.quiet));
        self.watch(FRESH + STEP, |_, _| false).await?; // what was before counts no more
        let bound = self.lease() * 5 + room; // a lease and a cool-down
        let led = self.watch(bound, |sample, _| sample.led == shards).await?;
        match led {
            Some(led) => {
                self.slowest_led = self.slowest_led.max(led + FRESH + STEP);
            }
            None => self.odd(&format!("not every shard is led {bound:?} after: {after}")),
        }
        let stop = self.lease() * 5 + ROOM;
        if self.watch(stop, |_, members| !members.is_disturbed()).await?.is_none() {
            self.odd(&format!("a member has not stopped {stop:?} after: {after}"));
        }
        let bound = self.lease() * 20 + ROOM;
        let began = Instant::now();
        let mut since: Option<Instant> = None;
        let (even, imbalance) = loop {
            self.watch(STEP, |_, _| false).await?;
            let sample = self.now();
            if sample.led == shards && sample.imbalance <= 1 {
                let since = *since.get_or_insert_with(Instant::now);
                if since.elapsed() >= quiet {
                    break (Some(since - began), sample.imbalance);
                }
            } else if since.take().is_some() {
                self.relapses += 1;
            }
            if began.elapsed() >= bound + quiet {
                break (None, sample.imbalance);
            }
        };
        match even {
            Some(even) => self.slowest_even = self.slowest_even.max(even),
            None => self.odd(&format!("not even {bound:?} after: {after}")),
        }
        let seconds = |time: Option<Duration>| match time {
            Some(time) => format!("after {:.1} s", time.as_secs_f64()),
            None => "never".to_owned(),
        };
        println!(
            "{:>6.1} min: {after}; led {}, even {}; {} members",
            self.began.elapsed().as_secs_f64() / 60.0,
            seconds(led),
            seconds(even),
            self.members.count(),
        );
        Ok(imbalance)
    }

    fn odd(&mut self, what: &str) {
        let loads = self.members.judge.loads(fresh_since());
        self.faults.push(format!("{what}; shards by member: {loads:?}"));
    }

    /// Reads what the members write until this is so, and returns how long it took.
    async fn watch(
        &mut self,
        bound: Duration,
        until: impl Fn(&Sample, &Members) -> bool,
    ) -> io::Result<Option<Duration>> {
        let began = Instant::now();
        loop {
            self.members.advance(ROOM + self.lease() * 5);
            self.members.glance()?;
            let sample = self.now();
            if self.samples.last().is_none_or(|last| sample.seconds >= last.seconds + 1.0) {
                self.samples.push(sample);
            }
            if until(&sample, &self.members) {
                return Ok(Some(began.elapsed()));
            }
            if began.elapsed() >= bound {
                return Ok(None);
            }
            tokio::time::sleep(STEP).await;
        }
    }

    fn now(&self) -> Sample {
        let loads = self.members.judge.loads(fresh_since());
        let healthy = self.members.healthy();
        let of = |member: &String| loads.get(member.as_str()).copied().unwrap_or_default();
        let (most, least) = (healthy.iter().map(of).max(), healthy.iter().map(of).min());
        Sample {
            seconds: self.began.elapsed().as_secs_f64(),
            members: healthy.len(),
            led: loads.values().sum(),
            imbalance: most.unwrap_or_default() - least.unwrap_or_default(),
        }
    }

    async fn finish(mut self) -> io::Result<ExitCode> {
        let last_imbalance = self.settle("the end", FAULT_ROOM).await?;
        if last_imbalance > 1 {
            self.odd("the set is not even at the end");
        }
        self.members.stop_all();
        let within = ROOM + self.lease() * 6; // longer than a member may take
        self.watch(within, |_, members| !members.is_disturbed()).await?;
        self.members.glance()?;
        self.faults.append(&mut self.members.odd);
        self.faults.extend(self.members.complaints());
        if let Some(file) = &self.options.plot {
            fs::write(file, table(self.options, &self.samples, &self.struck))?;
        }
        let report = self.members.judge.report(true);
        let mut struck = BTreeMap::new();
        for fault in &self.struck {
            *struck.entry(fault.kind).or_default() += 1;
        }
        println!("{} faults: {}", self.struck.len(), Report::list(&struck));
        let losses = Report::list(&report.losses);
        println!("{} ticks, {} terms; ends: {losses}", report.work, report.terms);
        let mut gaps = BTreeMap::<_, (usize, Duration)>::new();
        for gap in &self.members.judge.gaps {
            let (times, longest) =
                gaps.entry(cause_of(gap, &self.struck, self.options.lease)).or_default();
            *times += 1;
            *longest = (*longest).max(Duration::from_nanos(gap.to - gap.from));
        }
        for (after, (times, longest)) in gaps {
            let longest = longest.as_secs_f64();
            println!("without work, {after}: {times} times, at most {longest:.2} s");
        }
        println!(
            "at most {:.1} s from a fault until all shards were led, {:.1} s until they were even \
             for good",
            self.slowest_led.as_secs_f64(),
            self.slowest_even.as_secs_f64()
        );
        println!(
            "imbalance: {last_imbalance} at the end; {} times even and then not, without a new \
             fault",
            self.relapses
        );
        Ok(super::verdict(&report, &self.faults))
    }
}

fn fresh_since() -> u64 {
    now().saturating_sub(u64::try_from(FRESH.as_nanos()).unwrap_or(u64::MAX))
}

/// What had happened to the member that worked before a time without work.
fn cause_of(gap: &Gap, struck: &[FaultAt], lease: u64) -> &'static str {
    let slack = 200_000_000; // a fault takes a moment
    let longest = 2 * lease * 1_000_000_000;
    let hit = struck.iter().rfind(|fault| {
        fault.member == gap.who
            && fault.kind != FaultKind::Added
            && fault.ns < gap.from + slack
            && gap.from < fault.ns + longest
    });
    hit.map_or("in a move", |fault| fault.kind.as_str())
}

/// The state of the set at one time.
#[derive(Debug, Clone, Copy)]
struct Sample {
    seconds: f64,
    /// Members to which nothing happens at the moment.
    members: usize,
    /// Shards on which a member works.
    led: usize,
    /// By how many shards the member that leads the most differs from the one that leads the least.
    imbalance: usize,
}

/// A fault, and when it was.
#[derive(Debug, Clone)]
struct FaultAt {
    ns: u64,
    seconds: f64,
    kind: FaultKind,
    member: String,
}

/// The state over time, as `scripts/plot.py` draws it.
fn table(options: &Options, samples: &[Sample], faults: &[FaultAt]) -> String {
    let Options { store, shards, members, lease, .. } = options;
    let mut text = format!(
        "#: --x seconds --y imbalance,shards_led\n\
         #: --title \"{shards} shards over {members} members on {store:?}, lease {lease} s\"\n\
         seconds,members,shards_led,imbalance,faults\n"
    );
    let mut faults = faults.iter().peekable();
    for Sample { seconds, members, led, imbalance } in samples {
        let mut since = Vec::new();
        while let Some(fault) = faults.next_if(|fault| fault.seconds <= *seconds) {
            since.push(fault.kind.as_str());
        }
        let since = since.join(" ");
        text += &format!("{seconds:.0},{members},{led},{imbalance},{since}\n");
    }
    text
}
