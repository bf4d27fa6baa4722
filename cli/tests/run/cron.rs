//! `incumbent cron`: each slot on one host, under kills.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use incumbent_test_support::eventually;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::env::{CALM, Candidate, STEADY, TRY, TestEnv, incumbent, operator};
use crate::http::{free_port, get};
use crate::terms::{STOPS_WHEN_TOLD, hang, let_through, stop};

const HOSTS: [&str; 3] = ["host-1", "host-2", "host-3"];

/// A number from the environment: `FLEETS=20 SLOTS=500` runs 10,000 slots.
fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |number| number.parse().expect("a number"))
}

/// Hosts that run a job each second, which writes its slots to files.
struct Fleet<'e> {
    env: &'e TestEnv,
    name: String,
    flags: &'static [&'static str],
    directory: TempDir,
}

impl<'e> Fleet<'e> {
    fn new(env: &'e TestEnv, number: usize, flags: &'static [&'static str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self { env, name: format!("job-{number}"), flags, directory }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start(&self, host: &str) -> Candidate {
        let mut cron = incumbent();
        let url = self.env.server.url();
        cron.args(["cron", &self.name, "--server", &url, "--schedule", "* * * * * *"]);
        cron.args(["--catch-up", "1h", "--identity", host]).args(self.flags);
        let script =
            "echo $INCUMBENT_SLOT >> $0/begun; sleep 0.1; echo $INCUMBENT_SLOT >> $0/ended";
        cron.args(["--", "sh", "-c", script]).arg(self.directory.path());
        Candidate::start(cron)
    }

    /// Runs until this many slots have ended, while leaders are killed, stopped and suspended.
    /// Returns how often.
    async fn run(&self, slots: usize) -> usize {
        let mut hosts = HOSTS.map(|host| self.start(host));
        let mut ends = 0;
        for round in 0.. {
            for host in &mut hosts {
                host.assert_runs();
            }
            let before = lines(&self.file("ended")).len();
            if before >= slots {
                break;
            }
            let more = before + fastrand::usize(1..4);
            patiently("slots run", async || lines(&self.file("ended")).len() >= more).await;
            let holder = self.env.holder(&self.name).await;
            let Some(index) = HOSTS.iter().position(|host| holder.as_deref() == Some(*host)) else {
                continue;
            };
            ends += 1;
            match round % 3 {
                0 => hosts[index].signal(Signal::KILL),
                1 => hosts[index].signal(Signal::TERM),
                _ => {
                    // For longer than its lease.
                    hosts[index].signal(Signal::STOP);
                    let leads = async || self.env.holder(&self.name).await != holder;
                    patiently("another host leads", leads).await;
                    hosts[index].signal(Signal::CONT);
                    continue;
                }
            }
            hosts[index].exit().await;
            hosts[index] = self.start(HOSTS[index]);
        }
        for host in &mut hosts {
            host.signal(Signal::TERM);
            host.exit().await;
        }
        ends
    }
}

/// Waits on a machine that is busy with many fleets, without adding to its load.
async fn patiently(what: &str, is_so: impl AsyncFn() -> bool) {
    for _ in 0..3000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("waited five minutes for: {what}");
}

fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Seconds since 1970 of a slot.
fn seconds(slot: &str) -> i64 {
    let time = time::OffsetDateTime::parse(slot, &time::format_description::well_known::Rfc3339);
    time.expect("a time").unix_timestamp()
}

async fn run_fleets(flags: &'static [&'static str], check: fn(&Fleet<'_>)) {
    let env = TestEnv::start().await;
    let slots = number("SLOTS", 8);
    let fleets = (0..number("FLEETS", 2)).map(async |number| {
        let fleet = Fleet::new(&env, number, flags);
        let ends = fleet.run(slots).await;
        check(&fleet);
        let runs = ["begun", "ended"].map(|file| lines(&fleet.file(file)).len());
        [runs[0], runs[1], ends]
    });
    let figures = futures_util::future::join_all(fleets).await;
    let [begun, ended, ends] = [0, 1, 2].map(|i| figures.iter().map(|of| of[i]).sum::<usize>());
    println!("{begun} runs begun, {ended} ended, leaders ended or suspended {ends} times");
}

#[tokio::test]
async fn slots_of_killed_hosts_run_at_most_once() {
    run_fleets(&[], |fleet| {
        let begun = lines(&fleet.file("begun"));
        let slots: BTreeSet<_> = begun.iter().collect();
        assert_eq!(slots.len(), begun.len(), "a slot ran twice: {begun:?}");
    })
    .await;
}

#[tokio::test]
async fn slots_of_killed_hosts_run_at_least_once() {
    run_fleets(&["--at-least-once"], |fleet| {
        let slots: BTreeSet<_> =
            lines(&fleet.file("ended")).iter().map(|slot| seconds(slot)).collect();
        let (first, last) = (slots.first().expect("one"), slots.last().expect("one"));
        let missing: Vec<_> = (*first..*last).filter(|slot| !slots.contains(slot)).collect();
        assert_eq!(missing, [0_i64; 0], "slots never ended");
    })
    .await;
}

/// What `--list` prints of these jobs.
fn list(env: &TestEnv, jobs: &[&str]) -> serde_json::Value {
    let mut cron = operator();
    cron.args(["cron", "my_app", "--server", &env.server.url(), "--list", "--output", "json"]);
    let output = cron.args(jobs).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[tokio::test]
async fn last_runs_are_listed_with_their_exit_codes() {
    let env = TestEnv::start().await;
    let job = ["--schedule", "* * * * * *"];
    let before = list(&env, &job);
    assert_eq!((&before[0]["job"], &before[0]["last"]), (&"my_app".into(), &().into()));
    let mut cron = incumbent();
    cron.args(["cron", "my_app", "--server", &env.server.url()]).args(job);
    let _cron = Candidate::start({
        cron.args(["--", "sh", "-c", "exit 3"]);
        cron
    });
    let listed = eventually("a run is listed", async || {
        let listed = list(&env, &job)[0].clone();
        (listed["exit_code"] == 3).then_some(listed)
    })
    .await;
    assert!(listed["next"].as_str() > listed["last"].as_str(), "{listed}");
}

#[tokio::test]
async fn metrics_have_the_ends_of_runs() {
    let env = TestEnv::start().await;
    let (port, address) = free_port();
    let script = "case $INCUMBENT_SLOT in *[02468]Z) exit 0;; *) exit 3;; esac";
    let cron = start(&env, &["--http", &port], script);
    let labels = r#"election="my_app",job="my_app""#;
    let metrics = eventually("runs of both kinds", async || {
        let (_, metrics) = get(&address, "/metrics")?;
        let has = |outcome| {
            let counter = format!("incumbent_slot_runs_total{{{labels},outcome=\"{outcome}\"}} ");
            metrics.contains(&counter)
        };
        (has("success") && has("failure")).then_some(metrics)
    })
    .await;
    for gauge in ["last_success_timestamp_seconds", "last_exit_code", "last_duration_seconds"] {
        let gauge = format!("incumbent_slot_{gauge}{{{labels}}} ");
        assert!(metrics.contains(&gauge), "{gauge}: {metrics}");
    }
    drop(cron);
}

#[tokio::test]
async fn jobs_of_a_file_are_listed_in_their_zones() {
    let env = TestEnv::start().await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("crontab");
    let jobs = "CRON_TZ=Asia/Kolkata\nnoon: 0 12 * * * true\nother: @yearly true\n";
    fs::write(&file, jobs).expect("a file");
    let listed = list(&env, &["--file", &file.display().to_string()]);
    let next = listed[0]["next"].as_str().expect("a slot");
    assert!(next.ends_with("T06:30:00Z") && listed[1]["job"] == "other", "{listed}");
}

#[test]
fn what_never_runs_is_refused_in_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("crontab");
    fs::write(&file, "# jobs\nnightly 0 3 * * * true\n").expect("a file");
    let file = file.display().to_string();
    for (flags, why) in [
        (&["--schedule", "0 0 30 2 *", "--", "true"][..], "no time matches"),
        (&["--schedule", "never", "--", "true"], "is invalid"),
        (&["--schedule", "@daily", "--zone", "Nowhere", "--", "true"], "is unknown"),
        (&["--file", &file], "line 2: write it as NAME"),
        (&["--file", "/nowhere"], "No such file"),
        (&["--file", "/dev/zero"], "larger than"),
    ] {
        let output = incumbent().args(["cron", "job"]).args(flags).output().expect("it starts");
        let text = String::from_utf8(output.stderr).expect("text");
        assert_eq!((output.status.code(), text.lines().count()), (Some(2), 1), "{text}");
        assert!(text.contains(why), "{text}");
    }
}

#[tokio::test]
async fn command_of_cron_on_every_host_runs_once_a_period() {
    let env = TestEnv::with_elections(CALM, &["my_app", "long"]).await;
    let flags = ["--once-per", "1h", "--identity"];
    let mut hosts =
        HOSTS.map(|host| env.run("my_app", &[&flags[..], &[host]].concat(), "echo ran"));
    let mut ran = Vec::new();
    for host in &mut hosts {
        assert_eq!(host.exit_code().await, Some(0));
        ran.push(host.line_or_exit().await);
    }
    assert_eq!(ran.iter().filter(|line| line.is_ok()).count(), 1, "{ran:?}");
    // The others lead nine tenths of a period later, and have been started before.
    let mut leader = env.run("long", &[], "echo up; exec sleep 1000");
    leader.wait_for_line("up").await;
    let mut hosts = HOSTS.map(|host| {
        env.run("long", &["--once-per", "4s", "--identity", host], "echo ran; sleep 4")
    });
    for host in &hosts {
        host.wait_for_handlers().await;
    }
    leader.signal(Signal::TERM);
    let mut ran = 0;
    for host in &mut hosts {
        ran += usize::from(host.line_or_exit().await.is_ok());
        assert_eq!(host.exit_code().await, Some(0));
    }
    assert_eq!(ran, 1);
    // Within a period that is over.
    let mut late = env.run("my_app", &["--once-per", "1ms"], "echo ran; exit 7");
    assert_eq!((late.line().await.as_str(), late.exit_code().await), ("ran", Some(7)));
}

#[test]
fn options_that_would_repeat_a_run_of_a_period_are_refused() {
    for (flags, why) in [
        (&["--once-per", "1h", "--on-exit", "restart"][..], "exclude each other"),
        (&["--once-per", "0s"], "it must be longer"),
    ] {
        let output = incumbent().args(["run", "job"]).args(flags).args(["--", "true"]).output();
        let output = output.expect("it starts");
        let text = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.code() == Some(2) && text.contains(why), "{text}");
    }
}

