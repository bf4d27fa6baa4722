//! Elections of five candidates on three servers meet one fault after the other, until the time is
//! over or something is wrong.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io};

use fastrand::Rng;
use tokio::time::Instant;

use super::env::{OURS, SERVERS, Setup, TestEnv};
use crate::faults::strike;
use crate::faults::table::{Entry, TABLE, named};
use crate::judge::{FaultReport, Replays, Report};
use crate::load::fleet::Kind;
use crate::load::server::unmount;
use crate::record::journal::Event;

/// How the directories of runs are called, before the id of their process.
const DIRECTORY: &str = "incumbent-attack-run-";
/// How long a new fleet may take until it has a leader.
const FIRST: Duration = Duration::from_secs(180);
/// How many faults a fleet meets before the next fleet is started.
const ROUND: usize = 6;

/// What a run is to be like.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// For how long.
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// Decides the order of faults, whom they strike, and all durations. Random unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// This fault, once, instead of all; may be given several times. See `list`.
    #[arg(long = "fault", value_parser = fault)]
    faults: Vec<&'static Entry>,
    /// How often the faults that were named come.
    #[arg(long, default_value_t = 1)]
    times: usize,
    /// The lease and the bucket's TTL in milliseconds.
    #[arg(long, default_value_t = 3000)]
    lease: u64,
    /// On the loopback interface, even where network namespaces can be had.
    #[arg(long)]
    pub loopback: bool,
    /// Continue after a broken promise.
    #[arg(long)]
    keep_going: bool,
    /// Keep the journal and the histories, and print where.
    #[arg(long)]
    keep: bool,
}

fn fault(name: &str) -> Result<&'static Entry, String> {
    named(name).ok_or_else(|| format!("no fault is called {name:?}; `list` lists them"))
}

/// Prints the faults, and the fleets that meet them.
pub fn list() {
    for entry in TABLE {
        let fleets: Vec<_> = entry.fleets.iter().map(|kind| kind.name()).collect();
        println!("{:<34} {}", entry.name, fleets.join(", "));
    }
}

/// Runs the plan with candidates that are `program`. Leaves nothing behind but, where something was
/// wrong, the directory with the journal.
pub async fn run(options: &Options, program: &Path) -> io::Result<ExitCode> {
    sweep();
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000_000));
    let temporary = std::env::temp_dir();
    let directory = Directory(temporary.join(format!("{DIRECTORY}{}", std::process::id())));
    fs::create_dir_all(&directory.0)?;
    println!("seed: {seed}");
    let code = within(options, program, &directory.0, seed).await;
    if options.keep || !code.as_ref().is_ok_and(|code| *code == ExitCode::SUCCESS) {
        let kept = temporary.join(format!("incumbent-attack-kept-{seed}-{}", std::process::id()));
        fs::rename(&directory.0, &kept)?;
        println!("the journal and the output of all processes are in {}", kept.display());
    }
    code
}

/// The directory of a run, which does not outlive it.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // it may have been given another name, to be kept
    }
}

