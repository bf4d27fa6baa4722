//! A lock made of a Lease and a bucket, on real servers.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{Content, Lock, LockAdmin, Reading};
use incumbent::nats::{self, BucketConfig};
use incumbent::{Cause, Change, Election, all_of, new_election};
use incumbent_test_support::{NATS_PERMISSIONS, Server, connected, nats_options};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::conformance::{Service, TIMEOUT, change, leads, soon, working};
use crate::env::{InLease, OBJECT, TestEnv};
use crate::nats_env::{self, BUCKET};

const NAME: &str = "my_app";
const LEASE: Duration = Duration::from_secs(15);

/// A client without credentials is an operator; candidates have the documented permissions.
const OPERATORS: &str = "no_auth_user: admin\n";

/// The permission to write entries.
const WRITE: &str = r#""$KV.CHORIA_LEADER_ELECTION.>""#;

fn permissions() -> String {
    format!("{OPERATORS}{NATS_PERMISSIONS}")
}

/// One of the two locks.
#[derive(Debug, Clone, Copy)]
pub enum Which {
    Lease,
    Nats,
}

/// Both servers, and what befalls them.
pub struct Both {
    pub kube: TestEnv<InLease>,
    pub nats: nats_env::TestEnv,
}

impl Both {
    pub async fn new(lease: Duration) -> Self {
        let server = Server::builder().config(OPERATORS).with_permissions().start().await;
        let nats = nats_env::TestEnv::on(server, lease).await;
        Self { kube: TestEnv::alone(lease).await, nats }
    }

    /// One of the two, as a candidate of its own reaches it.
    pub async fn lock(&self, which: Which) -> Arc<dyn Lock> {
        match which {
            Which::Lease => Service::lock(&self.kube).await,
            Which::Nats => {
                let connect = || nats::connect(self.nats.server.url(), nats_options("candidate"));
                let connection = connected(connect).await;
                Arc::new(nats_env::opened(connection, BucketConfig::new(BUCKET)).await.lock())
            }
        }
    }

    /// Of a candidate that needs the Lease and then the bucket.
    async fn campaign(&self) -> Election {
        let both = [self.lock(Which::Lease).await, self.lock(Which::Nats).await];
        working(new_election(NAME, all_of(both)).identity("both")).start().expect("a start")
    }

    pub fn pause(&self, which: Which) {
        match which {
            Which::Lease => self.kube.server.pause(),
            Which::Nats => self.nats.server.pause(),
        }
    }

    pub fn resume(&self, which: Which) {
        match which {
            Which::Lease => self.kube.server.resume(),
            Which::Nats => self.nats.server.resume(),
        }
    }

    /// Kills it, and starts it again.
    pub async fn restart(&self, which: Which) {
        match which {
            Which::Lease => {
                self.kube.server.kill();
                self.kube.server.restart().await;
            }
            Which::Nats => {
                self.nats.server.kill();
                self.nats.server.start_again().await;
            }
        }
    }

    /// Takes the permission to write away. Answers what to give back.
    pub async fn revoke(&self, which: Which) -> Value {
        match which {
            Which::Lease => {
                let path = format!("{}/my-app-election", self.bindings());
                let binding = self.kube.get(&path).await.expect("a binding");
                self.kube.delete(&path).await;
                binding
            }
            Which::Nats => {
                self.nats.server.reload(permissions().replace(WRITE, "")).await;
                Value::Null
            }
        }
    }

    pub async fn grant(&self, which: Which, mut binding: Value) {
        match which {
            Which::Lease => {
                binding["metadata"] = json!({ "name": "my-app-election" });
                self.kube.post(&self.bindings(), &binding).await;
            }
            Which::Nats => self.nats.server.reload(permissions()).await,
        }
    }

    fn bindings(&self) -> String {
        let namespace = &self.kube.namespace;
        format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings")
    }
}

