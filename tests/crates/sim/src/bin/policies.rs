//! Simulates what each back-off policy costs the server, and how soon a standby takes over by it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use clap::Parser;
use incumbent::lock::{Content, Coverage};
use incumbent::protocol::Backoff;
use incumbent_sim::{CandidateSetup, Fault, Polling, Scenario, World};

const LEASE: Duration = Duration::from_secs(5);
/// Between two takeovers, and for how long the busiest second is looked for after each.
const BETWEEN: Duration = Duration::from_secs(15);
const STEP: Duration = Duration::from_millis(1);

/// Prints a table of back-off policies: the load of the server, and the times of takeovers.
#[derive(Parser)]
struct Args {
    /// Numbers of standbys.
    #[arg(long, value_delimiter = ',', default_value = "100,1000,10000")]
    sizes: Vec<usize>,
    /// This policy only.
    #[arg(long)]
    policy: Option<String>,
    /// Elections of each policy and number.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Releases in each election, and as many crashes.
    #[arg(long, default_value_t = 10)]
    takeovers: u32,
    /// Write the figures here, too, below the lines of this file that begin with `#`.
    #[arg(long)]
    csv: Option<PathBuf>,
}

/// How standbys learn of a vacancy.
struct Policy {
    name: &'static str,
    coverage: Coverage,
    polling: Polling,
    /// After this many minutes they poll as rarely as they will.
    settled: u64,
    /// For this many minutes their load is counted: a whole cycle, if the policy has one.
    counted: u64,
}

fn policies() -> Vec<Policy> {
    let polls = |name, polling, settled, counted| {
        let coverage = Coverage::None;
        Policy { name, coverage, polling, settled, counted }
    };
    let standard = Polling::Choria(Backoff::FIVE_SEC);
    let hints = |name, coverage, settled| {
        let (polling, counted) = (standard, 5);
        Policy { name, coverage, polling, settled, counted }
    };
    vec![
        polls("FIVE_SEC", standard, 3, 5),
        polls("FIVE_SEC_START_GRACE", Polling::Choria(Backoff::FIVE_SEC_START_GRACE), 3, 5),
        polls("TWENTY_SEC", Polling::Choria(Backoff::TWENTY_SEC), 15, 5),
        polls("exponential", Polling::Exponential, 30, 15),
        hints("8 queue groups", Coverage::Sampled, 60),
        hints("all hints", Coverage::Full, 1),
    ]
}

/// What was seen of one policy.
#[derive(Default)]
struct Figures {
    requests_per_s: f64,
    deliveries_per_s: f64,
    /// Requests in the busiest second after a release, and after a crash.
    busiest: [u64; 2],
    takeovers: [Vec<Duration>; 2],
}

fn main() -> io::Result<()> {
    let args = Args::parse();
    let mut csv = String::from(
        "policy,standbys,requests_per_s,hints_per_s,load_per_s,busiest_release,busiest_crash,\
         release_median_ms,release_max_ms,crash_median_ms,crash_max_ms\n",
    );
    println!(
        "| policy | standbys | requests/s | hints/s | requests in the busiest second after a \
         release, a crash | from a release, ms: median, longest | from a crash, s: median, longest |"
    );
    println!("|---|---|---|---|---|---|---|");
    let wanted = |policy: &Policy| args.policy.as_ref().is_none_or(|name| name == policy.name);
    for policy in policies().into_iter().filter(wanted) {
        for &standbys in &args.sizes {
            let mut figures = Figures::default();
            for seed in 1..=args.seeds {
                play(&policy, standbys, seed, &args, &mut figures);
            }
            print(&policy, standbys, &mut figures, &mut csv);
        }
    }
    args.csv.map_or(Ok(()), |file| write_below_comments(&file, &csv))
}

