//! What goes wrong between a candidate and the API server.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use incumbent::kubernetes::{Cluster, LeaseLock, LeaseTiming};
use incumbent::lock::{
    Content, Coverage, Hint, HintSink, Lock, LockErrorKind, Mark, Nonce, Reading, Release, Token,
    Write, WriteId,
};
use incumbent::{Cause, Election, Leadership, new_election};
use incumbent_test_support::{FaultProxy, eventually};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::busy_server::BusyServer;
use crate::conformance::{
    Process, Service, TIMEOUT, becomes_true, leads, leads_before, sees, soon, working,
};
use crate::env::{InConfigMap, InEndpoints, InLease, Kind, OBJECT, TestEnv, timing};
use crate::fresh::made;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(5);

fn a_write(number: u64, token: Option<Token>) -> Write {
    Write {
        expected: None,
        identity: "ours".into(),
        mark: Mark::new(WriteId { nonce: Nonce(1), number }, LEASE, token),
        ttl: LEASE,
        advertisement: None,
        timeout: TIMEOUT,
    }
}

/// A leader, its term, and a standby that has seen it.
async fn leader_and_standby(env: &TestEnv) -> (Election, Leadership, Election) {
    made(env).await;
    let first = env.campaign("first").await;
    drop(leads(&first).await);
    let second = env.campaign("second").await;
    let leadership = leads_before(&first, &[&second]).await;
    (first, leadership, second)
}

/// A server that is paused for less than a lease costs no term; a longer pause does, and
/// no candidate leads meanwhile without a valid term.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_api_server_away_for_less_than_a_lease_costs_no_term() {
    let lease = SECOND * 300; // a busy machine takes long to start the server
    let mut env = TestEnv::<InLease>::alone(lease).await;
    env.timing = LeaseTiming::new(lease, lease * 4 / 5, SECOND * 2).unwrap();
    let (first, leadership, second) = leader_and_standby(&env).await;

    env.server.pause();
    tokio::time::sleep(SECOND * 2).await;
    env.server.resume();
    env.server.kill();
    env.server.restart().await;
    let before = leadership.deadline();
    tokio::select! {
        loss = leadership.ended() => panic!("a restart within the lease costs nothing: {loss}"),
        _ = soon("a renewal", leadership.renewed(before)) => {}
    }
    drop(leadership);
    first.stop().await;
    second.stop().await;

    // On the same server, with a lease that a test can wait for.
    let env = TestEnv::<InLease>::on(Arc::clone(&env.server), SECOND * 10).await;
    let (first, leadership, second) = leader_and_standby(&env).await;
    env.server.pause();
    let loss = soon("the end of the term", leadership.ended()).await;
    assert!(matches!(loss.cause, Cause::Expired { .. }), "{:?}", loss.cause);
    drop(leadership);
    assert!(!first.is_leader() && !second.is_leader());
    env.server.resume();
    tokio::select! {
        next = leads(&first) => assert!(next.is_valid()),
        next = leads(&second) => assert!(next.is_valid()),
    }
    assert!(!(first.is_leader() && second.is_leader()));
}

/// A watch that goes silent, with its connection open, hides nothing for long: silence is noticed,
/// and the watch is begun anew (nats.rs#1596 reports the same of another server).
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_silent_watch_is_noticed_and_restarted() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let (proxy, lock) = behind_proxy(&env).await;
    let first = env.campaign("first").await;
    drop(leads(&first).await);
    let candidate =
        |identity: &str| working(new_election("my_app", lock.clone()).identity(identity));
    let second = candidate("second").start().unwrap();
    drop(leads_before(&first, &[&second]).await);
    proxy.silence();
    first.stop().await;
    let leadership = leads(&second).await;
    drop(leadership);
    // The new watch works: a release is seen long before any lease runs out.
    let (told, mut hints) = mpsc::unbounded_channel();
    let sink = HintSink::new(move |hint| {
        let _ = told.send(hint);
    });
    let _subscription = lock.subscribe("my_app", sink);
    soon("hints", async {
        while !matches!(
            hints.recv().await,
            Some(Hint::Coverage(Coverage::Full) | Hint::Stored { .. })
        ) {}
    })
    .await;
    second.stop().await;
    eventually("a release is heard", async || {
        let third = candidate("third").start().unwrap();
        drop(leads(&third).await);
        third.stop().await;
        let heard = async {
            while !matches!(hints.recv().await, Some(Hint::Stored { record, .. })
                if matches!(record.content, Content::Vacant(_)))
            {}
        };
        // A release is given up where it takes too long, as it may on a busy machine.
        tokio::time::timeout(LEASE, heard).await.ok()
    })
    .await;
}