/// The entry of a lock: its token, and when its term began.
async fn entry(lock: &dyn Lock) -> (u64, u64) {
    let Reading::Found(record) = lock.read(NAME, TIMEOUT).await.unwrap() else { panic!("nothing") };
    let Content::Held(entry) = record.content else { panic!("{:?}", record.content) };
    let mark = entry.mark.expect("a mark of ours");
    (mark.token.map_or(record.revision.0, |token| token.0), mark.since_unix_ms)
}

/// Each lock has its token, the Lease is taken first and released last, and the deadline is that of
/// the lock that was renewed the longest ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lease_and_a_bucket_are_taken_in_order_freed_in_reverse() {
    let both = Both::new(LEASE).await;
    let (lease, bucket) = (both.lock(Which::Lease).await, both.lock(Which::Nats).await);
    let mut last = [0, 0];
    let (mut turn, mut given_up) = (0, 0);
    while turn < 2 {
        let election = both.campaign().await;
        let leadership = leads(&election).await;
        let (entry_there, entry_here) = (entry(&*lease).await, entry(&*bucket).await);
        let tokens = leadership.tokens().into_iter().map(|token| token.map(|token| token.0));
        assert_eq!(tokens.collect::<Vec<_>>(), [Some(entry_there.0), Some(entry_here.0)]);
        assert_eq!(leadership.token().0, entry_there.0, "of the first required one");
        assert!(entry_there.0 > last[0] && entry_here.0 > last[1], "{last:?}");
        last = [entry_there.0, entry_here.0];
        assert!(entry_there.1 <= entry_here.1, "the Lease is taken first");
        drop(leadership);
        let before = Instant::now();
        election.stop().await;
        let took = before.elapsed();
        let record = both.kube.record().await.unwrap();
        if record["holderIdentity"] != "" && took >= LEASE / 8 {
            given_up += 1; // as it may be on a busy machine
            assert!(given_up < 5, "the Lease is not released: {record}");
            continue;
        }
        turn += 1;
        // This machine's clock in both: the server's own, and as it was when the release was sent.
        let tombstone = both.nats.message().await.expect("a tombstone").time;
        assert_eq!(record["holderIdentity"], "", "turn {turn}");
        let released: k8s_openapi::jiff::Timestamp =
            record["renewTime"].as_str().unwrap().parse().unwrap();
        let released = i128::from(released.as_microsecond());
        assert!(tombstone.unix_timestamp_nanos() / 1000 <= released, "the Lease is released last");
    }

    let election = both.campaign().await;
    let leadership = leads(&election).await;
    both.nats.server.pause();
    let before = leadership.deadline();
    let loss = soon("the end", leadership.ended()).await;
    assert!(matches!(loss.cause, Cause::Expired { last_error: Some(_) }), "{loss:?}");
    // A renewal may have been under way; the Lease was renewed all the time.
    assert!(leadership.deadline() <= before + LEASE / 5 * 2, "the deadline is the bucket's");
    let status = both.kube.cluster().await.lease_lock().record(OBJECT, TIMEOUT).await.unwrap();
    assert!(status.expect("a record").holder().is_some(), "it has not stopped yet");
    drop(leadership);
    both.nats.server.resume();
    drop(leads(&election).await);
}

/// Fleets whose members see one of the two: an observer of one learns the leader of both.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_candidate_on_one_lock_sees_the_leader_of_both() {
    let both = Both::new(LEASE).await;
    let election = both.campaign().await;
    let _leadership = leads(&election).await;
    for which in [Which::Lease, Which::Nats] {
        let observer = incumbent::observe(NAME, both.lock(which).await).unwrap();
        let mut changes = observer.changes();
        let sees_it = |leader: &incumbent::Leader| &*leader.identity == "both";
        if observer.leader().is_some_and(|leader| sees_it(&leader)) {
            continue;
        }
        change(&mut changes, "the leader is seen", |change| match change {
            Change::Leader(Some(leader)) if sees_it(leader) => Some(()),
            _ => None,
        })
        .await;
    }
}
