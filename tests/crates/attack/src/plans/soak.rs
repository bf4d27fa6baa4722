//! Thousands of candidates on a cluster whose servers are restarted one after the other, and what
//! it costs those who campaign.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use incumbent_test_support::Cluster;

use crate::judge::Report;
use crate::load::members::Members;
use crate::record::journal::Cost;

/// How large and how long.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    #[arg(long, default_value_t = 1000)]
    elections: usize,
    /// Candidates in each election: this many processes.
    #[arg(long, default_value_t = 20)]
    candidates: usize,
    /// The TTL of the bucket, in seconds.
    #[arg(long, default_value_t = 30)]
    ttl: u64,
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// Seconds of quiet after each restart.
    #[arg(long, default_value_t = 20)]
    quiet: u64,
}

/// How long a server's log of raft, a cluster's own election and a takeover may take on top of a
/// lease, also on a machine that stands still meanwhile.
const SLACK: Duration = Duration::from_secs(180);

/// Runs the plan with workers that are `program`, and prints what comes of it.
pub async fn run(options: &Options, program: &Path) -> io::Result<ExitCode> {
    let cluster = Cluster::start().await;
    let mut soak = Soak { options, fleet: Members::new(program)?, faults: Vec::new() };
    for _ in 0..options.candidates {
        soak.fleet.add("worker", &cluster.urls(), options.elections, options.ttl, Vec::new())?;
    }
    let began = Instant::now();
    let minutes = || began.elapsed().as_secs_f64() / 60.0;
    soak.await_led("the start").await?;
    let mut samples = vec![soak.quiet().await?];
    println!("{:>6.1} min: {}", minutes(), describe(&samples[0]));
    let (mut restarts, mut slowest) = (0, Duration::ZERO);
    // Each of the three at least once, however short the soak.
    while (restarts < 3 || minutes() < options.minutes) && soak.faults.is_empty() {
        let server = cluster.server(restarts % 3);
        if restarts.is_multiple_of(2) {
            server.stop().await;
        } else {
            server.kill();
        }
        server.start_again().await;
        restarts += 1;
        let led_after = soak.await_led("a restart").await?;
        slowest = slowest.max(led_after);
        let cost = soak.quiet().await?;
        samples.push(cost);
        let report = soak.fleet.judge.report(false);
        println!(
            "{:>6.1} min: {} restarted, led again after {:.1} s; {} terms, {} broken promises; \
             {}; servers {}",
            minutes(),
            server.name(),
            led_after.as_secs_f64(),
            report.terms,
            report.violations.len(),
            describe(&cost),
            describe_servers(&cluster).await,
        );
        if !report.violations.is_empty() {
            break;
        }
    }
    soak.stop().await?;
    soak.faults.extend(leaks(&samples, options.candidates as u64));
    let report = soak.fleet.judge.report(true);
    let losses = Report::list(&report.losses);
    println!("{restarts} restarts, {} terms, losses: {losses}", report.terms);
    let slowest = slowest.as_secs_f64();
    println!("at most {slowest:.1} s from a restart until all elections were led");
    if let (Some(first), Some(last)) = (samples.first(), samples.last()) {
        println!("at first {}\nat last  {}", describe(first), describe(last));
    }
    Ok(super::verdict(&report, &soak.faults))
}

struct Soak<'a> {
    options: &'a Options,
    fleet: Members,
    /// What must not be, other than what the judge finds.
    faults: Vec<String>,
}