/// Plays one election: a quiet time, then releases and crashes of its leader.
fn play(policy: &Policy, standbys: usize, seed: u64, args: &Args, figures: &mut Figures) {
    let setup = |who: usize| CandidateSetup {
        ppm: (who % 2000) as i16 - 1000,
        polling: policy.polling,
        ..CandidateSetup::new(policy.coverage)
    };
    let candidates = (0..=standbys).map(setup).collect();
    let mut world = World::new(&Scenario::new(seed, LEASE, candidates), false);
    world.calm();
    let minutes = |number: u64| Duration::from_secs(60 * number);
    world.run(minutes(policy.settled));
    let before = (world.checker.requests, world.checker.deliveries);
    world.run(minutes(policy.settled + policy.counted));
    let seconds = (policy.counted * 60 * args.seeds) as f64;
    let per_s = |count: u64| count as f64 / seconds;
    figures.requests_per_s += per_s(world.checker.requests - before.0);
    figures.deliveries_per_s += per_s(world.checker.deliveries - before.1);
    for number in 0..args.takeovers * 2 {
        // At other moments between two renewals.
        world.run(world.now() + BETWEEN + Duration::from_millis(u64::from(number) * 331 % 1667));
        let who = (0..=standbys).find(|who| world.checker.is_leading(*who)).expect("one leads");
        let crashes = number % 2 == 1;
        let fault =
            if crashes { Fault::Crash { who, back_ms: 12_000 } } else { Fault::Resign { who } };
        let mut load = Load::new(&world);
        world.inflict(&fault);
        if !crashes {
            // Its work takes its time to stop.
            while world.servers[0].last.as_ref().is_some_and(is_held) {
                load.step(&mut world);
            }
        }
        let vacant_from = world.now();
        loop {
            load.step(&mut world);
            if world.checker.has_leader() {
                break;
            }
        }
        let kind = usize::from(crashes);
        figures.takeovers[kind].push(world.now() - vacant_from);
        let until = world.now() + BETWEEN;
        while world.now() < until {
            load.step(&mut world);
        }
        figures.busiest[kind] = figures.busiest[kind].max(load.busiest);
        assert_eq!(world.checker.violation, None);
    }
}

fn is_held(stored: &incumbent_sim::Stored) -> bool {
    matches!(stored.record.content, Content::Held(_))
}

/// The requests of the last second, and of the busiest one.
struct Load {
    counts: std::collections::VecDeque<u64>,
    busiest: u64,
}

impl Load {
    fn new(world: &World) -> Self {
        Self { counts: [world.checker.requests].into(), busiest: 0 }
    }

    fn step(&mut self, world: &mut World) {
        world.run(world.now() + STEP);
        if self.counts.len() > 1000 {
            self.counts.pop_front();
        }
        self.counts.push_back(world.checker.requests);
        self.busiest = self.busiest.max(world.checker.requests - self.counts[0]);
    }
}

/// The median and the longest.
fn summary(times: &mut [Duration]) -> [u128; 2] {
    times.sort_unstable();
    [times[times.len() / 2], times[times.len() - 1]].map(|time| time.as_millis())
}

fn print(policy: &Policy, standbys: usize, figures: &mut Figures, csv: &mut String) {
    let name = policy.name;
    let Figures { requests_per_s, deliveries_per_s, busiest: [release, crash], .. } = *figures;
    let load = requests_per_s + deliveries_per_s;
    let [[median, longest], [crash_median, crash_longest]] =
        figures.takeovers.each_mut().map(|times| summary(times));
    let seconds = |millis: u128| millis as f64 / 1000.0;
    println!(
        "| {name} | {standbys} | {requests_per_s:.1} | {deliveries_per_s:.1} | {release}, {crash} \
         | {median}, {longest} | {:.1}, {:.1} |",
        seconds(crash_median),
        seconds(crash_longest)
    );
    let row = format!(
        "{name},{standbys},{requests_per_s:.2},{deliveries_per_s:.2},{load:.2},{release},{crash},\
         {median},{longest},{crash_median},{crash_longest}"
    );
    writeln!(csv, "{row}").expect("a String takes it");
}

fn write_below_comments(file: &Path, csv: &str) -> io::Result<()> {
    let before = fs::read_to_string(file).unwrap_or_default();
    let comments = before.lines().filter(|line| line.starts_with('#'));
    let comments: String = comments.map(|line| format!("{line}\n")).collect();
    fs::write(file, comments + csv)
}