async fn behind_proxy(env: &TestEnv) -> (FaultProxy, LeaseLock) {
    let proxy = FaultProxy::start(env.server.port()).await;
    let own = fs::read_to_string(&env.kubeconfig).unwrap();
    let file = env.server.file(&format!("{}-proxy.kubeconfig", env.namespace));
    let (from, to) =
        (format!("127.0.0.1:{}", env.server.port()), format!("127.0.0.1:{}", proxy.port()));
    fs::write(&file, own.replace(&from, &to)).unwrap();
    let cluster = Cluster::from_kubeconfig(&file, None).await.unwrap();
    let lock = cluster.in_namespace(&*env.namespace).lease_lock().timing(timing(LEASE));
    (proxy, lock.object(OBJECT))
}

/// A leader reads nothing, and would hear no roll call any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_silent_watch_of_a_leader_is_noticed() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let (proxy, lock) = behind_proxy(&env).await;
    let created = lock.write("my_app", a_write(1, None)).await.unwrap();
    let (told, mut hints) = mpsc::unbounded_channel();
    let sink = HintSink::new(move |hint| {
        let _ = told.send(hint);
    });
    let _subscription = lock.subscribe("my_app", sink);
    let is_there = |hint| matches!(hint, Some(Hint::Stored { .. }));
    soon("the watch", async { while !is_there(hints.recv().await) {} }).await;
    proxy.silence();
    // The connection of the first write has gone silent, too.
    let renewed = eventually("a renewal", async || {
        let renewal = Write { expected: Some(created), ..a_write(2, Some(created.into())) };
        match lock.write("my_app", Write { timeout: SECOND, ..renewal }).await {
            Ok(renewed) => Some(renewed),
            // It was written after its time.
            Err(refused) if refused.kind() == LockErrorKind::Conflict => {
                match lock.read("my_app", SECOND).await.ok()? {
                    Reading::Found(record) => Some(record.revision),
                    Reading::Empty { .. } => None,
                }
            }
            Err(_) => None,
        }
    });
    let renewed = renewed.await;
    let is_renewal =
        |hint| matches!(hint, Some(Hint::Stored { record, .. }) if record.revision == renewed);
    soon("another watch", async { while !is_renewal(hints.recv().await) {} }).await;
}

/// Wall clocks do not matter (kubernetes/kubernetes#47671): a holder whose clock is three minutes
/// off, either way, is waited for as long as it renews, and no longer than its lease after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_holder_with_a_wrong_clock_is_judged_by_its_renewals() {
    /// Longer than a busy machine holds up a renewal.
    const WAIT: Duration = Duration::from_secs(10);
    // False: a renewal was held up for as long all the same.
    let is_judged = async |minutes: i64| {
        let env = TestEnv::<InLease>::new(WAIT).await;
        made(&env).await;
        let ours = env.campaign("ours").await;
        drop(leads(&ours).await);
        ours.stop().await;
        let write = async || {
            let now = k8s_openapi::jiff::Timestamp::now();
            let wrong = now + k8s_openapi::jiff::Span::new().minutes(minutes);
            let wrong = wrong.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
            env.write_record(json!({
                "holderIdentity": "stranger", "leaseDurationSeconds": WAIT.as_secs(),
                "acquireTime": wrong, "renewTime": wrong, "leaseTransitions": 9,
            }))
            .await;
        };
        let mut last = Instant::now();
        write().await;
        let ours = env.campaign("ours").await;
        sees(&ours, "stranger").await;
        // For longer than it would be waited for.
        for _ in 0..20 {
            let before = last;
            tokio::time::sleep(SECOND * 3 / 4).await;
            last = Instant::now();
            write().await;
            let leads = ours.is_leader();
            if before.elapsed() >= WAIT {
                return false;
            }
            assert!(!leads, "{minutes} minutes: it renews");
        }
        let leadership = leads(&ours).await;
        assert!(last.elapsed() >= WAIT, "{:?}", last.elapsed());
        assert!(leadership.is_valid());
        true
    };
    futures_util::future::join(
        becomes_true("a slow clock is judged", async || is_judged(-3).await),
        becomes_true("a fast clock is judged", async || is_judged(3).await),
    )
    .await;
}

