//! A run: one fault after the other, until the time is over or something is wrong.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::attack;
use crate::checker::Report;
use crate::env::TestEnv;
use crate::fault::{Entry, TABLE};
use crate::fleet::Kind;
use crate::journal::Event;
use crate::net;
use crate::plan::Plan;
use crate::server::unmount;

/// How the directories of runs are called, before the id of their process.
const DIRECTORY: &str = "incumbent-chaos-run-";
/// How long a new fleet may take until it has a leader.
const FIRST: Duration = Duration::from_secs(60);

/// What a run is to be like.
#[derive(Debug, Clone)]
pub struct Options {
    /// Decides the order of faults, whom they strike, and all durations.
    pub seed: u64,
    /// For how long; without faults of its own it runs all of them, again and again.
    pub time: Duration,
    /// These faults, once, instead.
    pub faults: Vec<&'static Entry>,
    /// The lease, and the bucket's TTL.
    pub lease: Duration,
    /// Not in network namespaces, even where they can be had.
    pub loopback: bool,
    /// This program.
    pub program: PathBuf,
    /// Go on after a broken promise.
    pub keep_going: bool,
    /// Keep the directory of the run, whatever becomes of it.
    pub keep: bool,
}

/// How a run ended.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What the log shows.
    pub report: Report,
    /// The faults that were not run, and why.
    pub not_run: BTreeMap<&'static str, String>,
    /// What did not come in time, or could not be done.
    pub failures: Vec<String>,
}

impl Outcome {
    /// Whether every promise was kept.
    pub fn is_good(&self) -> bool {
        self.report.violations.is_empty() && self.failures.is_empty()
    }
}

/// Attacks an election. Leaves nothing behind but, where something was wrong, the directory with
/// the log.
///
/// # Errors
///
/// Where it could not even begin.
pub async fn run(options: &Options, say: &mut impl FnMut(&str)) -> io::Result<Outcome> {
    sweep();
    let temporary = std::env::temp_dir();
    let directory = Directory(temporary.join(format!("{DIRECTORY}{}", std::process::id())));
    fs::create_dir_all(&directory.0)?;
    say(&format!("seed: {}", options.seed));
    let outcome = within(options, &directory.0, say).await;
    if options.keep || !outcome.as_ref().is_ok_and(Outcome::is_good) {
        let kept =
            temporary.join(format!("incumbent-chaos-kept-{}-{}", options.seed, std::process::id()));
        fs::rename(&directory.0, &kept)?;
        say(&format!("the log and the output of all processes are in {}", kept.display()));
    }
    outcome
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
    directory: &Path,
    say: &mut impl FnMut(&str),
) -> io::Result<Outcome> {
    let mut env = TestEnv::start(options, directory, say).await?;
    let mut outcome = Outcome::default();
    for entry in TABLE {
        if let Some(why) = entry.needs.iter().find_map(|need| env.lacks(*need)) {
            outcome.not_run.insert(entry.name, why);
        }
    }
    let can = |entry: &Entry| !outcome.not_run.contains_key(entry.name);
    let mut plan = if options.faults.is_empty() {
        Plan::endless(can)
    } else {
        let faults: Vec<_> = options.faults.iter().copied().filter(|entry| can(entry)).collect();
        Plan::once(&faults)
    };
    let begun = Instant::now();
    let mut fleet = None;
    while !options.faults.is_empty() || begun.elapsed() < options.time {
        let Some((kind, entry)) = plan.next(&mut env.rng) else { break };
        let before = env.checker.report(false).violations.len();
        let done = async {
            if fleet.replace(kind) != Some(kind) {
                env.new_fleet(kind).await?;
                if env.await_leader(FIRST, |_| true).await?.is_none() {
                    let name = kind.name();
                    return Ok(Some(format!("no leader of a new fleet ({name}) within {FIRST:?}")));
                }
            }
            strike(&mut env, kind, entry, begun, say).await
        };
        match done.await {
            Ok(None) => {}
            Ok(Some(late)) => outcome.failures.push(late),
            Err(error) => outcome.failures.push(format!("{}: {error}", entry.name)),
        }
        let report = env.checker.report(false);
        for violation in report.violations.iter().skip(before).take(3) {
            say(&format!("    VIOLATION: {}", violation.text));
        }
        if !outcome.failures.is_empty() || (!report.violations.is_empty() && !options.keep_going) {
            break;
        }
    }
    if let Err(error) = env.dismiss().await {
        outcome.failures.push(error.to_string());
    }
    env.replay();
    outcome.report = env.checker.report(true);
    if !outcome.is_good() {
        for (path, tail) in env.complaints() {
            say(&format!("--- the end of {}\n{tail}", path.display()));
        }
    }
    drop(env);
    // Faults that cannot run on this machine are reported; so are those for which there was no
    // time.
    for entry in TABLE {
        let run = outcome.report.faults.contains_key(entry.name);
        if !run && options.faults.is_empty() {
            let why = || "its turn did not come".to_owned();
            outcome.not_run.entry(entry.name).or_insert_with(why);
        }
    }
    if !options.faults.is_empty() {
        outcome.not_run.retain(|name, _| options.faults.iter().any(|entry| entry.name == *name));
    }
    Ok(outcome)
}

