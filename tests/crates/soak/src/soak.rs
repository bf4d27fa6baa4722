//! The soak itself: restarts, samples, and what is made of them.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use incumbent_test_support::Cluster;

use crate::fleet::{Cost, Fleet};

/// How large and how long.
#[derive(Debug, Clone, clap::Args)]
pub struct Plan {
    #[arg(long, default_value_t = 1000)]
    pub elections: usize,
    /// Candidates in each election: so many processes.
    #[arg(long, default_value_t = 20)]
    pub candidates: usize,
    /// The TTL of the bucket, in seconds.
    #[arg(long, default_value_t = 30)]
    pub ttl: u64,
    #[arg(long, default_value_t = 30.0)]
    pub minutes: f64,
    /// Seconds of quiet after each restart.
    #[arg(long, default_value_t = 20)]
    pub quiet: u64,
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Report {
    pub restarts: usize,
    pub terms: usize,
    pub losses: Vec<(String, u64)>,
    /// The longest time from the end of a restart until every election was led.
    pub slowest: Duration,
    /// At the first quiet time and at the last one.
    pub costs: Option<(Cost, Cost)>,
    /// What must not be.
    pub faults: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { restarts, terms, losses, slowest, costs, faults } = self;
        let losses: Vec<_> = losses.iter().map(|(cause, n)| format!("{n} {cause}")).collect();
        let (losses, slowest) = (losses.join(", "), slowest.as_secs_f64());
        writeln!(f, "{restarts} restarts, {terms} terms, losses: {losses}")?;
        writeln!(f, "at most {slowest:.1} s from a restart until all elections were led")?;
        if let Some((first, last)) = costs {
            writeln!(f, "at first {first}\nat last  {last}")?;
        }
        for fault in faults.iter().take(20) {
            writeln!(f, "FAULT: {fault}")?;
        }
        write!(f, "{} faults", faults.len())
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { led, tasks, fds, heap_kib, rss_kib } = self;
        let [heap, rss] = [heap_kib, rss_kib].map(|kib| *kib as f64 / 1024.0);
        write!(
            f,
            "{led} led, {tasks} tasks, {fds} files, {heap:.1} MiB in use, {rss:.1} MiB resident"
        )
    }
}

/// How long a server's log of raft, a cluster's own election and a takeover may take on top of a
/// lease.
const SLACK: Duration = Duration::from_secs(60);

/// Runs `plan` with workers that are `program`, and prints the progress.
///
/// # Errors
/// Where the workers cannot be started.
pub async fn soak(program: &Path, plan: &Plan) -> std::io::Result<Report> {
    let cluster = Cluster::start().await;
    let mut fleet = Fleet::start(program, plan, &cluster.urls())?;
    let mut report = Report::default();
    let began = Instant::now();
    let bound = Duration::from_secs(plan.ttl) * 2 + SLACK;
    let wanted = Duration::from_secs_f64(plan.minutes * 60.0);
    if !all_led(&fleet, plan, bound).await {
        report.faults.push(format!("not all elections were led after {bound:?}"));
    }
    let mut samples = vec![quiet(&fleet, plan).await];
    println!("{:>6.1} min: {}", minutes(began), samples[0]);
    // Each of the three at least once, however short the soak.
    while (report.restarts < 3 || began.elapsed() < wanted) && report.faults.is_empty() {
        let server = cluster.server(report.restarts % 3);
        if report.restarts.is_multiple_of(2) {
            server.stop().await;
        } else {
            server.kill();
        }
        server.start_again().await;
        report.restarts += 1;
        let restarted = Instant::now();
        if !all_led(&fleet, plan, bound).await {
            report.faults.push(format!("not all elections were led {bound:?} after a restart"));
        }
        let led_after = restarted.elapsed();
        report.slowest = report.slowest.max(led_after);
        let cost = quiet(&fleet, plan).await;
        samples.push(cost);
        let terms = fleet.book().terms();
        let faults = fleet.book().faults().len();
        println!(
            "{:>6.1} min: {} restarted, led again after {:.1} s; {terms} terms, {faults} faults; {cost}; servers {}",
            minutes(began),
            server.name(),
            led_after.as_secs_f64(),
            servers(&cluster).await,
        );
        if faults > 0 {
            break;
        }
    }
    fleet.stop().await?;
    let book = fleet.book();
    report.terms = book.terms();
    report.losses = book.losses.iter().map(|(cause, n)| (cause.clone(), *n)).collect();
    report.faults.extend(book.faults());
    report.faults.extend(leaks(&samples, plan));
    report.faults.extend(book.ended.iter().filter(|(tasks, _)| *tasks > 0).map(|(tasks, fds)| {
        format!("{tasks} tasks and {fds} files are left after all elections were stopped")
    }));
    if book.led() > 0 {
        report.faults.push(format!("{} elections are led after all were stopped", book.led()));
    }
    report.costs = samples.first().copied().zip(samples.last().copied());
    Ok(report)
}

