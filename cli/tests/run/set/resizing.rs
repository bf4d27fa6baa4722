//! Changing the number of shards of a set that is running, by two rolling restarts.

use std::collections::BTreeMap;

use incumbent_test_support::eventually;
use rustix::process::Signal;
use tempfile::TempDir;

use super::{member, server};
use crate::env::{Candidate, LEASE, TestEnv};

/// Key K belongs to shard K modulo the number of shards, of 4 as of 8. A command holds a file lock
/// for each key of its shard, which ends with its last process, and says which one it cannot get.
const WORK: &str = r#"
    exec 8>"$KEYS/$1"; flock -n 8 || echo "key $1 has two members at work"
    if [ "$INCUMBENT_SHARDS" = 4 ]; then
        exec 9>"$KEYS/$(($1 + 4))"; flock -n 9 || echo "key $(($1 + 4)) has two members at work"
    fi
    echo serves; exec sleep 1000"#;

/// The members of a set whose number of shards changes.
struct Resized {
    env: TestEnv,
    keys: TempDir,
}

impl Resized {
    async fn new() -> Self {
        let env = server("shop", 8, LEASE).await;
        Self { env, keys: tempfile::tempdir().expect("a directory") }
    }

    async fn start(&self, identity: &str, numbers: &[&str]) -> Candidate {
        let flags = ["--moves-at-once", "8", "--identity", identity];
        let script = format!("KEYS={}\n{WORK}", self.keys.path().display());
        let member = member(&self.env, &[&flags, numbers].concat(), &script);
        member.wait_for_handlers().await;
        member
    }

    /// Waits until each of these members holds so many of the 8 elections, and works on so many
    /// shards.
    async fn settle(&self, expected: [(&mut Candidate, &str); 2], elections: usize, shards: usize) {
        let mut held: BTreeMap<String, usize> = BTreeMap::new();
        for (member, identity) in expected {
            held.insert(identity.to_owned(), elections);
            for _ in 0..shards {
                assert_eq!(member.line().await, "serves");
            }
        }
        self.hold(&held).await;
    }

    async fn hold(&self, expected: &BTreeMap<String, usize>) {
        eventually("the entries are held evenly", async || {
            let mut held = BTreeMap::new();
            for shard in 0..8 {
                if let Some(holder) = self.env.holder(&format!("shop.{shard}")).await {
                    *held.entry(holder).or_default() += 1;
                }
            }
            (held == *expected).then_some(())
        })
        .await;
    }

    /// Ends a member, and checks what its commands have said.
    async fn end(mut member: Candidate, signal: Signal) {
        member.signal(signal);
        while let Ok(line) = member.line_or_exit().await {
            assert_eq!(line, "serves");
        }
    }
}

#[tokio::test]
async fn set_grows_by_two_rolling_restarts() {
    let set = Resized::new().await;
    let mut first = set.start("first", &["--shards", "4"]).await;
    let mut second = set.start("second", &["--shards", "4"]).await;
    set.settle([(&mut first, "first"), (&mut second, "second")], 2, 2).await;

    let both = ["--shards", "4", "--resizing", "8"];
    let mut third = set.start("third", &both).await;
    Resized::end(first, Signal::TERM).await;
    let mut fourth = set.start("fourth", &both).await;
    Resized::end(second, Signal::TERM).await;
    set.settle([(&mut third, "third"), (&mut fourth, "fourth")], 4, 2).await;

    let mut fifth = set.start("fifth", &["--shards", "8"]).await;
    Resized::end(third, Signal::TERM).await;
    let mut sixth = set.start("sixth", &["--shards", "8"]).await;
    Resized::end(fourth, Signal::TERM).await;
    set.settle([(&mut fifth, "fifth"), (&mut sixth, "sixth")], 4, 4).await;

    Resized::end(fifth, Signal::TERM).await;
    Resized::end(sixth, Signal::TERM).await;
}

#[tokio::test]
async fn set_shrinks_by_two_rolling_restarts() {
    let set = Resized::new().await;
    let mut first = set.start("first", &["--shards", "8"]).await;
    let mut second = set.start("second", &["--shards", "8"]).await;
    set.settle([(&mut first, "first"), (&mut second, "second")], 4, 4).await;

    let both = ["--shards", "4", "--resizing", "8"];
    let mut third = set.start("third", &both).await;
    Resized::end(first, Signal::TERM).await;
    let mut fourth = set.start("fourth", &both).await;
    Resized::end(second, Signal::TERM).await;
    set.settle([(&mut third, "third"), (&mut fourth, "fourth")], 4, 2).await;

    let mut fifth = set.start("fifth", &["--shards", "4"]).await;
    Resized::end(third, Signal::TERM).await;
    let mut sixth = set.start("sixth", &["--shards", "4"]).await;
    Resized::end(fourth, Signal::TERM).await;
    set.settle([(&mut fifth, "fifth"), (&mut sixth, "sixth")], 2, 2).await;

    Resized::end(fifth, Signal::TERM).await;
    Resized::end(sixth, Signal::TERM).await;
}

/// The leases end what it held, of both numbers.
#[tokio::test]
async fn shards_of_a_resizing_member_that_is_killed_are_led_again() {
    let set = Resized::new().await;
    let both = ["--shards", "4", "--resizing", "8"];
    let mut first = set.start("first", &both).await;
    for _ in 0..4 {
        assert_eq!(first.line().await, "serves");
    }
    let mut second = set.start("second", &both).await;
    Resized::end(first, Signal::KILL).await;
    for _ in 0..4 {
        assert_eq!(second.line().await, "serves");
    }
    set.hold(&BTreeMap::from([("second".to_owned(), 8)])).await;
    Resized::end(second, Signal::TERM).await;
}
