//! A leader of client-go that is cut off alone: its work continues until it has given up, and tried
//! to release.
//!
//! All have a lease of 18 s, and client-go's a renew deadline of 6 s and a retry period of 3 s: so
//! its work has ended within 15 s of its last renewal, and the answer to that.

use std::sync::Arc;
use std::time::Duration;

use incumbent::new_election;
use serde_json::json;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::JoinSet;

use crate::conformance::{Service, soon};
use crate::env::{InLease, TestEnv};
use crate::peer::Peer;
use crate::relay::{Relay, Way};
use crate::work_log::{self, Tick, listen, work};

const LEASE: Duration = Duration::from_secs(18);
/// LeaseDuration, RenewDeadline, RetryPeriod.
const TIMING: [&str; 3] = ["18s", "6s", "3s"];
/// The candidate that is cut off.
const GO: &str = "go-behind-the-relay";

/// A leader of client-go behind a relay, a standby of ours, and the log of their work.
struct Cut {
    env: Arc<TestEnv>,
    relay: Relay,
    ours: incumbent::Election,
    ticks: UnboundedReceiver<Tick>,
    all: Vec<Tick>,
    _process: tokio::process::Child,
    _tasks: JoinSet<()>,
}

impl Cut {
    async fn new() -> Self {
        let env = Arc::new(TestEnv::<InLease>::new(LEASE).await);
        let relay = Relay::start(env.admin.clone(), GO).await;
        let file = relay.kubeconfig(&env);
        let (tell, ticks) = mpsc::unbounded_channel();
        let (process, lines) = Peer::start_timed(&env, &file, GO, TIMING).await.into_parts();
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(lines, GO.to_owned(), tell.clone()));
        let lock = Service::lock(&*env).await;
        let ours = new_election("my_app", lock)
            .identity("ours")
            .on_won(move |leadership| work(leadership, "ours".to_owned(), tell.clone()))
            .start()
            .expect("a start");
        let mut cut =
            Self { env, relay, ours, ticks, all: Vec::new(), _process: process, _tasks: tasks };
        cut.works(GO).await;
        crate::conformance::sees(&cut.ours, GO).await;
        cut
    }

    /// Waits until it is at work.
    async fn works(&mut self, who: &str) {
        soon(&format!("{who} works"), async {
            loop {
                let tick = self.ticks.recv().await.expect("a tick");
                let found = tick.who == who;
                self.all.push(tick);
                if found {
                    return;
                }
            }
        })
        .await;
    }

    /// Ours takes over, and neither works in the other's term: not then, and not until client-go's
    /// last try is over.
    async fn ours_takes_over(mut self) {
        self.works("ours").await;
        tokio::time::sleep(Duration::from_secs(9)).await;
        while let Ok(tick) = self.ticks.try_recv() {
            self.all.push(tick);
        }
        let terms = work_log::terms(&self.all);
        assert!(terms.contains(&(GO, 1)) && terms.iter().any(|(who, _)| *who == "ours"));
        self.ours.stop().await;
    }
}

/// Nothing comes through any more: its work ends after its release has hung as well, within its
/// lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_client_go_leader_cut_off_alone_stops_before_ours_leads() {
    let cut = Cut::new().await;
    cut.relay.set(Way::Cut);
    cut.ours_takes_over().await;
}

/// client-go gives up its record when it could not renew, and its work continues until the answer
/// has come, or has not.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_client_go_release_after_failed_renewals_ends_no_lease() {
    let cut = Cut::new().await;
    cut.relay.set(Way::ReleasesOnly);
    cut.ours_takes_over().await;
}

/// One that hung while it led empties the record when it ends, even if it names another holder by
/// then. What it empties may be the record of another of client-go's, which is at work.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_client_go_record_emptied_by_another_is_waited_out() {
    let cut = Cut::new().await;
    let mut record = cut.env.record().await.unwrap();
    cut.relay.set(Way::Cut);
    // As it writes it: LeaderElector.tryRelease, with what it has just read.
    let now = k8s_openapi::jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    record["holderIdentity"] = json!("");
    record["leaseDurationSeconds"] = json!(1);
    record["acquireTime"] = json!(now);
    record["renewTime"] = json!(now);
    cut.env.write_record(record).await;
    cut.ours_takes_over().await;
}
