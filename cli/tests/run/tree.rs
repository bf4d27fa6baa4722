//! Nothing that the command started outlives the right to lead.

use std::fs;
use std::process::Command;
use std::time::Duration;

use futures_util::future::join_all;
use incumbent_test_support::eventually;
use rustix::process::{Signal, kill_process};

use crate::scene::{Campaigner, Scene, deadline, now};

/// What commands do to get away from whoever started them.
const RUNAWAYS: [&str; 8] = [
    "exec sleep 1000",
    // Forks twice: its parent is gone.
    "( ( sleep 1000 & ) & ); exec sleep 1000",
    "trap '' TERM; sleep 1000 & while :; do sleep 1000; done",
    // Daemonises: a session of its own, and no parent.
    "setsid sh -c 'sh -c \"trap : TERM; while :; do sleep 1000; done\" &' ; exec sleep 1000",
    "trap '' TERM; setsid sh -c '( ( sleep 1000 & ) & ); exec setsid sleep 1000' & exec sleep 1000",
    // Starts more and more, and more when it is asked to stop.
    "while :; do sleep 1000 & sleep 0.1; done",
    "trap 'setsid sleep 1000 & setsid sleep 1000 &' TERM; while :; do sleep 0.05; done",
    "sh -c 'while :; do ( sleep 0.2 & ) ; sleep 0.05; done' & exec sleep 1000",
];
/// Many at once, as each takes a lease to be elected again.
const CAMPAIGNERS: usize = 25;
const LOSSES_OF_EACH: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_each_of_200_losses_no_descendant_is_alive_at_the_deadline() {
    let scene = Scene::with_ttl(Duration::from_secs(3)).await;
    let scripts = RUNAWAYS.iter().cycle().take(CAMPAIGNERS);
    let losses = scripts.enumerate().map(|(i, script)| evictions(&scene, i, script));
    join_all(losses).await;
}

async fn evictions(scene: &Scene, i: usize, script: &str) {
    let name = format!("runaway{i}");
    let script = format!("echo $INCUMBENT_TOKEN $INCUMBENT_DEADLINE_FILE; {script}");
    let mut run = match (i / RUNAWAYS.len()).is_multiple_of(2) {
        true => scene.run_without_cgroup(&name, &[], &script),
        false => scene.run(&name, &[], &script),
    };
    let mut term = run.line().await;
    for _ in 0..LOSSES_OF_EACH {
        let (token, file) = term.split_once(' ').expect("two words");
        scene.evict(&name).await;
        let next = gone_by_the_deadline(&mut run, token, file).await;
        term = match next {
            Some(next) => next,
            None => run.line().await,
        };
    }
}

/// Looks when the next term begins, or at the deadline if that comes first.
async fn gone_by_the_deadline(run: &mut Campaigner, token: &str, file: &str) -> Option<String> {
    let mut latest = 0.0_f64;
    let next = loop {
        let (at, of_term) = deadline(file);
        if of_term == token {
            latest = latest.max(at); // a last renewal may have been under way
        }
        let left = latest - now();
        if left <= 0.0 {
            break None;
        }
        let left = Duration::from_secs_f64(left.min(0.1));
        if let Ok(line) = tokio::time::timeout(left, run.line()).await {
            break Some(line);
        }
    };
    assert_eq!(run.of_term(token), [""; 0], "of {token}, at {} of {latest}", now());
    next
}

/// A campaigner that does not run cannot stop anything. Its guard can.
#[tokio::test]
async fn the_command_of_a_campaigner_that_stands_still_is_gone_at_the_deadline() {
    let scene = Scene::start().await;
    let script =
        "echo $INCUMBENT_TOKEN $INCUMBENT_DEADLINE_FILE; trap '' TERM; sleep 1000; sleep 1000";
    let mut run = scene.run("my_app", &[], script);
    let term = run.line().await;
    let (token, file) = term.split_once(' ').expect("two words");
    run.signal(Signal::STOP);
    assert_eq!(gone_by_the_deadline(&mut run, token, file).await, None);
    run.signal(Signal::CONT);
    assert_ne!(run.line().await, term, "it stands again");
}