async fn within(
    options: &Options,
    program: &Path,
    directory: &Path,
    seed: u64,
) -> io::Result<ExitCode> {
    let setup = Setup {
        servers: SERVERS,
        candidates: OURS,
        ttl: options.lease,
        loopback: options.loopback,
        disks: true,
    };
    let mut env = TestEnv::start(&setup, program, directory, seed).await?;
    let mut not_run = BTreeMap::new();
    for entry in TABLE {
        if let Some(why) = entry.need.and_then(|need| env.lacks(need)) {
            not_run.insert(entry.name, why);
        }
    }
    let is_wanted = |entry: &&Entry| {
        options.faults.is_empty() || options.faults.iter().any(|wanted| wanted.name == entry.name)
    };
    let can = |entry: &&'static Entry| !not_run.contains_key(entry.name);
    let mut order = if options.faults.is_empty() {
        Order::endless(TABLE.iter().filter(can).collect())
    } else {
        let faults = options.faults.repeat(options.times);
        Order::once(faults.into_iter().filter(can))
    };
    let mut failures = Vec::new();
    let time = Duration::from_secs_f64((options.minutes * 60.0).clamp(0.0, 1e7));
    let begun = Instant::now();
    let mut fleet = None;
    while !options.faults.is_empty() || begun.elapsed() < time {
        let Some((kind, entry)) = order.next(&mut env.rng) else { break };
        let before = env.judge.report(false).violations.len();
        let is_new = fleet.replace(kind) != Some(kind);
        if let Err(error) = meet(&mut env, kind, is_new, entry, begun).await {
            failures.push(format!("{}: {error}", entry.name));
        }
        let report = env.judge.report(false);
        for violation in report.violations.iter().skip(before).take(3) {
            println!("    VIOLATION: {}", violation.text);
        }
        if !failures.is_empty() || (!report.violations.is_empty() && !options.keep_going) {
            break;
        }
    }
    if let Err(error) = env.dismiss().await {
        failures.push(error.to_string());
    }
    env.replay();
    let report = env.judge.report(true);
    if !report.violations.is_empty() || !failures.is_empty() {
        for (path, tail) in env.complaints() {
            println!("--- the end of {}\n{tail}", path.display());
        }
    }
    drop(env);
    // Faults that cannot be had on this machine are reported; so are those for which there was no
    // time.
    for entry in TABLE.iter().filter(is_wanted) {
        if !report.faults.contains_key(entry.name) {
            not_run.entry(entry.name).or_insert_with(|| "its turn did not come".to_owned());
        }
    }
    not_run.retain(|name, _| named(name).is_some_and(|entry| is_wanted(&entry)));
    print(&report, &not_run);
    Ok(super::verdict(&report, &failures))
}

/// One fault, from beginning to end, in this fleet. What does not come in time is an error.
async fn meet(
    env: &mut TestEnv,
    kind: Kind,
    is_new: bool,
    entry: &Entry,
    begun: Instant,
) -> io::Result<()> {
    let late = |what: String| Err(io::Error::other(what));
    if is_new {
        env.new_fleet(kind).await?;
        if env.await_leader(FIRST, |_| true).await?.is_none() {
            return late(format!("no leader of a new fleet ({}) within {FIRST:?}", kind.name()));
        }
    }
    let lease = env.lease();
    let bound = entry.bound(kind, lease);
    env.await_servers().await?;
    if env.await_leader(bound, |_| true).await?.is_none() {
        return late(format!("no leader before it, within {bound:?}"));
    }
    let phase = lease.mul_f64(env.rng.f64());
    env.pass(phase).await?;
    let terms = env.judge.report(false).terms;
    env.journal.write(Event::Begin { fault: entry.name.to_owned() });
    let whom = match strike::begin(env, entry.fault).await {
        Ok(struck) => struck,
        Err(error) => {
            env.journal.write(Event::End);
            return Err(error);
        }
    };
    let (least, most) = entry.tenths;
    let hold = lease * env.rng.u32(least..=most) / 10;
    env.pass(hold).await?;
    strike::heal(env).await?;
    let healed = Instant::now();
    let leader = env.await_leader(bound, |_| true).await?;
    let after = healed.elapsed().saturating_sub(Duration::from_secs(1));
    env.journal.write(Event::End);
    env.glance()?;
    for one in env.fleet.iter_mut().filter(|one| one.is_up()) {
        if one.has_ended() {
            return late(format!("{} ended by itself", one.name()));
        }
    }
    let led = match leader {
        Some(leader) => {
            format!("{} leads {:.1} s after", env.fleet[leader].name(), after.as_secs_f64())
        }
        None => format!("NOBODY leads {bound:?} after"),
    };
    println!(
        "{:>6.1} s  {:<34} {:<7} {whom:<24} {:>5.1} s, {} new terms, {led}",
        begun.elapsed().as_secs_f64(),
        entry.name,
        kind.name(),
        hold.as_secs_f64(),
        env.judge.report(false).terms - terms,
    );
    if leader.is_none() {
        return late(format!("no leader within {bound:?}"));
    }
    Ok(())
}

