//! A lock made of a Lease and a bucket, on real servers, under faults of either.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{Content, Lock, LockAdmin, LockMember, Reading};
use incumbent::nats::{self, Bucket};
use incumbent::{Cause, Change, Election, Leadership, all_of, best_effort, new_election, required};
use incumbent_test_support::{NATS_PERMISSIONS, Server, nats_options};
use serde_json::{Value, json};

use crate::conformance::{Service, change, leads, soon, working};
use crate::env::{InLease, OBJECT, TestEnv};
use crate::nats_env::{self, BUCKET};

const NAME: &str = "my_app";
const LEASE: Duration = Duration::from_secs(4);
/// An API server restarts within this lease.
const LONGER_LEASE: Duration = Duration::from_secs(8);

/// A client without credentials is an operator; candidates have the documented permissions.
const OPERATORS: &str = "no_auth_user: admin\n";
fn permissions() -> String {
    format!("{OPERATORS}{NATS_PERMISSIONS}")
}

/// The permission to write entries.
const WRITE: &str = r#""$KV.CHORIA_LEADER_ELECTION.>""#;

/// One of the two locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Lease,
    Nats,
}

impl Which {
    fn place(self) -> usize {
        self as usize
    }

    fn other(self) -> Self {
        match self {
            Self::Lease => Self::Nats,
            Self::Nats => Self::Lease,
        }
    }
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
                let url = self.nats.server.url();
                let client = nats::connect(url, nats_options("candidate"));
                let client = client.await.expect("a connection");
                Arc::new(Bucket::open(client, BUCKET).await.expect("the bucket").lock())
            }
        }
    }

    /// The Lease and then the bucket, of which `lenient` is on best effort.
    async fn locks(&self, lenient: Option<Which>) -> Vec<LockMember> {
        let mut members = Vec::new();
        for which in [Which::Lease, Which::Nats] {
            let lock = self.lock(which).await;
            let need = if lenient == Some(which) { best_effort } else { required };
            members.push(need(lock));
        }
        members
    }

    async fn campaign(&self, identity: &str, lenient: Option<Which>) -> Election {
        let both = all_of(self.locks(lenient).await);
        working(new_election(NAME, both).identity(identity)).start().expect("a start")
    }

    async fn campaign_on(&self, which: Which, identity: &str) -> Election {
        let lock = self.lock(which).await;
        working(new_election(NAME, lock).identity(identity)).start().expect("a start")
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

    pub async fn kill(&self, which: Which) {
        match which {
            Which::Lease => self.kube.server.kill(),
            Which::Nats => self.nats.server.kill(),
        }
    }

    pub async fn start_again(&self, which: Which) {
        match which {
            Which::Lease => self.kube.server.restart().await,
            Which::Nats => self.nats.server.start_again().await,
        }
    }

    /// Takes the permission to write away. Answers what to give back.
    pub async fn revoke(&self, which: Which) -> Value {
        if which == Which::Nats {
            self.nats.server.reload(permissions().replace(WRITE, "")).await;
            return Value::Null;
        }
        let path = format!("{}/my-app-election", self.bindings());
        let binding = self.kube.send("GET", &path, "application/json", vec![]).await.unwrap();
        self.kube.send("DELETE", &path, "application/json", vec![]).await.unwrap();
        binding
    }

    pub async fn grant(&self, which: Which, mut binding: Value) {
        if which == Which::Nats {
            return self.nats.server.reload(permissions()).await;
        }
        binding["metadata"] = json!({ "name": "my-app-election" });
        self.kube.post(&self.bindings(), &binding).await;
    }

    fn bindings(&self) -> String {
        let namespace = &self.kube.namespace;
        format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings")
    }

    async fn delete(&self, which: Which) {
        match which {
            Which::Lease => Service::evict(&self.kube, NAME).await,
            Which::Nats => self.nats.delete_key().await,
        }
    }

    async fn overwrite(&self, which: Which, identity: &str) {
        match which {
            Which::Lease => Service::overwrite(&self.kube, NAME, identity).await,
            Which::Nats => Service::overwrite(&self.nats, NAME, identity).await,
        }
    }
}

