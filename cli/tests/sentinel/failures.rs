//! Failures of the sentinel itself: the lease decides, as without one.

use incumbent_test_support::eventually;
use rustix::process::Signal;

use crate::env::TestEnv;
use crate::listening::Listening;
use crate::setup::{Watch, Wrapped, is_alive, revision, standby, standby_of, won};

/// The leader of a killed sentinel goes on; after its death the lease decides.
#[tokio::test]
async fn leader_outlives_its_sentinel() {
    let env = TestEnv::start().await;
    let mut first = Wrapped::campaign(&env).await;
    let mut second = standby(&env).await;
    let mut watch = Watch::start(&env).await;
    first.candidate.signal(Signal::KILL);
    first.candidate.exit().await;
    let written = revision(&env).await;
    let renewed = async || (revision(&env).await > written).then_some(());
    eventually("a renewal", renewed).await;
    assert!(is_alive(first.pid) && second.is_silent());
    first.kill_program(Signal::KILL);
    assert_eq!(watch.cause().await, "expired");
    won(&mut second).await;
}

/// A sentinel that goes on after another leader took over.
#[tokio::test]
async fn paused_sentinel_does_not_touch_the_entry_of_the_next_leader() {
    let env = TestEnv::start().await;
    let listening = Listening::start(&env).await;
    let first = listening.leader(&env, "my_app", 1).await;
    let mut second = standby_of(&env, "my_app").await;
    let mut watch = Watch::start(&env).await;
    listening.sentinel.signal(Signal::STOP);
    first.signal(Signal::KILL);
    assert_eq!(watch.cause().await, "expired");
    won(&mut second).await;
    listening.sentinel.signal(Signal::CONT);
    listening.logs("the entry was gone before the release").await;
    assert_eq!(env.holder("my_app").await.as_deref(), Some("standby"));
    assert!(second.is_silent(), "it goes on leading");
}

/// A sentinel whose server is another one cannot release.
#[tokio::test]
async fn sentinel_with_another_lock_releases_nothing() {
    let env = TestEnv::start().await;
    let other = TestEnv::start().await;
    let listening = Listening::start(&other).await;
    let first = listening.leader(&env, "my_app", 1).await;
    let mut second = standby_of(&env, "my_app").await;
    let mut watch = Watch::start(&env).await;
    listening.logs("its entry is not in the lock of the sentinel").await;
    first.signal(Signal::KILL);
    assert_eq!(watch.cause().await, "expired");
    won(&mut second).await;
}