/// One fault, from beginning to end; answers what did not come in time.
async fn strike(
    env: &mut TestEnv,
    kind: Kind,
    entry: &Entry,
    begun: Instant,
    say: &mut impl FnMut(&str),
) -> io::Result<Option<String>> {
    let lease = env.lease();
    env.await_servers().await?;
    if env.await_leader(entry.bound(kind, lease), |_| true).await?.is_none() {
        return Ok(Some(format!("before {}: no leader", entry.name)));
    }
    let phase = lease.mul_f64(env.rng.f64());
    env.pass(phase).await?;
    let terms = env.checker.report(false).terms;
    env.mark(Event::Begin { fault: entry.name.to_owned() });
    let struck = attack::begin(env, entry.fault).await;
    let (wounds, whom) = match struck {
        Ok(struck) => struck,
        Err(error) => {
            env.mark(Event::End);
            return Err(error);
        }
    };
    let (least, most) = entry.tenths;
    let hold = lease * env.rng.u32(least..=most) / 10;
    env.pass(hold).await?;
    attack::heal(env, &wounds).await?;
    env.mark(Event::Healed);
    let healed = Instant::now();
    let bound = entry.bound(kind, lease);
    let leader = env.await_leader(bound, |_| true).await?;
    let after = healed.elapsed();
    env.mark(Event::End);
    env.glance()?;
    let died = env.fleet.iter_mut().filter(|one| one.is_up()).find_map(|one| {
        let name = one.name();
        one.has_ended().then_some(name)
    });
    if let Some(name) = died {
        return Ok(Some(format!("{}: {name} ended by itself", entry.name)));
    }
    let report = env.checker.report(false);
    say(&format!(
        "{:>6.1} s  {:<34} {:<7} {:<24} {:>5.1} s, {} new terms, {}",
        begun.elapsed().as_secs_f64(),
        entry.name,
        kind.name(),
        whom,
        hold.as_secs_f64(),
        report.terms - terms,
        match leader {
            Some(leader) => format!(
                "{} leads {:.1} s after",
                env.fleet[leader].name(),
                after.saturating_sub(Duration::from_secs(1)).as_secs_f64()
            ),
            None => format!("NOBODY leads {bound:?} after"),
        }
    ));
    let late = leader.is_none().then(|| format!("{}: no leader within {bound:?}", entry.name));
    Ok(late)
}

/// Removes what runs left behind that were killed.
fn sweep() {
    net::sweep();
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.strip_prefix(DIRECTORY).is_some_and(net::is_gone) {
            for server in 0..crate::env::SERVERS {
                unmount(&entry.path().join(format!("s{server}/store")));
            }
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
