//! `incumbent run --seats`: an election with several leaders.

use std::collections::BTreeMap;

use rustix::process::Signal;

use super::server;
use crate::env::{CALM, incumbent};

const SIT: &str = "echo $INCUMBENT_SEAT/$INCUMBENT_SEATS $INCUMBENT_ELECTION; exec sleep 1000";

#[tokio::test]
async fn each_seat_has_one_holder_and_a_free_one_is_taken() {
    let env = server("shop", 2, CALM).await;
    let sit = |identity| env.run("shop", &["--seats", "2", "--identity", identity], SIT);
    let mut holders = BTreeMap::new();
    for identity in ["first", "second"] {
        let mut candidate = sit(identity);
        holders.insert(candidate.line().await, candidate);
    }
    assert_eq!(holders.keys().collect::<Vec<_>>(), ["0/2 shop.0", "1/2 shop.1"]);
    let mut third = sit("third");
    third.wait_for_handlers().await;
    let (seat, mut holder) = holders.pop_first().expect("a holder");
    assert!(third.is_silent(), "each seat has a holder");
    holder.signal(Signal::TERM);
    assert_eq!(third.line().await, seat);
    assert_eq!(holder.exit_code().await, Some(128 + 15));
    assert_eq!(holder.descendants(), [""; 0]);

    let mut fourth = sit("fourth");
    fourth.wait_for_handlers().await;
    third.signal(Signal::KILL);
    assert_eq!(fourth.line().await, seat);
    assert_eq!(third.descendants(), [""; 0]);
}

#[tokio::test]
async fn candidate_ends_with_its_command() {
    let env = server("shop", 2, CALM).await;
    let mut run = env.run("shop", &["--seats", "2"], "exit 7");
    assert_eq!(run.exit_code().await, Some(7));
    assert_eq!((env.holder("shop.0").await, env.holder("shop.1").await), (None, None));
}

#[test]
fn flags_of_one_leader_are_refused() {
    for flags in [
        &["--seats", "0"][..],
        &["--seats", "100001"],
        &["--seats", "2", "--try"],
        &["--seats", "2", "--wait", "1s"],
        &["--seats", "2", "--priority", "1"],
        &["--seats", "2", "--advertise", "c1:80"],
        &["--seats", "2", "--on-exit", "stop"],
        &["--seats", "2", "--object", "a"],
        &["--seats", "2", "--with-choria"],
    ] {
        let mut run = incumbent();
        run.args(["run", "shop", "--lock", "memory:"]).args(flags);
        let output = run.args(["--", "true"]).output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {output:?}");
    }
}
