//! What an exporter of the metrics facade sees of leaders for life.

use incumbent::kubernetes::leader_for_life;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

use crate::conformance::soon;
use crate::life_env::Life;
use crate::metrics_seen::{seen, shows_a_loss};

/// One test, as a program has one recorder.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn leaders_for_life_record_what_the_docs_list() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    recorder.install().expect("the only recorder of this process");

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
