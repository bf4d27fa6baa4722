//! The soak of a set: faults, samples, and what is made of them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::fleet::{FaultKind, Members};
use super::ledger::{Gap, Ledger};
use super::plot::{self, FaultAt, Sample};
use super::store::{Store, StoreKind};
use super::ticks::monotonic_ns;

/// How large and how long.
#[derive(Debug, Clone, clap::Args)]
pub struct SetPlan {
    #[arg(long, value_enum, default_value_t = StoreKind::Nats)]
    pub store: StoreKind,
    #[arg(long, default_value_t = 64)]
    pub shards: usize,
    /// The most members at a time: so many processes.
    #[arg(long, default_value_t = 8)]
    pub members: usize,
    /// The lease, in seconds.
    #[arg(long, default_value_t = 3)]
    pub lease: u64,
    #[arg(long, default_value_t = 10.0)]
    pub minutes: f64,
    /// For how many seconds the set is to be even before the next fault.
    #[arg(long, default_value_t = 3)]
    pub quiet: u64,
    /// Repeats the choices of an earlier run.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Where to write the imbalance over time: a table and a picture, with the endings .csv and
    /// .svg.
    #[arg(long)]
    pub plot: Option<PathBuf>,
}

/// What was seen.
#[derive(Debug, Default)]
pub struct SetReport {
    pub struck: BTreeMap<FaultKind, usize>,
    pub ticks: u64,
    pub terms: usize,
    /// The ends of terms, by cause.
    pub losses: BTreeMap<String, u64>,
    pub overlaps: Vec<String>,
    /// By what had happened to the member that worked before: how many times without work there
    /// were, and the longest.
    pub gaps: BTreeMap<&'static str, (usize, Duration)>,
    /// The longest time from a fault until every shard was led.
    pub slowest_led: Duration,
    /// The longest time from the end of the last fault until the set was even for the quiet time.
    pub slowest_even: Duration,
    /// How many times the set was even, and after less than the quiet time no longer.
    pub relapses: usize,
    pub last_imbalance: usize,
    /// What must not be.
    pub faults: Vec<String>,
}

impl SetReport {
    /// Whether every promise was kept.
    pub fn is_clean(&self) -> bool {
        self.overlaps.is_empty() && self.faults.is_empty()
    }
}

impl fmt::Display for SetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |counts: Vec<String>| counts.join(", ");
        let struck = list(self.struck.iter().map(|(kind, n)| format!("{n} {kind}")).collect());
        let losses = list(self.losses.iter().map(|(cause, n)| format!("{n} {cause}")).collect());
        writeln!(f, "{} faults: {struck}", self.struck.values().sum::<usize>())?;
        writeln!(f, "{} ticks, {} terms; ends: {losses}", self.ticks, self.terms)?;
        writeln!(f, "{} overlaps", self.overlaps.len())?;
        for (after, (count, longest)) in &self.gaps {
            let longest = longest.as_secs_f64();
            writeln!(f, "without work, {after}: {count} times, at most {longest:.2} s")?;
        }
        writeln!(
            f,
            "at most {:.1} s from a fault until all shards were led, {:.1} s until they were even for good",
            self.slowest_led.as_secs_f64(),
            self.slowest_even.as_secs_f64()
        )?;
        writeln!(
            f,
            "imbalance: {} at the end; {} times even and then not, without a new fault",
            self.last_imbalance, self.relapses
        )?;
        for fault in self.overlaps.iter().chain(&self.faults).take(40) {
            writeln!(f, "FAULT: {fault}")?;
        }
        write!(f, "{} broken promises", self.overlaps.len() + self.faults.len())
    }
}

/// A tick that is older is none of now.
const FRESH: Duration = Duration::from_millis(500);
/// How often the lines are read.
const STEP: Duration = Duration::from_millis(100);

/// Runs `plan` with members that are `program`, and prints the progress.
///
/// # Errors
/// Where the members cannot be started, or a file cannot be read or written.
pub async fn soak_set(program: &Path, plan: &SetPlan) -> io::Result<SetReport> {
    let seed = plan.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let mut run = Run::start(program, plan, seed).await?;
    run.attack().await?;
    run.finish().await
}

struct Run<'a> {
    plan: &'a SetPlan,
    random: fastrand::Rng,
    members: Members,
    ledger: Ledger,
    lines: Lines,
    began: Instant,
    samples: Vec<Sample>,
    struck: Vec<FaultAt>,
    report: SetReport,
}