/// The entry of a lock: its token, and when its term began.
async fn entry(lock: &dyn Lock) -> (u64, u64) {
    let Reading::Found(record) = lock.read(NAME, LEASE).await.unwrap() else { panic!("nothing") };
    let Content::Held(entry) = record.content else { panic!("{:?}", record.content) };
    let mark = entry.mark.expect("a mark of ours");
    (mark.token.map_or(record.revision.0, |token| token.0), mark.since_unix_ms)
}

/// Waits until the term holds, or does not hold, one of its locks.
async fn holds(leadership: &Leadership, which: Which, held: bool) {
    soon(&format!("{which:?} is held: {held}"), async {
        let mut deadline = leadership.deadline();
        while leadership.tokens()[which.place()].is_some() != held {
            deadline = leadership.renewed(deadline).await.unwrap();
        }
    })
    .await;
}

/// Waits for a renewal that was sent after this was called: it has extended the deadline.
async fn renewed(leadership: &Leadership) {
    soon("renewals", async {
        let deadline = leadership.renewed(leadership.deadline()).await.unwrap();
        leadership.renewed(deadline).await.unwrap()
    })
    .await;
    assert!(leadership.is_valid());
}

/// Waits until it reports the failure of one of its locks.
async fn failure(election: &Election, which: Which, need: &str) {
    let of = format!("lock {} of 2 ({need}): ", which.place() + 1);
    let mut changes = election.changes();
    if election.lock_failure().is_some_and(|failure| failure.message.starts_with(&of)) {
        return;
    }
    change(&mut changes, &of, |change| match change {
        Change::LockFailing(failure) if failure.message.starts_with(&of) => Some(()),
        _ => None,
    })
    .await;
}

/// Each lock has its token, the Lease is taken first and released last, and the deadline is that of
/// the lock that was renewed the longest ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lease_and_a_bucket_are_taken_in_order_and_released_in_reverse() {
    let both = Both::new(LEASE).await;
    let (lease, bucket) = (both.lock(Which::Lease).await, both.lock(Which::Nats).await);
    let mut last = [0, 0];
    for turn in 0..2 {
        let election = both.campaign("only", None).await;
        let leadership = leads(&election).await;
        let (entry_there, entry_here) = (entry(&*lease).await, entry(&*bucket).await);
        let tokens = leadership.tokens().into_iter().map(|token| token.map(|token| token.0));
        assert_eq!(tokens.collect::<Vec<_>>(), [Some(entry_there.0), Some(entry_here.0)]);
        assert_eq!(leadership.token().0, entry_there.0, "of the first required one");
        assert!(entry_there.0 > last[0] && entry_here.0 > last[1], "{last:?}");
        last = [entry_there.0, entry_here.0];
        assert!(entry_there.1 <= entry_here.1, "the Lease is taken first");
        drop(leadership);
        election.stop().await;
        // This machine's clock in both: the server's own, and as it was when the release was sent.
        let tombstone = both.nats.message().await.expect("a tombstone").time;
        let record = both.kube.record().await.unwrap();
        assert_eq!(record["holderIdentity"], "", "turn {turn}");
        let released: k8s_openapi::jiff::Timestamp =
            record["renewTime"].as_str().unwrap().parse().unwrap();
        let released = i128::from(released.as_microsecond());
        assert!(tombstone.unix_timestamp_nanos() / 1000 <= released, "the Lease is released last");
    }

    let election = both.campaign("only", None).await;
    let leadership = leads(&election).await;
    let before = leadership.deadline();
    both.pause(Which::Nats);
    let loss = soon("the end", leadership.ended()).await;
    assert!(matches!(loss.cause, Cause::Expired { last_error: Some(_) }), "{loss:?}");
    // A renewal may have been under way; the Lease was renewed all the time.
    assert!(leadership.deadline() <= before + LEASE / 5 * 2, "the deadline is the bucket's");
    let status = both.kube.cluster().await.lease_lock().record(OBJECT, LEASE).await.unwrap();
    assert!(status.expect("a record").holder().is_some(), "it has not stopped yet");
    drop(leadership);
    both.resume(Which::Nats);
    drop(leads(&election).await);
}

