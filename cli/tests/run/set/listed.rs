//! One command for all shards, which it reads from a file.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use incumbent_test_support::eventually;
use rustix::process::Signal;
use tempfile::TempDir;

use super::{is_gone, member, server};
use crate::env::{Candidate, LEASE, TestEnv};

const LISTEN: &str = "trap 'echo changed' USR1; trap 'echo bye; exit 7' USR2; \
                      echo $$; while :; do sleep 0.01; done";

/// The shards in the file, each with a token.
fn shards(file: &Path) -> BTreeSet<u32> {
    let text = fs::read_to_string(file).expect("a file");
    let shard = |line: &str| {
        let (shard, token) = line.split_once(' ').expect("two words");
        assert!(token.parse::<u64>().is_ok_and(|token| token > 0), "{line}");
        shard.parse().expect("a number")
    };
    text.lines().map(shard).collect()
}

/// Waits until the command is signalled, and so many shards are in the file.
async fn changed_to(member: &mut Candidate, file: &Path, count: usize) -> BTreeSet<u32> {
    while shards(file).len() != count {
        member.wait_for_line("changed").await;
    }
    shards(file)
}

/// Starts a member of a set of four shards.
fn listening(
    env: &TestEnv,
    place: &TempDir,
    identity: &str,
    more: &[&str],
) -> (Candidate, PathBuf) {
    let file = place.path().join(identity);
    let path = file.to_str().expect("text").to_owned();
    let flags = ["--shards", "4", "--moves-at-once", "4", "--identity", identity];
    let flags = [&flags[..], &["--signal-changes", &path], more].concat();
    (member(env, &flags, LISTEN), file)
}

#[tokio::test]
async fn command_is_signalled_each_change_of_its_shards() {
    let env = server("shop", 4, LEASE).await;
    let place = tempfile::tempdir().expect("a directory");
    let (mut first, file) = listening(&env, &place, "first", &[]);
    let pid = first.line().await;
    first.wait_for_line("changed").await;
    changed_to(&mut first, &file, 4).await;

    let (mut second, other_file) = listening(&env, &place, "second", &[]);
    let left = changed_to(&mut first, &file, 2).await;
    let taken = changed_to(&mut second, &other_file, 2).await;
    assert_eq!(&left | &taken, (0..4).collect(), "each shard has one leader");
    assert!(left.is_disjoint(&taken));

    second.signal(Signal::KILL);
    changed_to(&mut first, &file, 4).await;
    assert_eq!(second.descendants(), [""; 0]);
    assert!(!is_gone(&pid), "the same process");

    first.signal(Signal::USR2);
    first.wait_for_line("bye").await;
    assert_eq!(first.exit_code().await, Some(7), "the member ends with its command");
    for shard in 0..4 {
        assert_eq!(env.holder(&format!("shop.{shard}")).await, None, "it is released");
    }
    assert_eq!(shards(&file), BTreeSet::new());
}

#[tokio::test]
async fn shards_that_drain_leave_the_file_at_once() {
    let env = server("shop", 4, LEASE).await;
    let place = tempfile::tempdir().expect("a directory");
    let (mut first, file) = listening(&env, &place, "first", &["--drain", "10m"]);
    first.line().await;
    changed_to(&mut first, &file, 4).await;
    let (mut second, _) = listening(&env, &place, "second", &[]);
    second.line().await;
    let left = changed_to(&mut first, &file, 2).await;
    for shard in 0..4 {
        let holder = env.holder(&format!("shop.{shard}")).await;
        assert_eq!(holder.as_deref(), Some("first"), "{left:?}: its term goes on");
    }
    first.signal(Signal::TERM);
    changed_to(&mut second, &place.path().join("second"), 4).await;
    assert_eq!(first.exit_code().await, Some(128 + 15));
}

#[tokio::test]
async fn shards_that_cannot_be_renewed_leave_the_file() {
    let env = server("shop", 4, Duration::from_secs(2)).await;
    let place = tempfile::tempdir().expect("a directory");
    let (mut first, file) = listening(&env, &place, "first", &[]);
    let pid = first.line().await;
    changed_to(&mut first, &file, 4).await;
    env.server.pause();
    changed_to(&mut first, &file, 0).await;
    assert!(!is_gone(&pid), "the command was signalled in time, and goes on");
    env.server.resume();
    changed_to(&mut first, &file, 4).await;
}

/// Nobody changes the file of a member that is suspended.
#[tokio::test]
async fn command_of_a_suspended_member_is_stopped() {
    let env = server("shop", 4, Duration::from_secs(2)).await;
    let place = tempfile::tempdir().expect("a directory");
    let (mut first, file) = listening(&env, &place, "first", &[]);
    let pid = first.line().await;
    changed_to(&mut first, &file, 4).await;
    first.signal(Signal::STOP);
    eventually("the command is stopped", async || is_gone(&pid).then_some(())).await;
    first.signal(Signal::CONT);
    let exit_code = first.exit_code().await;
    let stderr = first.stderr();
    assert_eq!(exit_code, Some(1), "{stderr}");
    assert!(stderr.contains("did not renew its leases"), "{stderr}");
}

#[tokio::test]
async fn signal_stops_the_command_before_the_shards_are_released() {
    let env = server("shop", 4, LEASE).await;
    let place = tempfile::tempdir().expect("a directory");
    let (mut first, file) = listening(&env, &place, "first", &[]);
    let pid = first.line().await;
    changed_to(&mut first, &file, 4).await;
    let (mut second, other_file) = listening(&env, &place, "second", &["--settle", "1h"]);
    second.line().await;
    first.signal(Signal::TERM);
    second.wait_for_line("changed").await;
    assert!(is_gone(&pid));
    changed_to(&mut second, &other_file, 4).await;
    assert_eq!(first.exit_code().await, Some(128 + 15));
    assert_eq!(first.descendants(), [""; 0]);
}