/// The end of the file, of which the last line may be unfinished.
struct Lines {
    file: File,
    rest: Vec<u8>,
}

impl Lines {
    fn read(&mut self, ledger: &mut Ledger) -> io::Result<()> {
        self.file.read_to_end(&mut self.rest)?;
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines = String::from_utf8_lossy(&self.rest[..whole]).into_owned();
        lines.lines().for_each(|line| ledger.take(line));
        self.rest.drain(..whole);
        Ok(())
    }
}

impl<'a> Run<'a> {
    async fn start(program: &Path, plan: &'a SetPlan, seed: u64) -> io::Result<Self> {
        let store = Store::start(plan.store).await;
        let mut members = Members::new(program, store, plan.shards, plan.lease)?;
        File::create(members.ticks())?;
        let lines = Lines { file: File::open(members.ticks())?, rest: Vec::new() };
        for _ in 0..plan.members {
            members.add().await?;
        }
        Ok(Self {
            plan,
            random: fastrand::Rng::with_seed(seed),
            members,
            ledger: Ledger::new(plan.shards),
            lines,
            began: Instant::now(),
            samples: Vec::new(),
            struck: Vec::new(),
            report: SetReport::default(),
        })
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(self.plan.lease)
    }

    /// Each kind of fault at least once, however short the soak.
    async fn attack(&mut self) -> io::Result<()> {
        self.settle("the start").await?;
        let wanted = Duration::from_secs_f64(self.plan.minutes * 60.0);
        let mut due = FaultKind::ALL.to_vec();
        self.random.shuffle(&mut due);
        while self.report.faults.is_empty() && (self.began.elapsed() < wanted || !due.is_empty()) {
            let kind = self.choose(&mut due);
            let mut what = self.strike(kind).await?;
            // Some of them before the set has settled after the one before.
            while self.random.f64() < 0.35 {
                let pause = self.lease().mul_f64(self.random.f64());
                self.watch(pause, |_, _| false).await?;
                let kind = self.choose(&mut due);
                what = format!("{what}, {}", self.strike(kind).await?);
            }
            self.settle(&what).await?;
        }
        Ok(())
    }

    fn choose(&mut self, due: &mut Vec<FaultKind>) -> FaultKind {
        let possible = |kind: &FaultKind, run: &Self| match kind {
            FaultKind::Added => run.members.count() < run.plan.members,
            // There is always somebody who can lead, and nearly always enough to be even.
            FaultKind::Killed | FaultKind::Stopped => {
                run.members.healthy().len() > run.plan.members / 2
            }
            FaultKind::Paused | FaultKind::Partitioned => run.members.healthy().len() > 2,
        };
        if let Some(at) = due.iter().position(|kind| possible(kind, self)) {
            return due.remove(at);
        }
        let kinds: Vec<_> =
            FaultKind::ALL.into_iter().filter(|kind| possible(kind, self)).collect();
        // Members come as often as they go.
        let missing = self.plan.members - self.members.count();
        if missing > 0 && self.random.usize(..4) < missing {
            return FaultKind::Added;
        }
        *self.random.choice(&kinds).unwrap_or(&FaultKind::Added)
    }

    async fn strike(&mut self, kind: FaultKind) -> io::Result<String> {
        let healthy = self.members.healthy();
        let (ns, seconds) = (monotonic_ns(), self.began.elapsed().as_secs_f64());
        let mut lasts = Duration::ZERO;
        let member = if kind == FaultKind::Added {
            self.members.add().await?
        } else {
            let member = self.random.choice(&healthy).cloned().unwrap_or_default();
            // Shorter than a lease, about one, and far longer.
            let leases = [0.3, 0.8, 1.0, 1.2, 3.0];
            lasts = self.lease().mul_f64(*self.random.choice(&leases).unwrap_or(&1.0));
            self.members.strike(&member, kind, lasts);
            member
        };
        *self.report.struck.entry(kind).or_default() += 1;
        self.struck.push(FaultAt { ns, seconds, kind, member: member.clone() });
        Ok(match kind {
            FaultKind::Paused | FaultKind::Partitioned => format!("{member} {kind} for {lasts:?}"),
            _ => format!("{member} {kind}"),
        })
    }