async fn third_writer<K: Kind>() {
    let env = Arc::new(TestEnv::<K>::new(SECOND * 20).await);
    made::<K>(&env).await;
    let ours = Arc::clone(&env);
    let first = Process::run(async move {
        working(new_election("my_app", ours.lock().await).identity("first"))
    })
    .await;
    let leadership = leads(&first.election).await;
    let mut changes = first.election.changes();
    let second = env.campaign("second").await;
    sees(&second, "first").await;
    let (busy, writes) = (Arc::clone(&env), watch::Sender::new(0_u64));
    let count = writes.clone();
    let writer = tokio::spawn(async move {
        for number in 0_u64.. {
            let began = Instant::now();
            busy.patch(json!({ "metadata": { "labels": { "number": number.to_string() } } })).await;
            count.send_replace(number);
            // A candidate reads and writes between two of them, on a busy machine, too.
            tokio::time::sleep((began.elapsed() * 2).max(Duration::from_millis(3))).await;
        }
    });
    let before = *writes.borrow();
    soon("renewals beside the writes", async {
        for _ in 0..5 {
            let deadline = leadership.deadline();
            leadership.renewed(deadline).await.unwrap();
        }
    })
    .await;
    soon("writes", writes.subscribe().wait_for(|n| *n >= before + 50)).await.unwrap();
    assert!(first.election.is_leader(), "writes to the rest of the object supersede no leader");
    while let Some(Some(change)) = futures_util::FutureExt::now_or_never(changes.next()) {
        assert!(!matches!(change, incumbent::Change::Lost { .. }), "{change:?}");
    }
    drop(leadership);
    first.crash();
    let leadership = leads(&second).await; // though the object never stops changing
    let object = env.object().await.unwrap();
    assert!(object["metadata"]["labels"]["number"].is_string(), "what is not ours stays: {object}");
    writer.abort();
    assert!(leadership.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn third_writer_on_a_lease_neither_ends_nor_prolongs_terms() {
    third_writer::<InLease>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn third_writer_on_a_config_map_neither_ends_nor_prolongs_terms() {
    third_writer::<InConfigMap>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn third_writer_on_endpoints_neither_ends_nor_prolongs_terms() {
    third_writer::<InEndpoints>().await;
}

/// The server would recreate a deleted Lease for an unconditional write. Our writes name the object
/// they replace.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_renewal_does_not_bring_a_deleted_object_back() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let lock = Service::lock(&env).await;
    let created = lock.write("my_app", a_write(1, None)).await.unwrap();
    env.evict("my_app").await;
    let renewal = Write { expected: Some(created), ..a_write(2, Some(created.into())) };
    let refused = lock.write("my_app", renewal).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Conflict);
    assert_eq!(env.object().await, None);
}

/// No write replaces a version other than the one that was read.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn every_write_is_conditional() {
    let env = TestEnv::<InLease>::new(LEASE).await;
    let (ours, theirs) = (Service::lock(&env).await, Service::lock(&env).await);
    let created = ours.write("my_app", a_write(1, None)).await.unwrap();
    let again = theirs.write("my_app", a_write(1, None)).await.unwrap_err();
    assert_eq!(again.kind(), LockErrorKind::Conflict, "a create over something");
    assert!(
        matches!(theirs.read("my_app", TIMEOUT).await, Ok(Reading::Found(r)) if r.revision == created)
    );
    let renewal = || Write { expected: Some(created), ..a_write(2, Some(created.into())) };
    let renewed = theirs.write("my_app", renewal()).await.unwrap();
    assert!(renewed > created);
    let late = ours.write("my_app", renewal()).await.unwrap_err();
    assert_eq!(late.kind(), LockErrorKind::Conflict, "a renewal over a later one");
    let release = Release {
        expected: created,
        by: Nonce(1),
        left: Duration::ZERO,
        cause: "stopped",
        to: None,
        pause: None,
        timeout: TIMEOUT,
    };
    let late = ours.release("my_app", release).await.unwrap_err();
    assert_eq!(late.kind(), LockErrorKind::Conflict, "a release of a later write");
}

/// A lock on a server with scripted responses.
async fn busy() -> (BusyServer, LeaseLock) {
    let (server, cluster) = busy_cluster().await;
    (server, cluster.lease_lock().without_events())
}

pub async fn busy_cluster() -> (BusyServer, Cluster) {
    let server = BusyServer::start().await;
    let cluster = cluster_at(server.port).await;
    (server, cluster)
}

/// Where whatever listens on this port is the API server.
pub async fn cluster_at(port: u16) -> Cluster {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("kubeconfig");
    let url = format!("http://127.0.0.1:{port}");
    let config = json!({
        "clusters": [{ "name": "c", "cluster": { "server": url } }],
        "users": [{ "name": "u", "user": {} }],
        "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
        "current-context": "x",
    });
    fs::write(&file, config.to_string()).unwrap();
    Cluster::from_kubeconfig(&file, None).await.unwrap()
}

/// A server that is too busy states for how long, and gets the request again then, if there is
/// time.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_request_to_a_busy_server_is_retried_after_its_delay() {
    let (server, lock) = busy().await;
    let lease =
        json!({ "metadata": { "resourceVersion": "7" }, "spec": { "holderIdentity": "a" } });

    server.answers("429 Too Many Requests", "Retry-After: 1\r\n", "Too many requests");
    server.answers("200 OK", "", &lease.to_string());
    assert!(matches!(lock.read("x", TIMEOUT).await, Ok(Reading::Found(_))));

    for seconds in [60, u64::MAX] {
        let later = format!("Retry-After: {seconds}\r\n");
        server.answers("429 Too Many Requests", &later, "Too many requests");
        let late = lock.read("x", SECOND * 30).await.unwrap_err();
        assert_eq!(late.kind(), LockErrorKind::Unavailable, "{late}");
    }

    for (status, kind) in [
        ("500 Internal Server Error", LockErrorKind::OutcomeUnknown),
        ("503 Service Unavailable", LockErrorKind::OutcomeUnknown),
        ("504 Gateway Timeout", LockErrorKind::OutcomeUnknown),
        ("401 Unauthorized", LockErrorKind::Denied),
        ("403 Forbidden", LockErrorKind::Denied),
        ("409 Conflict", LockErrorKind::Conflict),
        ("422 Unprocessable Entity", LockErrorKind::Misconfigured),
    ] {
        server.answers(status, "", "{\"message\":\"as the test wants it\"}");
        let refused = lock.write("y", a_write(1, None)).await.unwrap_err();
        assert_eq!(refused.kind(), kind, "{status}: {refused}");
        assert!(refused.to_string().contains("as the test wants it"), "{refused}");
    }
    // What looks like a write of another client may be the first attempt.
    server.answers("503 Service Unavailable", "Retry-After: 1\r\n", "later");
    server.answers("409 Conflict", "", "");
    let write = Write { expected: Some(incumbent::lock::Revision(7)), ..a_write(1, None) };
    let refused = lock.write("x", write).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::OutcomeUnknown, "{refused}");
    server.answers("200 OK", "", "no JSON");
    let garbled = lock.write("y", a_write(1, None)).await.unwrap_err();
    assert_eq!(garbled.kind(), LockErrorKind::OutcomeUnknown);
    for nonsense in ["[]", "{}", "{\"metadata\":{\"resourceVersion\":\"x\"}}"] {
        server.answers("200 OK", "", nonsense);
        let refused = lock.read("x", TIMEOUT).await.unwrap_err();
        assert_eq!(refused.kind(), LockErrorKind::Misconfigured, "{nonsense}");
    }
}

/// Coordinated leader election is the API server's; ours leaves it alone, and reports that. The
/// server of the tests drops the field, for its feature is off there.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lease_of_coordinated_elections_is_left_alone() {
    let (server, lock) = busy().await;
    let lease = json!({
        "metadata": { "resourceVersion": "7" },
        "spec": { "strategy": "OldestEmulationVersion" },
    });
    server.answers("200 OK", "", &lease.to_string());
    let refused = lock.read("x", TIMEOUT).await.unwrap_err();
    assert_eq!(refused.kind(), LockErrorKind::Misconfigured);
    assert!(refused.to_string().contains("spec.strategy"), "{refused}");
    server.answers("200 OK", "", &lease.to_string());
    let write = Write { expected: Some(incumbent::lock::Revision(7)), ..a_write(1, None) };
    assert_eq!(lock.write("x", write).await.unwrap_err().kind(), LockErrorKind::Misconfigured);
    assert_eq!(server.left(), 0, "and nothing was written");
}