/// Removes what runs left behind that were killed.
fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.strip_prefix(DIRECTORY).is_some_and(is_gone) {
            for server in 0..SERVERS {
                unmount(&entry.path().join(format!("s{server}/store")));
            }
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether no process has this id, or one that is none of ours.
fn is_gone(run: &str) -> bool {
    if run.parse::<u32>().is_err() {
        return false; // not a name that we gave
    }
    let name = fs::read_to_string(Path::new("/proc").join(run).join("cmdline"));
    !name.is_ok_and(|name| name.contains("incumbent-attack"))
}

/// Prints a line for each fault, and what the run came to.
fn print(report: &Report, not_run: &BTreeMap<&str, String>) {
    println!(
        "\n{:<34} {:>5} {:>5} {:>10} {:>7} {:>11} {:>7}  causes",
        "fault", "times", "terms", "overlap ms", "told ms", "longest gap", "refused"
    );
    for entry in TABLE {
        let Some(row) = report.faults.get(entry.name) else { continue };
        let FaultReport { times, terms, overlap, told_overlap, gap, refused, causes } = row;
        let [overlap, told] = [overlap, told_overlap].map(|nanos| nanos.div_ceil(1_000_000));
        let gap = Duration::from_nanos(*gap).as_secs_f64();
        println!(
            "{:<34} {times:>5} {terms:>5} {overlap:>10} {told:>7} {gap:>9.1} s {refused:>7}  {}",
            entry.name,
            Report::list(causes)
        );
    }
    for (name, why) in not_run {
        println!("{name:<34} not run: {why}");
    }
    let times: u64 = report.faults.values().map(|row| row.times).sum();
    println!("\n{times} faults, {} terms, {} lines of the journal", report.terms, report.lines);
    let Replays { histories, events, actions, torn, cut } = &report.replays;
    println!(
        "{histories} histories replayed, {events} events, {actions} actions; {torn} torn, {cut} cut"
    );
}

/// The faults to come.
#[derive(Debug)]
struct Order {
    left: VecDeque<(Kind, &'static Entry)>,
    /// These again, each once in an order by chance, without end.
    again: Vec<&'static Entry>,
}

impl Order {
    /// These faults once, each in its first fleet, fleet by fleet.
    fn once(entries: impl Iterator<Item = &'static Entry>) -> Self {
        let mut all: Vec<_> =
            entries.filter_map(|entry| Some((*entry.fleets.first()?, entry))).collect();
        all.sort_by_key(|(kind, _)| *kind != Kind::Proven);
        Self { left: all.into(), again: Vec::new() }
    }

    fn endless(again: Vec<&'static Entry>) -> Self {
        Self { left: VecDeque::new(), again }
    }

    /// The next one, and the fleet to meet it.
    fn next(&mut self, rng: &mut Rng) -> Option<(Kind, &'static Entry)> {
        if self.left.is_empty() {
            self.left = shuffle(&self.again, rng).into();
        }
        self.left.pop_front()
    }
}

/// Each fault once, in a fleet by chance, in rounds of one fleet.
fn shuffle(entries: &[&'static Entry], rng: &mut Rng) -> Vec<(Kind, &'static Entry)> {
    let mut rounds = Vec::new();
    let mut drawn: Vec<_> = entries
        .iter()
        .filter_map(|entry| Some((rng.choice(entry.fleets.iter().copied())?, *entry)))
        .collect();
    rng.shuffle(&mut drawn);
    for kind in [Kind::Proven, Kind::Strict, Kind::Choria, Kind::Sentinel] {
        let of_kind: Vec<_> = drawn.iter().filter(|(drawn, _)| *drawn == kind).copied().collect();
        rounds.extend(of_kind.chunks(ROUND).map(<[_]>::to_vec));
    }
    rng.shuffle(&mut rounds);
    rounds.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_comes_once_before_one_is_repeated() {
        let mut order = Order::endless(TABLE.iter().collect());
        let mut rng = Rng::with_seed(7);
        for _ in 0..3 {
            let mut names: Vec<_> = TABLE
                .iter()
                .filter_map(|_| order.next(&mut rng))
                .inspect(|(kind, entry)| assert!(entry.fleets.contains(kind)))
                .map(|(_, entry)| entry.name)
                .collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), TABLE.len());
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_order() {
        let names = |seed| -> Vec<_> {
            let (mut order, mut rng) =
                (Order::endless(TABLE.iter().collect()), Rng::with_seed(seed));
            (0..40).filter_map(|_| order.next(&mut rng)).map(|(_, entry)| entry.name).collect()
        };
        assert_eq!(names(3), names(3));
        assert_ne!(names(3), names(4));
    }
}