/// A required lock that is away for less than a lease costs nothing. One that is away for longer,
/// refuses, is deleted or is foreign ends the term; the other lock is released, and a candidate
/// that needs that one alone leads by it.
async fn is_required(struck: Which) {
    let lease = if struck == Which::Lease { LONGER_LEASE } else { LEASE };
    let both = Both::new(lease).await;
    let election = both.campaign("both", None).await;
    let leadership = leads(&election).await;
    both.pause(struck);
    tokio::time::sleep(lease / 4).await;
    both.resume(struck);
    renewed(&leadership).await;
    both.kill(struck).await;
    both.start_again(struck).await;
    renewed(&leadership).await;

    let plain = both.campaign_on(struck.other(), "plain").await;
    let rights = async |end: Cause| {
        assert!(!election.is_leader(), "{end}");
        drop(leads(&plain).await);
        assert!(!election.is_leader(), "{end}");
    };
    both.pause(struck);
    let loss = soon("the end of a pause", leadership.ended()).await;
    assert!(matches!(loss.cause, Cause::Expired { last_error: Some(_) }), "{loss:?}");
    drop(leadership);
    failure(&election, struck, "required").await;
    rights(loss.cause).await;
    both.resume(struck);
    plain.resign();

    let leadership = leads_by_both(&election, &plain).await;
    let binding = both.revoke(struck).await;
    let loss = soon("the end of a right", leadership.ended()).await;
    assert!(matches!(loss.cause, Cause::Denied { .. }), "{loss:?}");
    drop(leadership);
    rights(loss.cause).await;
    both.grant(struck, binding).await;

    let leadership = leads_by_both(&election, &plain).await;
    both.delete(struck).await;
    let loss = soon("an eviction", leadership.ended()).await;
    assert_eq!(loss.cause, Cause::Evicted);
    drop(leadership);

    let leadership = leads_by_both(&election, &plain).await;
    both.overwrite(struck, "mallory").await;
    let loss = soon("the leader to be superseded", leadership.ended()).await;
    assert_eq!(loss.cause, Cause::Superseded { by: Some("mallory".into()) });
    drop(leadership);
    rights(loss.cause).await;
}

/// Has the leader by one lock alone resign until the other leads by both.
async fn leads_by_both(election: &Election, plain: &Election) -> Leadership {
    let leads = leads(election);
    tokio::pin!(leads);
    loop {
        tokio::select! {
            leadership = &mut leads => return leadership,
            () = tokio::time::sleep(Duration::from_millis(500)) => plain.resign(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_required_lease_that_fails_ends_the_term_and_gives_the_bucket_back() {
    is_required(Which::Lease).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_required_bucket_that_fails_ends_the_term_and_gives_the_lease_back() {
    is_required(Which::Nats).await;
}

/// A lock on best effort that is away or refuses is reported, and the term continues without it,
/// for as long as that lasts; it is taken again in the midst of the term. One that is deleted or
/// foreign ends the term all the same.
async fn is_best_effort(struck: Which) {
    let both = Both::new(LEASE).await;
    let election = both.campaign("both", Some(struck)).await;
    let leadership = leads(&election).await;
    holds(&leadership, struck, true).await;

    both.pause(struck);
    failure(&election, struck, "best effort").await;
    holds(&leadership, struck, false).await;
    renewed(&leadership).await;
    both.resume(struck);
    holds(&leadership, struck, true).await;

    both.kill(struck).await;
    holds(&leadership, struck, false).await;
    both.start_again(struck).await;
    holds(&leadership, struck, true).await;

    let binding = both.revoke(struck).await;
    failure(&election, struck, "best effort").await;
    holds(&leadership, struck, false).await;
    renewed(&leadership).await;
    both.grant(struck, binding).await;
    holds(&leadership, struck, true).await;
    assert!(leadership.is_valid() && election.is_leader(), "one term, all the time");

    both.delete(struck).await;
    assert_eq!(soon("an eviction", leadership.ended()).await.cause, Cause::Evicted);
    drop(leadership);
    let leadership = leads(&election).await;
    holds(&leadership, struck, true).await;
    both.overwrite(struck, "mallory").await;
    let loss = soon("the leader to be superseded", leadership.ended()).await;
    assert_eq!(loss.cause, Cause::Superseded { by: Some("mallory".into()) });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lease_on_best_effort_that_fails_is_done_without() {
    is_best_effort(Which::Lease).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_bucket_on_best_effort_that_fails_is_done_without() {
    is_best_effort(Which::Nats).await;
}

/// Fleets whose members see one of the two: an observer of one learns the leader of both.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_candidate_on_one_lock_sees_the_leader_of_both() {
    let both = Both::new(LEASE).await;
    let election = both.campaign("both", None).await;
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
