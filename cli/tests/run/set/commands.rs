//! A command for each shard.

use std::collections::BTreeMap;

use incumbent_test_support::eventually;
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use super::{SERVE, STUBBORN, is_gone, member, server, serving};
use crate::env::{CALM, Candidate, STEADY};
use crate::http::{free_port, get};

#[tokio::test]
async fn members_share_the_shards_and_the_survivor_runs_all() {
    // No shard moves before its term has lasted a lease.
    let env = server("shop", 4, STEADY).await;
    let flags = ["--shards", "4", "--moves-at-once", "2", "--identity"];
    let mut first = member(&env, &[&flags[..], &["first"]].concat(), SERVE);
    let mut of_first = BTreeMap::new();
    for _ in 0..4 {
        let (shard, pid) = serving(&mut first).await;
        of_first.insert(shard, pid);
    }
    assert_eq!(of_first.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);

    let mut second = member(&env, &[&flags[..], &["second"]].concat(), SERVE);
    let mut of_second = BTreeMap::new();
    for _ in 0..2 {
        let (shard, pid) = serving(&mut second).await;
        let before = of_first.remove(&shard).expect("a shard of the first member");
        assert!(is_gone(&before), "one command at a time for shard {shard}");
        of_second.insert(shard, pid);
    }
    assert!(of_first.values().all(|pid| !is_gone(pid)), "the others continue");

    first.signal(Signal::KILL);
    for _ in 0..2 {
        let (shard, pid) = serving(&mut second).await;
        let before = of_first.remove(&shard).expect("a shard of the first member");
        assert!(is_gone(&before), "one command at a time for shard {shard}");
        of_second.insert(shard, pid);
    }
    assert_eq!(of_second.len(), 4);
    second.signal(Signal::TERM);
    assert_eq!(second.exit_code().await, Some(128 + 15));
    assert_eq!(second.descendants(), [""; 0]);
    for shard in 0..4 {
        assert_eq!(env.holder(&format!("shop.{shard}")).await, None, "it is released");
    }
}

#[tokio::test]
async fn command_knows_its_shard_and_its_term() {
    let env = server("shop", 2, CALM).await;
    let script = "echo $INCUMBENT_SET $INCUMBENT_ELECTION $INCUMBENT_IDENTITY \
                  $INCUMBENT_SHARD/$INCUMBENT_SHARDS $1 $(cut -d' ' -f3 $INCUMBENT_DEADLINE_FILE) \
                  $INCUMBENT_TOKEN; exec sleep 1000";
    let mut run = member(&env, &["--shards", "2", "--identity", "first"], script);
    let mut lines = [run.line().await, run.line().await];
    lines.sort();
    for (shard, line) in lines.iter().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        let expected = format!("shop shop.{shard} first {shard}/2 {shard}");
        assert_eq!(words[..5].join(" "), expected, "{line}");
        assert_eq!(words[5], words[6], "the deadline file is of the same term");
    }
}

#[tokio::test]
async fn second_signal_ends_the_drains() {
    let env = server("shop", 2, CALM).await;
    let mut run = member(&env, &["--shards", "2", "--drain", "10m"], STUBBORN);
    run.wait_for_line("up").await;
    run.wait_for_line("up").await;
    run.signal(Signal::TERM);
    run.wait_for_line("draining").await;
    run.wait_for_line("draining").await;
    assert!(env.holder("shop.0").await.is_some(), "the terms continue");
    run.signal(Signal::INT);
    assert_eq!(run.exit_code().await, Some(128 + 2));
    assert_eq!(run.descendants(), [""; 0]);
    assert_eq!((env.holder("shop.0").await, env.holder("shop.1").await), (None, None));
}

#[tokio::test]
async fn shard_is_released_once_its_command_has_drained() {
    let env = server("shop", 2, CALM).await;
    let directory = tempfile::tempdir().expect("a directory");
    let done = directory.path().join("done");
    let script = format!(
        "trap 'until [ -e {} ] || [ $1 = 0 ]; do sleep 0.05; done; echo drained $1; exit 1' TERM
         echo up; while :; do sleep 0.1; done",
        done.display()
    );
    let mut run = member(&env, &["--shards", "2", "--drain", "10m"], &script);
    run.wait_for_line("up").await;
    run.wait_for_line("up").await;
    run.signal(Signal::TERM);
    run.wait_for_line("drained 0").await;
    eventually("the shard is released", async || {
        env.holder("shop.0").await.is_none().then_some(())
    })
    .await;
    assert!(env.holder("shop.1").await.is_some(), "the other one drains");
    std::fs::write(&done, "").expect("a file");
    run.wait_for_line("drained 1").await;
    assert_eq!(run.exit_code().await, Some(128 + 15));
}

#[tokio::test]
async fn shard_whose_command_ends_is_given_up_and_taken_again() {
    let env = server("shop", 2, CALM).await;
    let script = "echo $1 $INCUMBENT_TOKEN $(cut -d' ' -f1 /proc/uptime); [ $1 = 0 ] && exit 3; \
                  exec sleep 1000";
    let mut run = member(&env, &["--shards", "2"], script);
    let (mut tokens, mut starts, mut of_other) = (Vec::new(), Vec::<f64>::new(), 0);
    while tokens.len() < 3 {
        let line = run.line().await;
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["0", token, uptime] => {
                tokens.push(token.parse::<u64>().expect("a token"));
                starts.push(uptime.parse().expect("seconds"));
            }
            _ => of_other += 1,
        }
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "other terms: {tokens:?}");
    assert!(of_other <= 1, "the other shard stays");
    assert!(starts[2] - starts[0] >= 2.9, "it starts as rarely as in one term: {starts:?}");
    run.signal(Signal::TERM);
    assert_eq!(run.exit_code().await, Some(128 + 15));
    let stderr = run.stderr();
    for pause in ["1s", "2s"] {
        let note =
            format!("incumbent: shard 0: COMMAND exited with code 3; giving it up in {pause}");
        assert!(stderr.contains(&note), "{stderr}");
    }
}

