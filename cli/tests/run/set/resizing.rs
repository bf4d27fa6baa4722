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

    /// Starts two members, ends an earlier one as each is there, and waits until the two hold and
    /// work on half of the set each.
    async fn replace(
        &self,
        earlier: Vec<Candidate>,
        [one, other]: [&str; 2],
        numbers: &[&str],
    ) -> Vec<Candidate> {
        let mut earlier = earlier.into_iter();
        let mut members = Vec::new();
        for identity in [one, other] {
            members.push(self.start(identity, numbers).await);
            if let Some(member) = earlier.next() {
                Self::end(member, Signal::TERM).await;
            }
        }
        let shards = numbers[1].parse::<usize>().expect("a number");
        // A member with both numbers holds the elections of both.
        let elections = numbers.last().expect("numbers").parse::<usize>().expect("a number");
        for member in &mut members {
            for _ in 0..shards / 2 {
                assert_eq!(member.line().await, "serves");
            }
        }
        let held = [one, other].map(|identity| (identity.to_owned(), elections / 2));
        self.hold(&BTreeMap::from(held)).await;
        members
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

/// Replaces the members, from this many shards to `to`, by members with both numbers, then these.
async fn resize(from: &str, to: &str) {
    let set = Resized::new().await;
    let resizing = ["--shards", "4", "--resizing", "8"];
    let members = set.replace(Vec::new(), ["first", "second"], &["--shards", from]).await;
    let members = set.replace(members, ["third", "fourth"], &resizing).await;
    for member in set.replace(members, ["fifth", "sixth"], &["--shards", to]).await {
        Resized::end(member, Signal::TERM).await;
    }
}

#[tokio::test]
async fn set_grows_by_two_rolling_restarts() {
    resize("4", "8").await;
}

#[tokio::test]
async fn set_shrinks_by_two_rolling_restarts() {
    resize("8", "4").await;
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
