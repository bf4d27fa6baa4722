//! No process of the command outlives the deadline of its term.

use std::fs;
use std::process::Command;
use std::time::Duration;

use futures_util::future::join_all;
use incumbent_test_support::eventually;
use rustix::process::{Signal, kill_process};

use crate::env::{Candidate, STEADY, TestEnv, now, read_deadline};
use crate::root::Delegated;

/// Scripts whose processes escape from the process tree or ignore SIGTERM.
const RUNAWAYS: [&str; 8] = [
    "exec sleep 1000",
    // Forks twice, so that its parent has ended.
    "( ( sleep 1000 & ) & ); exec sleep 1000",
    "trap '' TERM; sleep 1000 & while :; do sleep 1000; done",
    // A daemon: its own session, and no parent.
    "setsid sh -c 'sh -c \"trap : TERM; while :; do sleep 1000; done\" &' ; exec sleep 1000",
    "trap '' TERM; setsid sh -c '( ( sleep 1000 & ) & ); exec setsid sleep 1000' & exec sleep 1000",
    // Starts processes continuously, also on SIGTERM.
    "while :; do sleep 1000 & sleep 0.1; done",
    "trap 'setsid sleep 1000 & setsid sleep 1000 &' TERM; while :; do sleep 0.05; done",
    "sh -c 'while :; do ( sleep 0.2 & ) ; sleep 0.05; done' & exec sleep 1000",
];
/// They run concurrently, because each needs a lease to win again.
const CANDIDATES: usize = 40;
const LOSSES_PER_CANDIDATE: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_descendant_outlives_the_deadline_in_200_losses() {
    // Guards of a busy machine are scheduled late: see the next test.
    let env = TestEnv::with_ttl(Duration::from_secs(12)).await;
    let scripts = RUNAWAYS.iter().cycle().take(CANDIDATES);
    let losses = scripts.enumerate().map(|(i, script)| evictions(&env, i, script));
    join_all(losses).await;
}

async fn evictions(env: &TestEnv, i: usize, script: &str) {
    let name = format!("runaway{i}");
    let script = format!("echo $INCUMBENT_TOKEN $INCUMBENT_DEADLINE_FILE; {script}");
    let mut run = match (i / RUNAWAYS.len()).is_multiple_of(2) {
        true => env.run_without_cgroup(&name, &[], &script),
        false => env.run(&name, &[], &script),
    };
    let mut term = run.line().await;
    for _ in 0..LOSSES_PER_CANDIDATE {
        let (token, file) = term.split_once(' ').expect("two words");
        env.evict(&name).await;
        let next = assert_gone_by_deadline(&mut run, token, file).await;
        term = match next {
            Some(next) => next,
            None => run.line().await,
        };
    }
}

/// Checks the processes of a term when the next term begins, or at the deadline if that is earlier.
/// Returns the first line of the next term. For as long as this process stood still, as the guard
/// may have too, the check is later.
async fn assert_gone_by_deadline(run: &mut Candidate, token: &str, file: &str) -> Option<String> {
    let (mut latest, mut stood_still) = (0.0_f64, 0.0);
    let next = loop {
        let (at, of_term) = read_deadline(file);
        if of_term == token {
            latest = latest.max(at); // a last renewal may have been in flight
        }
        let began = now();
        let left = latest + stood_still - began;
        if left <= 0.0 {
            break None;
        }
        let left = left.min(0.1);
        if let Ok(line) = tokio::time::timeout(Duration::from_secs_f64(left), run.line()).await {
            break Some(line);
        }
        let late = now() - began - left;
        if late > 1.0 {
            stood_still += late;
        }
    };
    assert_eq!(
        run.descendants_of_term(token),
        [""; 0],
        "of term {token}, at {} with deadline {latest}, stood still for {stood_still} s",
        now()
    );
    next
}

/// The guard stops the command of a suspended candidate.
///
/// The guard kills a 24th of the lease before the deadline, and an overloaded machine schedules the
/// guard late. A lease of 24 s leaves it 1 s, where the default of 4 s leaves 166 ms.
#[tokio::test]
async fn command_of_a_suspended_candidate_ends_by_the_deadline() {
    let env = TestEnv::with_ttl(Duration::from_secs(24)).await;
    let script =
        "echo $INCUMBENT_TOKEN $INCUMBENT_DEADLINE_FILE; trap '' TERM; sleep 1000; sleep 1000";
    let mut run = env.run("my_app", &[], script);
    let term = run.line().await;
    let (token, file) = term.split_once(' ').expect("two words");
    run.signal(Signal::STOP);
    assert_eq!(assert_gone_by_deadline(&mut run, token, file).await, None);
    run.signal(Signal::CONT);
    assert_ne!(run.line().await, term, "the candidate wins again");
}