    /// Waits until every shard is led and the set is even, and watches it for a while.
    async fn settle(&mut self, after: &str) -> io::Result<()> {
        let (shards, quiet) = (self.plan.shards, Duration::from_secs(self.plan.quiet));
        self.watch(FRESH + STEP, |_, _| false).await?; // what was before counts no more
        // A lease and a cool-down, each with room for a machine that is busy.
        let bound = self.lease() * 5 + Duration::from_secs(10);
        let led = self.watch(bound, |sample, _| sample.led == shards).await?;
        match led {
            Some(led) => {
                self.report.slowest_led = self.report.slowest_led.max(led + FRESH + STEP);
            }
            None => self.odd(&format!("not every shard is led {bound:?} after: {after}")),
        }
        let stop = self.lease() * 5 + Duration::from_secs(20);
        if self.watch(stop, |_, members| !members.is_disturbed()).await?.is_none() {
            self.odd(&format!("a member has not stopped {stop:?} after: {after}"));
        }
        let bound = self.lease() * 20 + Duration::from_secs(60);
        let began = Instant::now();
        let mut since: Option<Instant> = None;
        let even = loop {
            self.watch(STEP, |_, _| false).await?;
            let sample = self.now();
            if sample.led == shards && sample.imbalance <= 1 {
                let since = *since.get_or_insert_with(Instant::now);
                if since.elapsed() >= quiet {
                    break Some(since - began);
                }
            } else if since.take().is_some() {
                self.report.relapses += 1;
            }
            if began.elapsed() >= bound + quiet {
                break None;
            }
        };
        match even {
            Some(even) => self.report.slowest_even = self.report.slowest_even.max(even),
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
        Ok(())
    }

    fn odd(&mut self, what: &str) {
        let loads = self.ledger.loads(fresh_since());
        self.report.faults.push(format!("{what}; shards by member: {loads:?}"));
    }

    /// Reads what the members write until this is so, and returns how long it took.
    async fn watch(
        &mut self,
        bound: Duration,
        until: impl Fn(&Sample, &Members) -> bool,
    ) -> io::Result<Option<Duration>> {
        let began = Instant::now();
        loop {
            self.members.advance(Duration::from_secs(20) + self.lease() * 5);
            self.lines.read(&mut self.ledger)?;
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
        let loads = self.ledger.loads(fresh_since());
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

    async fn finish(mut self) -> io::Result<SetReport> {
        self.settle("the end").await?;
        self.report.last_imbalance = self.now().imbalance;
        if self.report.last_imbalance > 1 {
            self.odd("the set is not even at the end");
        }
        self.members.stop_all();
        let within = Duration::from_secs(30) + self.lease() * 5;
        self.watch(within, |_, members| !members.is_disturbed()).await?;
        self.lines.read(&mut self.ledger)?;
        let mut report = self.report;
        report.ticks = self.ledger.ticks;
        report.terms = self.ledger.terms();
        report.overlaps = self.ledger.overlaps();
        report.faults.extend(self.ledger.odd().iter().chain(&self.members.odd).cloned());
        report.faults.extend(self.members.complaints());
        for gap in &self.ledger.gaps {
            let after = cause_of(gap, &self.struck, self.plan.lease);
            let (count, longest) = report.gaps.entry(after).or_default();
            *count += 1;
            *longest = (*longest).max(Duration::from_nanos(gap.to - gap.from));
        }
        report.losses = self.ledger.losses;
        if let Some(file) = &self.plan.plot {
            plot::write(file, &title(self.plan), &self.samples, &self.struck)?;
        }
        Ok(report)
    }
}

fn fresh_since() -> u64 {
    monotonic_ns().saturating_sub(u64::try_from(FRESH.as_nanos()).unwrap_or(u64::MAX))
}

/// What had happened to the member that worked before a time without work.
fn cause_of(gap: &Gap, struck: &[FaultAt], lease: u64) -> &'static str {
    let slack = 200_000_000; // a fault takes a moment
    let longest = 2 * lease * 1_000_000_000;
    let hit = struck.iter().rfind(|fault| {
        fault.member == gap.member
            && fault.kind != FaultKind::Added
            && fault.ns < gap.from + slack
            && gap.from < fault.ns + longest
    });
    hit.map_or("in a move", |fault| fault.kind.as_str())
}

/// What the picture shows.
fn title(plan: &SetPlan) -> String {
    let SetPlan { shards, members, lease, .. } = plan;
    let store = match plan.store {
        StoreKind::Nats => "a nats-server",
        StoreKind::NatsCluster => "three nats-servers",
        StoreKind::Postgres => "PostgreSQL",
    };
    format!("Imbalance of {shards} shards over {members} members on {store}, lease {lease} s")
}