/// A hook that refuses the term is no run.
#[tokio::test]
async fn run_of_a_period_is_taken_when_the_command_starts() {
    let env = TestEnv::calm().await;
    let refused = ["--once-per", "1h", "--on-won", "exit 1"];
    let mut first = env.run("my_app", &[&refused[..], &TRY].concat(), "echo ran");
    assert_eq!(first.exit_code().await, Some(1));
    let mut second = env.run("my_app", &["--once-per", "1h"], "echo ran");
    assert_eq!((second.line().await.as_str(), second.exit_code().await), ("ran", Some(0)));
}

/// Starts a job each second on this env, with these flags.
fn start(env: &TestEnv, flags: &[&str], script: &str) -> Candidate {
    let mut cron = incumbent();
    cron.args(["cron", "my_app", "--server", &env.server.url(), "--schedule", "* * * * * *"]);
    cron.args(flags).args(["--", "sh", "-c", script]);
    Candidate::start(cron)
}

#[tokio::test]
async fn idle_host_does_not_wait_for_its_drain() {
    let env = TestEnv::start().await;
    let mut cron = incumbent();
    cron.args(["cron", "my_app", "--server", &env.server.url(), "--schedule", "@yearly"]);
    cron.args(["--drain", "10m", "--identity", "first", "--", "true"]);
    let mut cron = Candidate::start(cron);
    eventually("it leads", async || {
        (env.holder("my_app").await.as_deref() == Some("first")).then_some(())
    })
    .await;
    cron.signal(Signal::TERM);
    assert_eq!(cron.exit_code().await, Some(128 + 15));
}

