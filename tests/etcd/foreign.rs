//! Other programs at the keys of elections.

use std::process::Stdio;
use std::time::Duration;

use incumbent::lock::{Lock, LockAdmin, LockErrorKind, Reading, Revision, Token};
use incumbent_test_support::eventually;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::conformance::{LEASE, TIMEOUT, first_write, leads, soon};
use crate::env::{TestEnv, answered, read, write};

/// A candidate of `concurrency.Election`, as `etcdctl elect` is, leads by a key of its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_term_begins_beside_candidates_of_etcds_own_elections() {
    let env = TestEnv::<1>::new(LEASE).await;
    let (lock, name) = (env.etcd_lock(), env.key("my_app"));
    let mut command = env.cluster.ctl_command();
    let mut foreign = command.args(["elect", &name, "go"]).stdout(Stdio::null()).spawn().unwrap();
    let below = format!("{name}/");
    let keys = async || env.cluster.ctl(&["get", &below, "--prefix", "--keys-only"]).await;
    eventually("it leads", async || keys().await.contains(&below).then_some(())).await;
    let error = write(&lock, "my_app", first_write(LEASE, 1, None, None)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains("is a candidate of etcd's own election"), "{error}");
    assert!(error.to_string().contains(&below), "{error}");
    // Another election, and one whose name begins alike, is left alone.
    let other = write(&lock, "my_app2", first_write(LEASE, 1, None, None)).await.unwrap();
    // A renewal is not refused: its term would end without need.
    let renewal = first_write(LEASE, 1, Some(other), Some(Token(other.0)));
    write(&lock, "my_app2", renewal).await.unwrap();
    assert_eq!(answered(|| lock.names(TIMEOUT)).await.unwrap(), ["my_app2"]);
    foreign.kill().await.unwrap();
    // Its lease, of a minute, lives on without it.
    env.cluster.ctl(&["del", &below, "--prefix"]).await;
    drop(leads(&env.campaign("first")).await);
}

/// A candidate of etcd's that comes later waits for a key of the election, and keeps nobody of ours
/// from leading, until that key is deleted.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn later_candidates_of_etcds_own_elections_wait() {
    let env = TestEnv::<1>::new(LEASE).await;
    let name = env.key("my_app");
    let first = env.campaign("first");
    drop(leads(&first).await);
    let mut command = env.cluster.ctl_command();
    let mut foreign = command.args(["elect", &name, "go"]).stdout(Stdio::piped()).spawn().unwrap();
    env.etcd_lock().check_name("my_app/").expect_err("the name of the key that it waits for");
    let mut lines = BufReader::new(foreign.stdout.take().unwrap()).lines();
    let below = format!("{name}/");
    let keys = async || env.cluster.ctl(&["get", &below, "--prefix", "--keys-only"]).await;
    let waits = async || (keys().await.split_whitespace().count() == 2).then_some(());
    eventually("it campaigns", waits).await;
    let won = tokio::spawn(async move { lines.next_line().await });
    first.stop().await;
    let second = env.campaign("second");
    drop(leads(&second).await);
    second.stop().await;
    assert!(!won.is_finished(), "it does not lead");
    let lock = env.etcd_lock();
    read(&lock, "my_app").await;
    env.cluster.ctl(&["del", &below]).await;
    assert!(soon("it leads", won).await.unwrap().unwrap().is_some());
    let Reading::Found(record) = read(&lock, "my_app").await else { panic!() };
    let next = first_write(LEASE, 3, Some(record.revision), None);
    let error = write(&lock, "my_app", next).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    foreign.kill().await.unwrap();
}

/// More of them than a response holds, and below other names too.
#[tokio::test]
async fn no_number_of_waiting_candidates_prevents_a_term() {
    let env = TestEnv::<1>::new(LEASE).await;
    let lock = env.etcd_lock();
    let acquires = async |name: &str, nonce| {
        let expected = match read(&env.etcd_lock(), name).await {
            Reading::Found(record) => Some(record.revision),
            Reading::Empty { .. } => None,
        };
        read(&lock, name).await;
        write(&lock, name, first_write(LEASE, nonce, expected, None)).await.map(drop)
    };
    let granted = env.cluster.ctl(&["lease", "grant", "600"]).await;
    let lease = format!("--lease={}", granted.split_whitespace().nth(1).unwrap());
    let campaigns = async |key: &str| env.cluster.ctl(&["put", &lease, &env.key(key), "x"]).await;
    acquires("a/b", 1).await.unwrap();
    for number in 0..40 {
        campaigns(&format!("a/b/{number}")).await;
    }
    acquires("a/b", 2).await.unwrap();
    acquires("a", 1).await.expect("they campaign for another election");
    campaigns("a/7").await;
    acquires("a", 2).await.unwrap();
    campaigns("c/7").await;
    let error = acquires("c", 1).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains(&env.key("c/7")), "{error}");
}