impl Soak<'_> {
    /// Waits until every election is led, and returns how long that took.
    async fn await_led(&mut self, after: &str) -> io::Result<Duration> {
        let began = Instant::now();
        let bound = Duration::from_secs(self.options.ttl) * 2 + SLACK;
        while self.fleet.judge.held() < self.options.elections {
            if began.elapsed() > bound {
                self.faults.push(format!("not all elections were led {bound:?} after {after}"));
                break;
            }
            self.pass(Duration::from_millis(50)).await?;
        }
        Ok(began.elapsed())
    }

    async fn pass(&mut self, time: Duration) -> io::Result<()> {
        tokio::time::sleep(time).await;
        self.fleet.glance()
    }

    /// What the workers take up after some time without a disturbance.
    async fn quiet(&mut self) -> io::Result<Cost> {
        self.pass(Duration::from_secs(self.options.quiet)).await?;
        Ok(self.fleet.judge.costs.values().fold(Cost::default(), |sum, cost| Cost {
            tasks: sum.tasks + cost.tasks,
            fds: sum.fds + cost.fds,
            heap_kib: sum.heap_kib + cost.heap_kib,
            rss_kib: sum.rss_kib + cost.rss_kib,
        }))
    }

    /// Stops all workers in order, and waits until they have ended.
    async fn stop(&mut self) -> io::Result<()> {
        let within = Duration::from_secs(180);
        self.fleet.stop_all();
        while self.fleet.is_disturbed() {
            self.pass(Duration::from_millis(50)).await?;
            self.fleet.advance(within);
        }
        self.fleet.glance()?;
        self.faults.append(&mut self.fleet.odd);
        self.faults.extend(self.fleet.complaints());
        for ((who, _), Cost { tasks, fds, .. }) in &self.fleet.judge.costs {
            if *tasks > 0 {
                self.faults
                    .push(format!("{who} has {tasks} tasks and {fds} files left at its end"));
            }
        }
        let held = self.fleet.judge.held();
        if held > 0 {
            self.faults.push(format!("{held} elections are led after all were stopped"));
        }
        Ok(())
    }
}

fn describe(Cost { tasks, fds, heap_kib, rss_kib }: &Cost) -> String {
    let [heap, rss] = [heap_kib, rss_kib].map(|kib| *kib as f64 / 1024.0);
    format!("{tasks} tasks, {fds} files, {heap:.1} MiB in use, {rss:.1} MiB resident")
}

async fn describe_servers(cluster: &Cluster) -> String {
    let mut all = Vec::new();
    for server in cluster.servers() {
        let varz = server.varz().await;
        let mib = varz["mem"].as_u64().unwrap_or(0) / 1024 / 1024;
        all.push(format!("{mib} MiB {:.0} %", varz["cpu"].as_f64().unwrap_or(0.0)));
    }
    all.join(", ")
}

/// The first of two quarters of a soak against the second: what grows from one restart to the next
/// has leaked.
fn leaks(samples: &[Cost], workers: u64) -> Vec<String> {
    // The very first sample is from before the first reconnect, with buffers that are yet to be
    // used.
    let steady = samples.get(1..).unwrap_or_default();
    if steady.len() < 8 {
        return Vec::new(); // too few to tell growth from noise
    }
    let quarter = steady.len() / 4;
    let (first, last) = (&steady[..quarter], &steady[steady.len() - quarter..]);
    let mut leaks = Vec::new();
    let mut compare = |what: &str, of: fn(&Cost) -> u64, tolerated: fn(u64, u64) -> u64| {
        let (before, after) = (median(first, of), median(last, of));
        if after > before + tolerated(before, workers) {
            leaks.push(format!("{what} grew from {before} to {after}"));
        }
    };
    // Reconnects come and go: a task or two, a socket, in each process.
    compare("tasks", |cost| cost.tasks, |_, workers| 2 * workers);
    compare("files", |cost| cost.fds, |_, workers| 2 * workers);
    // Queues grow to the size that the busiest restart needs.
    compare("memory in use (KiB)", |cost| cost.heap_kib, |before, _| before / 4);
    leaks
}

fn median(samples: &[Cost], of: fn(&Cost) -> u64) -> u64 {
    let mut values: Vec<_> = samples.iter().map(of).collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_with_each_restart_is_a_leak() {
        let cost = |n: u64| {
            let heap_kib = 10_000 + 100 * n;
            Cost { tasks: 100 + n, fds: 20 + n, heap_kib, rss_kib: 2 * heap_kib }
        };
        let growing: Vec<_> = (0..40).map(cost).collect();
        assert_eq!(leaks(&growing, 2).len(), 3);
        let flat: Vec<_> = (0..40).map(|n| cost(n % 4)).collect();
        assert_eq!(leaks(&flat, 2), Vec::<String>::new());
    }
}