fn minutes(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() / 60.0
}

async fn all_led(fleet: &Fleet, plan: &Plan, bound: Duration) -> bool {
    let wait = async {
        while fleet.book().led() < plan.elections {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(bound, wait).await.is_ok()
}

/// What the workers take up after some time without a disturbance.
async fn quiet(fleet: &Fleet, plan: &Plan) -> Cost {
    tokio::time::sleep(Duration::from_secs(plan.quiet)).await;
    fleet.book().cost()
}

/// The first of two quarters of a soak against the second: what grows from one restart to the next
/// has leaked.
fn leaks(samples: &[Cost], plan: &Plan) -> Vec<String> {
    // The very first sample is from before the first reconnect, with buffers that are yet to be
    // used.
    let steady = samples.get(1..).unwrap_or_default();
    if steady.len() < 8 {
        return Vec::new(); // too few to tell growth from noise
    }
    let quarter = steady.len() / 4;
    let (first, last) = (&steady[..quarter], &steady[steady.len() - quarter..]);
    let grows = |what: &str, of: &dyn Fn(&Cost) -> u64, tolerated: &dyn Fn(u64) -> u64| {
        let (before, after) = (median(first, of), median(last, of));
        (after > before + tolerated(before))
            .then(|| format!("{what} grew from {before} to {after}"))
    };
    let workers = plan.candidates as u64;
    [
        // Reconnects come and go: a task or two, a socket, in each process.
        grows("tasks", &|cost| cost.tasks as u64, &|_| 2 * workers),
        grows("files", &|cost| cost.fds as u64, &|_| 2 * workers),
        // Queues grow to the size that the busiest restart needs.
        grows("memory in use (KiB)", &|cost| cost.heap_kib, &|before| before / 4),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn median(samples: &[Cost], of: &dyn Fn(&Cost) -> u64) -> u64 {
    let mut values: Vec<_> = samples.iter().map(of).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

async fn servers(cluster: &Cluster) -> String {
    let mut told = Vec::new();
    for server in cluster.servers() {
        let varz = server.varz().await;
        let mib = varz["mem"].as_u64().unwrap_or(0) / 1024 / 1024;
        told.push(format!("{mib} MiB {:.0} %", varz["cpu"].as_f64().unwrap_or(0.0)));
    }
    told.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan { elections: 10, candidates: 2, ttl: 30, minutes: 1.0, quiet: 1 }
    }

    fn cost(n: usize) -> Cost {
        let heap_kib = 10_000 + 100 * n as u64;
        Cost { led: 10, tasks: 100 + n, fds: 20 + n, heap_kib, rss_kib: 2 * heap_kib }
    }

    #[test]
    fn growth_with_each_restart_is_a_leak() {
        let growing: Vec<_> = (0..40).map(cost).collect();
        assert_eq!(leaks(&growing, &plan()).len(), 3);
        let flat: Vec<_> = (0..40).map(|n| cost(n % 4)).collect();
        assert_eq!(leaks(&flat, &plan()), Vec::<String>::new());
    }
}