#[tokio::test]
async fn command_that_ends_may_end_the_member() {
    let env = server("shop", 2, CALM).await;
    let script = "echo up; [ $1 = 1 ] && exec sleep 1000; exit 7";
    let mut run = member(&env, &["--shards", "2", "--on-exit", "exit"], script);
    assert_eq!(run.exit_code().await, Some(7));
    assert_eq!(run.descendants(), [""; 0]);
    assert_eq!((env.holder("shop.0").await, env.holder("shop.1").await), (None, None));
}

/// No process of a command is left, whichever guard it had.
#[tokio::test]
async fn killed_guard_ends_the_member() {
    let env = server("shop", 3, CALM).await;
    let script = "echo up; setsid sleep 1000 & exec sleep 1000";
    let mut run = member(&env, &["--shards", "3"], script);
    for _ in 0..3 {
        run.wait_for_line("up").await;
    }
    kill_process(run.guard(), Signal::KILL).expect("it runs");
    assert_eq!(run.exit_code().await, Some(1));
    assert_eq!(run.descendants(), [""; 0]);
    let stderr = run.stderr();
    assert!(stderr.contains("the guard of the command (run-guard, run-reaper)"), "{stderr}");
    for shard in 0..3 {
        assert_eq!(env.holder(&format!("shop.{shard}")).await, None, "it is released");
    }
}

#[tokio::test]
async fn failure_after_a_signal_is_reported_with_quiet() {
    let env = server("shop", 1, CALM).await;
    let mut run = member(&env, &["--quiet", "--shards", "1", "--drain", "10m"], STUBBORN);
    run.wait_for_line("up").await;
    run.signal(Signal::TERM);
    run.wait_for_line("draining").await;
    kill_process(run.guard(), Signal::KILL).expect("it runs");
    assert_eq!(run.exit_code().await, Some(128 + 15));
    let stderr = run.stderr();
    assert!(stderr.contains("the guard of the command (run-guard, run-reaper)"), "{stderr}");
}

#[tokio::test]
async fn many_commands_raise_the_limit_of_open_files() {
    const SHARDS: usize = 20;
    let env = server("shop", SHARDS as u32, CALM).await;
    let url = env.server.url();
    let shards = SHARDS.to_string();
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "ulimit -S -n 64; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_incumbent")])
        .args(["set", "run", "shop", "--server", &url, "--settle", "100ms", "--shards", &shards])
        .args(["--", "sleep", "1000"])
        .env_remove("NATS_URL")
        .stdin(std::process::Stdio::null());
    let mut run = Candidate::start(command);
    eventually("all run", async || {
        run.assert_runs();
        (run.descendants().len() == SHARDS).then_some(())
    })
    .await;
}

/// A drain would hold the lock, and nobody would work.
#[tokio::test]
async fn suspended_guard_ends_the_term_without_a_drain() {
    let env = server("shop", 1, STEADY).await;
    let flags = ["--shards", "1", "--drain", "10m", "--identity"];
    let mut first = member(&env, &[&flags[..], &["first"]].concat(), SERVE);
    serving(&mut first).await;
    let mut second = member(&env, &[&flags[..], &["second"]].concat(), SERVE);
    kill_process(first.guard(), Signal::STOP).expect("it runs");
    serving(&mut second).await;
}

/// The guards keep to their schedules, which nobody prolongs.
#[tokio::test]
async fn commands_of_a_suspended_member_are_stopped() {
    let env = server("shop", 2, STEADY).await;
    let flags = ["--shards", "2", "--identity"];
    let mut first = member(&env, &[&flags[..], &["first"]].concat(), SERVE);
    let (a, b) = (serving(&mut first).await, serving(&mut first).await);
    first.signal(Signal::STOP);
    let mut second = member(&env, &[&flags[..], &["second"]].concat(), SERVE);
    for _ in 0..2 {
        let (shard, _) = serving(&mut second).await;
        let before = if shard == a.0 { &a.1 } else { &b.1 };
        assert!(is_gone(before), "one command at a time for shard {shard}");
    }
    second.signal(Signal::TERM);
    assert_eq!(second.exit_code().await, Some(128 + 15));
    first.signal(Signal::CONT);
    serving(&mut first).await;
    serving(&mut first).await;
}

#[tokio::test]
async fn http_serves_the_shards() {
    let env = server("shop", 2, CALM).await;
    let (port, address) = free_port();
    let flags = ["--shards", "2", "--identity", "first", "--http", &port];
    let mut run = member(&env, &flags, "echo $1 $INCUMBENT_TOKEN; exec sleep 1000");
    let mut expected = [run.line().await, run.line().await];
    expected.sort();
    let (status, body) = get(&address, "/shards").expect("it listens");
    let shards: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(
        (status, &shards["set"], &shards["identity"]),
        (200, &"shop".into(), &"first".into())
    );
    let led = shards["led"].as_array().expect("an array").iter();
    let led: Vec<String> = led.map(|one| format!("{} {}", one["shard"], one["token"])).collect();
    assert_eq!(led, expected);
    assert_eq!(shards["shards"][1]["leader"], "first");
    for path in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(get(&address, path), Some((200, "ok: leads 2 of 2\n".to_owned())), "{path}");
    }
    let (_, metrics) = get(&address, "/metrics").expect("it listens");
    let leads = "incumbent_leader{election=\"shop.1\",identity=\"first\"} 1";
    assert!(metrics.contains(leads), "{metrics}");
}