/// What a guard cannot stop any more falls to the campaigner.
#[tokio::test]
async fn a_guard_that_is_killed_takes_all_with_it() {
    let scene = Scene::start().await;
    let script = "trap '' TERM; setsid sleep 1000 & ( ( sleep 1000 & ) & ); echo up; sleep 1000";
    let mut run = scene.run_without_cgroup("my_app", &[], script);
    run.says("up").await;
    kill_process(run.guard(), Signal::KILL).expect("a guard");
    assert_eq!(run.exit_code().await, Some(1));
    assert_eq!(run.descendants(), [""; 0]);
    assert_eq!(scene.holder("my_app").await, None);
    let line = run.errors();
    assert!(line.contains("run-guard") && line.lines().count() == 1, "{line}");
}

#[tokio::test]
async fn a_guard_that_stands_still_is_helped() {
    let scene = Scene::start().await;
    let mut run = scene.run("my_app", &[], "setsid sleep 1000 & echo up; sleep 1000");
    run.says("up").await;
    kill_process(run.guard(), Signal::STOP).expect("a guard");
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(128 + 15));
    assert_eq!(run.descendants(), [""; 0]);
}

/// The campaigner notices, and does not wait for it.
#[tokio::test]
async fn a_guard_that_stands_still_ends_the_term() {
    let scene = Scene::start().await;
    let script = "setsid sleep 1000 & echo $INCUMBENT_TOKEN; sleep 1000";
    let mut first = scene.run_without_cgroup("my_app", &["--identity", "first"], script);
    let token = first.line().await;
    let mut second = scene.run("my_app", &[], "echo up; exec sleep 1000");
    kill_process(first.guard(), Signal::STOP).expect("a guard");
    second.says("up").await;
    assert_eq!(first.of_term(&token), [""; 0]);
    second.signal(Signal::TERM);
    assert_ne!(first.line().await, token, "it stands again");
}

/// In a name space of their own all processes end with the first of them, which is tied to the guard.
#[tokio::test]
async fn both_killed_at_once_leave_nothing_in_a_name_space() {
    const ISOLATED: [&str; 5] = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let may = Command::new(ISOLATED[0]).args(&ISOLATED[1..]).arg("true").status();
    if !may.is_ok_and(|status| status.success()) {
        return;
    }
    let scene = Scene::start().await;
    let script = "trap '' TERM; setsid sleep 1000 & ( ( sleep 1000 & ) & ); echo up; sleep 1000";
    let command = [&ISOLATED[..], &["sh", "-c", script]].concat();
    let mut run = Campaigner::start(scene.command("my_app", &[], &command));
    run.says("up").await;
    let guard = run.guard();
    run.signal(Signal::STOP); // so that it cannot help
    kill_process(guard, Signal::KILL).expect("a guard");
    run.nothing_is_left().await;
    run.signal(Signal::KILL);
}

/// Not only when it looks again: a timer goes off as the machine wakes from suspension after the deadline.
#[tokio::test]
async fn a_guard_is_woken_by_a_timer_that_counts_suspension() {
    const BOOTTIME: &str = "clockid: 7";
    let scene = Scene::start().await;
    let mut run = scene.run("my_app", &[], "echo up; exec sleep 1000");
    run.says("up").await;
    let descriptors = format!("/proc/{}/fdinfo", run.guard().as_raw_pid());
    eventually("the guard has such a timer", async || {
        let timers = fs::read_dir(&descriptors).ok()?.flatten();
        let mut timers = timers.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        timers
            .any(|timer| timer.contains(BOOTTIME) && !timer.contains("it_value: (0, 0)"))
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn both_killed_at_once_leave_no_command() {
    let scene = Scene::start().await;
    let mut run = scene.run("my_app", &[], "echo up; exec sleep 1000");
    run.says("up").await;
    let guard = run.guard();
    run.signal(Signal::STOP); // so that it cannot help
    kill_process(guard, Signal::KILL).expect("a guard");
    run.nothing_is_left().await;
    run.signal(Signal::KILL);
    eventually("the entry expires", async || scene.holder("my_app").await.is_none().then_some(()))
        .await;
}