/// A tree of processes that ignore SIGTERM, in sessions of their own and without parents.
const TREE: &str = "trap '' TERM; setsid sleep 1000 & ( ( sleep 1000 & ) & ); echo up; sleep 1000";

async fn runaway(env: &TestEnv) -> Candidate {
    let mut run = env.run_without_cgroup("my_app", &[], TREE);
    run.wait_for_line("up").await;
    run
}

/// The command starts in its control group, and may leave it.
#[tokio::test]
async fn what_a_command_starts_early_is_in_its_control_group() {
    let Some(chosen) = Delegated::create() else { return };
    let env = TestEnv::calm().await;
    let script = format!(
        "( setsid sleep 1000 & ); sleep 1000 & \
         echo $$ > {}/cgroup.procs; echo up; exec sleep 1000",
        chosen.path().display()
    );
    let mut run = env.run("my_app", &[], &script);
    run.wait_for_line("up").await;
    let is_chosen = |group: &&String| chosen.path().ends_with(group.trim_start_matches('/'));
    eventually("two processes are in the group, and one is where it went", async || {
        let groups = run.groups();
        let (chosen, others): (Vec<_>, Vec<_>) = groups.iter().partition(is_chosen);
        let ours = others.iter().filter(|group| group.contains("/incumbent-")).count();
        ((chosen.len(), ours, others.len()) == (1, 2, 2)).then_some(())
    })
    .await;
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(128 + 15));
    assert_eq!(run.descendants(), [""; 0]);
}

/// Its reaper adopts its processes.
#[tokio::test]
async fn tree_of_a_killed_guard_is_stopped() {
    let env = TestEnv::calm().await;
    let mut run = runaway(&env).await;
    kill_process(run.guard(), Signal::KILL).expect("a guard");
    assert_eq!(run.exit_code().await, Some(1));
    assert_eq!(run.descendants(), [""; 0]);
    assert_eq!(env.holder("my_app").await, None);
    let line = run.stderr();
    assert!(line.contains("run-guard") && line.lines().count() == 1, "{line}");
}

/// Nobody is left who knows whether the tree has ended.
#[tokio::test]
async fn lock_is_not_released_without_guard_and_reaper() {
    let env = TestEnv::calm().await;
    let mut run = env.run_without_cgroup(
        "my_app",
        &[],
        "setsid sleep 1000 2>/dev/null & echo up; exec sleep 1000",
    );
    run.wait_for_line("up").await;
    let (guard, reaper) = run.guard_and_reaper();
    kill_process(reaper, Signal::STOP).expect("a reaper");
    kill_process(guard, Signal::KILL).expect("a guard");
    kill_process(reaper, Signal::KILL).expect("a reaper");
    assert_eq!(run.exit_code().await, Some(1));
    assert!(env.holder("my_app").await.is_some(), "not released: a process is left");
    // What was killed may not have ended yet.
    eventually("one process is left", async || (run.descendants().len() == 1).then_some(())).await;
    let stderr = run.stderr();
    assert!(stderr.contains("its guard and the reaper were killed"), "{stderr}");
}

/// Nobody would end what a guard leaves that is killed later.
#[tokio::test]
async fn killed_reaper_ends_the_command_and_the_program() {
    let env = TestEnv::calm().await;
    let script = "setsid sleep 1000 & ( ( sleep 1000 & ) & ); echo up; sleep 1000";
    let mut run = env.run_without_cgroup("my_app", &[], script);
    run.wait_for_line("up").await;
    kill_process(run.guard_and_reaper().1, Signal::KILL).expect("a reaper");
    assert_eq!(run.exit_code().await, Some(1));
    assert_eq!(run.descendants(), [""; 0]);
    assert_eq!(env.holder("my_app").await, None, "released");
    let line = run.stderr();
    assert!(line.contains("run-reaper") && line.lines().count() == 1, "{line}");
}

