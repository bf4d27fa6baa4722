//! What an exporter of the metrics facade sees of elections on Kubernetes: the same as of any other
//! lock.

use std::time::Duration;

use incumbent::kubernetes::leader_for_life;
use incumbent::new_election;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use crate::conformance::{Service, leads, lost, soon, working};
use crate::env::{InLease, TestEnv};
use crate::life_env::Life;
use crate::metrics_seen::{seen, shows_a_leader, shows_a_loss};

/// One test, as a program has one recorder.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn elections_on_kubernetes_record_what_the_docs_list() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().expect("the only recorder of this process");

    let env = TestEnv::<InLease>::new(Duration::from_secs(3)).await;
    let lock = Service::lock(&env).await;
    let election = working(new_election("my_app", lock).identity("measured")).start().unwrap();
    let leadership = leads(&election).await;
    // The first one may have been sent before the term began.
    let renewed = soon("a renewal", leadership.renewed(leadership.deadline())).await.unwrap();
    soon("another one", leadership.renewed(renewed)).await.unwrap();
    shows_a_leader(&seen(&snapshotter, "my_app", "measured"), 3.0, 0.6);
    let mut changes = election.changes();
    env.evict("my_app").await;
    drop(leadership);
    lost(&mut changes).await;
    shows_a_loss(&seen(&snapshotter, "my_app", "measured"), "evicted");
    election.stop().await;

    let life = Life::new().await;
    life.pod("measured-pod", None).await;
    let campaign = async || {
        let cluster = life.cluster().await;
        soon("leadership", leader_for_life("my-app", &cluster).pod("measured-pod").into_future())
            .await
            .expect("leadership")
    };
    let first = campaign().await;
    let leading = seen(&snapshotter, "my-app", "measured-pod");
    assert_eq!(leading["incumbent_leader"], DebugValue::Gauge(1.0.into()));
    assert_eq!(leading["incumbent_terms_total"], DebugValue::Counter(1));
    assert_eq!(leading["incumbent_campaigns_total state=candidate"], DebugValue::Counter(1));
    assert!(matches!(&leading["incumbent_takeover_seconds after=deleted"],
        DebugValue::Histogram(all) if all.len() == 1));
    assert!(!leading.contains_key("incumbent_renewal_seconds"), "nothing is renewed");
    for name in ["incumbent_lease_seconds", "incumbent_observed_leader_token"] {
        assert!(!leading.contains_key(name), "{name} of a leader without a lease");
    }
    assert_eq!(leading["incumbent_lock_up"], DebugValue::Gauge(1.0.into()));
    assert_eq!(leading["incumbent_losses_total cause=evicted"], DebugValue::Counter(0));
    let resumed = campaign().await;
    let leading = seen(&snapshotter, "my-app", "measured-pod");
    assert_eq!(leading["incumbent_leader"], DebugValue::Gauge(1.0.into()));
    assert_eq!(leading["incumbent_terms_total"], DebugValue::Counter(0), "no other term");
    resumed.release().await.expect("a release");
    shows_a_loss(&seen(&snapshotter, "my-app", "measured-pod"), "resigned");
    soon("the first one hears of it", first.lost()).await;
    let out = seen(&snapshotter, "my-app", "measured-pod");
    assert_eq!(out["incumbent_losses_total cause=evicted"], DebugValue::Counter(1));
}