/// One that comes while the keys below the election are read, page by page, leads or waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_candidate_that_joins_a_first_acquisition_leads_too() {
    let env = TestEnv::<1>::new(LEASE).await;
    let [key, placeholder, candidate] = ["my_app", "my_app/", "my_app/7"].map(|name| env.key(name));
    for page in 0..20 {
        let put = |number| format!("put {placeholder}nested/{page}-{number} x\n");
        let puts = format!("\n{}\n\n", (0..100).map(put).collect::<String>());
        let mut command = env.cluster.ctl_command();
        let mut txn = command.arg("txn").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let txn = txn.as_mut().unwrap();
        txn.stdin.take().unwrap().write_all(puts.as_bytes()).await.unwrap();
        assert!(txn.wait().await.unwrap().success());
    }
    let granted = env.cluster.ctl(&["lease", "grant", "600"]).await;
    let lease = format!("--lease={}", granted.split_whitespace().nth(1).unwrap());
    // With it the keys are read: without any of a lease there is one transaction.
    env.cluster.ctl(&["put", &lease, &format!("{placeholder}nested/leased"), "x"]).await;
    let created = async |key: &str| {
        let found = env.cluster.ctl(&["get", key, "-w", "json"]).await;
        let found: serde_json::Value = serde_json::from_str(&found).unwrap();
        found["kvs"][0]["create_revision"].as_u64().unwrap()
    };
    for round in 0..20 {
        let lock = env.etcd_lock();
        let campaign = ["put", &lease, &candidate, "x"];
        let (_, written) = tokio::join!(env.cluster.ctl(&campaign), async {
            tokio::time::sleep(Duration::from_millis(round * 3)).await;
            write(&lock, "my_app", first_write(LEASE, round, None, None)).await
        });
        if written.is_ok() {
            assert!(created(&candidate).await > created(&placeholder).await, "round {round}");
        }
        for key in [&key, &placeholder, &candidate] {
            env.cluster.ctl(&["del", key]).await;
        }
    }
}

/// The key for which later candidates wait is not taken from another program.
#[tokio::test]
async fn a_key_of_another_program_is_not_written_over() {
    let env = TestEnv::<1>::new(LEASE).await;
    let (lock, key) = (env.etcd_lock(), env.key("my_app/"));
    env.cluster.ctl(&["put", &key, "theirs"]).await;
    let error = write(&lock, "my_app", first_write(LEASE, 1, None, None)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
    assert!(error.to_string().contains(&key), "{error}");
    assert_eq!(env.cluster.ctl(&["get", "--print-value-only", &key]).await.trim(), "theirs");
}

#[tokio::test]
async fn a_key_of_another_program_is_no_entry() {
    let env = TestEnv::<1>::new(LEASE).await;
    let lock = env.etcd_lock();
    for value in ["", "c1.example.net", "{}"] {
        env.cluster.ctl(&["put", &env.key("my_app"), value]).await;
        let error = answered(|| lock.read("my_app", TIMEOUT)).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains("is not the entry of an election"), "{error}");
    }
    // What it does not expect is never written over.
    for expected in [None, Some(Revision(1))] {
        let over = first_write(LEASE, 1, expected, None);
        let kind = write(&lock, "my_app", over).await.unwrap_err().kind();
        assert!(matches!(kind, LockErrorKind::Conflict | LockErrorKind::Misconfigured), "{kind:?}");
    }
}

/// Also if its writer had seen nothing of the term that was deleted: an earlier leader with the
/// same token, or a greater one, would pass a fence beside it.
#[tokio::test]
async fn a_token_is_greater_than_that_of_a_term_nobody_saw() {
    let env = TestEnv::<1>::new(LEASE).await;
    let (late, first, reader) = (env.etcd_lock(), env.etcd_lock(), env.etcd_lock());
    read(&late, "my_app").await;
    read(&first, "my_app").await;
    let mut newest = write(&first, "my_app", first_write(LEASE, 1, None, None)).await.unwrap();
    for _ in 0..3 {
        let renewal = first_write(LEASE, 1, Some(newest), Some(Token(newest.0)));
        newest = write(&first, "my_app", renewal).await.unwrap();
    }
    env.cluster.ctl(&["del", &env.key("my_app")]).await;
    let next = write(&late, "my_app", first_write(LEASE, 2, None, None)).await.unwrap();
    assert!(next > newest, "{next} after {newest}");
    // A reader of the entry counts from the same revision.
    match read(&reader, "my_app").await {
        Reading::Found(record) => assert_eq!(record.revision, next),
        Reading::Empty { .. } => panic!("no key"),
    }
}
