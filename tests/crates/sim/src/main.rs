//! Plays out schedule after schedule, or one again.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use incumbent_sim::{Fleet, Report, Schedule, bound, run};

/// Plays out random schedules of faults around production campaigns until one breaks a promise, or
/// until stopped.
#[derive(Parser)]
struct Args {
    /// Play this schedule out again (FLEET:NUMBER, as a failure names it), and print what happens
    /// in it.
    schedule: Option<Schedule>,
    /// End after this many minutes.
    #[arg(long)]
    minutes: Option<f64>,
    /// End after this many schedules of each fleet.
    #[arg(long)]
    schedules: Option<u64>,
    /// The first seed; drawn from the clock by default.
    #[arg(long)]
    from: Option<u64>,
    /// This fleet only.
    #[arg(long)]
    fleet: Option<String>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match args.schedule {
        Some(schedule) => replay(schedule),
        None => match fleets(args.fleet.as_deref()) {
            Ok(fleets) => search(&args, &fleets),
            Err(why) => {
                eprintln!("{why}");
                ExitCode::FAILURE
            }
        },
    }
}

fn fleets(wanted: Option<&str>) -> Result<Vec<Fleet>, String> {
    let Some(name) = wanted else { return Ok(Fleet::all().collect()) };
    let schedule: Result<Schedule, _> = format!("{name}:0").parse();
    schedule.map(|schedule| vec![schedule.fleet]).map_err(|error| error.to_string())
}

/// How long to look for a smaller scenario that fails as well.
const SHRINKING: Duration = Duration::from_secs(30);

fn replay(schedule: Schedule) -> ExitCode {
    if report_failure(schedule) {
        return ExitCode::FAILURE;
    }
    let scenario = schedule.scenario();
    let Report { terms, peer_terms, releases, moved, checkpoints, sets, recovered, .. } =
        run(&scenario, false);
    let recovered = recovered.unwrap_or_default().as_secs_f64();
    println!("{scenario:#?}");
    println!(
        "{schedule} keeps every promise: {terms} terms, {peer_terms} of others; a leader \
         {recovered:.1} s after the last fault, at most {:.1} s",
        bound(&scenario).as_secs_f64()
    );
    if scenario.sentinels {
        println!("sentinels: {releases}");
    }
    if scenario.checkpoint {
        println!("checkpoint: {checkpoints}");
    }
    if scenario.moves() {
        println!("moves: {moved}");
    }
    if scenario.set.is_some() {
        println!("sets: {sets}");
    }
    ExitCode::SUCCESS
}

/// Prints why a schedule fails. Answers whether it does.
fn report_failure(schedule: Schedule) -> bool {
    let Some((scenario, report)) = schedule.shrink(SHRINKING) else { return false };
    println!(
        "{schedule} breaks a promise. The smallest scenario found that breaks one:\n{scenario:#?}"
    );
    if let Some(violation) = report.violation {
        println!("{violation}");
    }
    println!("replay: make sim SEED={schedule}");
    true
}

/// What all threads have seen together.
#[derive(Default)]
struct Tally {
    schedules: u64,
    sum: Report,
    /// In which schedule there was no leader for longest after the last fault.
    slowest: Option<Schedule>,
}

impl Tally {
    fn add(&mut self, schedule: Schedule, report: &Report) {
        self.schedules += 1;
        if report.recovered > self.sum.recovered {
            self.slowest = Some(schedule);
        }
        self.sum += report;
    }

    fn print_progress(&self, began: Instant) {
        let Report { terms, peer_terms, releases, moved, sets, simulated, recovered, .. } =
            &self.sum;
        let hours = simulated.as_secs_f64() / 3600.0;
        let minutes = began.elapsed().as_secs_f64() / 60.0;
        println!(
            "{minutes:>6.1} min: {} schedules, {hours:.0} simulated hours ({:.0} a minute), {terms} \
             terms, {peer_terms} of others, no promise broken; slowest recovery {:.1} s{}",
            self.schedules,
            hours / minutes,
            recovered.unwrap_or_default().as_secs_f64(),
            self.slowest.map_or_else(String::new, |schedule| format!(" in {schedule}")),
        );
        if releases.stored > 0 {
            println!("            sentinels: {releases}");
        }
        if moved.handovers > 0 {
            println!("            moves: {moved}");
        }
        if sets.asked > 0 {
            println!("            sets: {sets}");
        }
    }
}

fn search(args: &Args, fleets: &[Fleet]) -> ExitCode {
    let from = args.from.unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
    });
    let began = Instant::now();
    let last = args.minutes.map(|minutes| began + Duration::from_secs_f64(minutes.max(0.0) * 60.0));
    let count = fleets.len() as u64;
    let (next, ended) = (AtomicU64::new(0), AtomicBool::new(false));
    let tally = Mutex::new(Tally::default());
    let (failures, failed) = mpsc::channel();
    println!("seeds from {from}; Ctrl-C ends it");
    let failed = thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let failures = failures.clone();
            let (next, ended, tally) = (&next, &ended, &tally);
            scope.spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let over = last.is_some_and(|last| Instant::now() >= last);
                    if over || args.schedules.is_some_and(|most| number / count >= most) {
                        return;
                    }
                    let fleet = fleets[(number % count) as usize];
                    if count > 1 && !(number / count).is_multiple_of(fleet.every()) {
                        continue;
                    }
                    let schedule = Schedule { fleet, seed: from.wrapping_add(number / count) };
                    let report = schedule.run();
                    tally.lock().expect("no thread panics").add(schedule, &report);
                    if report.violation.is_some() {
                        // The receiver is gone if another one was first.
                        let _ = failures.send(schedule);
                        return;
                    }
                }
            });
        }
        drop(failures);
        loop {
            match failed.recv_timeout(Duration::from_secs(5)) {
                Ok(schedule) => {
                    ended.store(true, Ordering::Relaxed);
                    return Some(schedule);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    tally.lock().expect("no thread panics").print_progress(began);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            }
        }
    });
    let tally = tally.into_inner().expect("no thread panics");
    match failed {
        Some(schedule) => {
            let (schedules, elapsed) = (tally.schedules, began.elapsed().as_secs_f64());
            println!("found after {schedules} schedules, {elapsed:.1} s");
            report_failure(schedule);
            ExitCode::FAILURE
        }
        None => {
            tally.print_progress(began);
            ExitCode::SUCCESS
        }
    }
}