/// Its command ends all the same, by the reaper of its guard.
#[tokio::test]
async fn tree_of_a_killed_candidate_and_guard_is_stopped() {
    let env = TestEnv::calm().await;
    let run = runaway(&env).await;
    let guard = run.guard();
    run.signal(Signal::STOP); // both end at one instant
    kill_process(guard, Signal::KILL).expect("a guard");
    run.signal(Signal::KILL);
    run.wait_for_no_descendants().await;
}

/// The reaper resumes the guard, which stops its command.
#[tokio::test]
async fn suspended_guard_of_a_killed_candidate_stops_the_tree() {
    let env = TestEnv::calm().await;
    let run = runaway(&env).await;
    kill_process(run.guard(), Signal::STOP).expect("a guard");
    run.signal(Signal::KILL);
    run.wait_for_no_descendants().await;
}

#[tokio::test]
async fn candidate_stops_the_tree_of_a_suspended_guard() {
    let env = TestEnv::with_ttl(STEADY).await;
    let mut run =
        env.run("my_app", &[], "setsid sleep 1000 2>/dev/null & echo up; exec sleep 1000");
    run.wait_for_line("up").await;
    kill_process(run.guard(), Signal::STOP).expect("a guard");
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(128 + 15));
    assert_eq!(run.descendants(), [""; 0]);
}

/// The candidate detects the suspended guard and does not wait for it.
#[tokio::test]
async fn suspended_guard_ends_the_term() {
    let env = TestEnv::with_ttl(STEADY).await;
    let script = "setsid sleep 1000 & echo $INCUMBENT_TOKEN; sleep 1000";
    let mut first = env.run_without_cgroup("my_app", &["--identity", "first"], script);
    let token = first.line().await;
    let mut second = env.run("my_app", &[], "echo up; exec sleep 1000");
    kill_process(first.guard(), Signal::STOP).expect("a guard");
    second.wait_for_line("up").await;
    assert_eq!(first.descendants_of_term(&token), [""; 0]);
    second.signal(Signal::TERM);
    assert_ne!(first.line().await, token, "the candidate wins again");
}

/// All processes of a PID namespace end with its first process, which ends with the guard.
#[tokio::test]
async fn no_process_in_a_pid_namespace_outlives_candidate_and_guard() {
    const ISOLATED: [&str; 5] = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let may = Command::new(ISOLATED[0]).args(&ISOLATED[1..]).arg("true").status();
    if !may.is_ok_and(|status| status.success()) {
        return;
    }
    let env = TestEnv::calm().await;
    let command = [&ISOLATED[..], &["sh", "-c", TREE]].concat();
    let mut run = Candidate::start(env.command("my_app", &[], &command));
    run.wait_for_line("up").await;
    let guard = run.guard();
    run.signal(Signal::STOP); // so that the candidate cannot stop the tree
    kill_process(guard, Signal::KILL).expect("a guard");
    run.wait_for_no_descendants().await;
    run.signal(Signal::KILL);
}

/// The timer fires when the machine wakes from suspension after the deadline.
#[tokio::test]
async fn guard_has_a_timer_that_counts_suspension() {
    const BOOTTIME: &str = "clockid: 7";
    let env = TestEnv::calm().await;
    let mut run = env.run("my_app", &[], "echo up; exec sleep 1000");
    run.wait_for_line("up").await;
    let descriptors = format!("/proc/{}/fdinfo", run.guard().as_raw_pid());
    eventually("the guard has a timer of the boot clock", async || {
        let timers = fs::read_dir(&descriptors).ok()?.flatten();
        let mut timers = timers.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        timers
            .any(|timer| timer.contains(BOOTTIME) && !timer.contains("it_value: (0, 0)"))
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn no_command_outlives_candidate_and_guard() {
    let env = TestEnv::with_ttl(STEADY).await;
    let mut run = env.run("my_app", &[], "echo up; exec sleep 1000");
    run.wait_for_line("up").await;
    let guard = run.guard();
    run.signal(Signal::STOP); // so that the candidate cannot stop the tree
    kill_process(guard, Signal::KILL).expect("a guard");
    run.wait_for_no_descendants().await;
    run.signal(Signal::KILL);
    eventually("the entry expires", async || env.holder("my_app").await.is_none().then_some(()))
        .await;
}