/// Its exit code tells nothing: it was stopped.
#[tokio::test]
async fn run_that_is_stopped_is_repeated_whatever_its_code() {
    let env = TestEnv::calm().await;
    let script = "trap 'echo ended; exit 0' TERM; echo begun; sleep 1000 & wait";
    let mut cron = start(&env, &["--at-least-once"], script);
    cron.wait_for_line("begun").await;
    cron.signal(Signal::TERM);
    cron.wait_for_line("ended").await;
    assert_eq!(cron.exit_code().await, Some(128 + 15));
    let listed = list(&env, &["--schedule", "* * * * * *"])[0].clone();
    assert_eq!((&listed["begun"], &listed["exit_code"]), (&true.into(), &().into()), "{listed}");
}

#[tokio::test]
async fn run_that_ends_within_the_drain_is_not_repeated() {
    let env = TestEnv::calm().await;
    let script = "trap 'echo ended; exit 0' TERM; echo begun; sleep 1000 & wait";
    let mut cron = start(&env, &["--drain", "10m", "--at-least-once"], script);
    cron.wait_for_line("begun").await;
    cron.signal(Signal::TERM);
    cron.wait_for_line("ended").await;
    assert_eq!(cron.exit_code().await, Some(128 + 15));
    let listed = list(&env, &["--schedule", "* * * * * *"])[0].clone();
    assert_eq!((&listed["begun"], &listed["exit_code"]), (&false.into(), &0.into()), "{listed}");
}

#[tokio::test]
async fn job_that_gives_up_the_term_does_not_hold_the_drain() {
    let env = TestEnv::with_ttl(STEADY).await;
    let mut cron = start(&env, &["--drain", "10m", "--grace", "4s"], STOPS_WHEN_TOLD);
    let file = cron.line().await;
    hang(&file).await;
    cron.wait_for_line("stops").await;
    let _reader = let_through(&file);
    stop(&file);
    assert_ne!(cron.line().await, file, "the next run, in the next term");
}
