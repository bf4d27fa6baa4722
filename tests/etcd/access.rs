//! Users with the least permissions, and TLS.

use std::fs;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{Lock, LockAdmin, LockErrorKind, Token};
use incumbent_test_support::{Authority, EtcdCluster, eventually};

use crate::conformance::{TIMEOUT, first_write, leads, leads_before};
use crate::env::{TestEnv, answered, read, write};

const LEASE: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_user_needs_permission_for_the_prefix_alone() {
    let env = TestEnv::<1>::alone(LEASE).await;
    let prefix = format!("{}/", env.prefix);
    let early = env.etcd().user("candidate", "c").lock().unwrap();
    read(&early, "my_app").await;
    for command in [
        &["user", "add", "root:r"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "elections"],
        &["role", "grant-permission", "elections", "readwrite", &prefix, "--prefix=true"],
        &["role", "add", "observers"],
        &["role", "grant-permission", "observers", "read", &prefix, "--prefix=true"],
        &["role", "add", "one"],
        &["role", "grant-permission", "one", "readwrite", &env.key("my_app")],
        &["role", "grant-permission", "one", "read", &prefix, "--prefix=true"],
        &["user", "add", "one:o"],
        &["user", "grant-role", "one", "one"],
        &["role", "add", "two"],
        &["role", "grant-permission", "two", "readwrite", &env.key("my_app")],
        &["role", "grant-permission", "two", "readwrite", &env.key("my_app/")],
        &["user", "add", "two:o"],
        &["user", "grant-role", "two", "two"],
        &["user", "add", "candidate:c"],
        &["user", "grant-role", "candidate", "elections"],
        &["user", "add", "observer:o"],
        &["user", "grant-role", "observer", "observers"],
        &["auth", "enable"],
    ] {
        env.cluster.ctl(command).await;
    }
    read(&early, "my_app").await; // it authenticates by now
    let user = |name: &str, password: &str| env.etcd().user(name, password).lock().unwrap();
    let kind = |error: incumbent::lock::LockError| {
        assert!(!error.to_string().contains('\n'), "{error}");
        error.kind()
    };
    for lock in [env.etcd_lock(), user("candidate", "wrong"), user("nobody", "c")] {
        let error = answered(|| lock.read("my_app", TIMEOUT)).await.unwrap_err();
        assert_eq!(kind(error), LockErrorKind::Denied);
    }
    let elsewhere = env.etcd().prefix("elsewhere").user("candidate", "c").lock().unwrap();
    let denied = answered(|| elsewhere.read("a", TIMEOUT)).await.unwrap_err();
    assert_eq!(kind(denied), LockErrorKind::Denied);

    // The key of the election alone is not enough, nor that and the one for etcd's own candidates.
    let observer = user("observer", "o");
    for lock in [&observer, &user("one", "o"), &user("two", "o")] {
        let denied = answered(|| lock.check_release("my_app", TIMEOUT)).await.unwrap_err();
        assert_eq!(kind(denied), LockErrorKind::Denied);
    }
    let first = env.campaign_with("first", user("candidate", "c"));
    drop(leads(&first).await);
    assert_eq!(answered(|| observer.names(TIMEOUT)).await.unwrap(), ["my_app"]);
    let denied = write(&observer, "other", first_write(LEASE, 1, None, None)).await.unwrap_err();
    assert_eq!(kind(denied), LockErrorKind::Denied);
    // From the first acquisition on it is.
    let denied = answered(|| observer.check_release("my_app", TIMEOUT)).await.unwrap_err();
    assert_eq!(kind(denied), LockErrorKind::Denied);
    for lock in [user("one", "o"), user("two", "o"), user("candidate", "c")] {
        answered(|| lock.check_release("my_app", TIMEOUT)).await.unwrap();
    }
    // Hints come to an observer, and to a candidate after a restart, which has lost its session.
    let watching = incumbent::observe("my_app", user("observer", "o")).unwrap();
    let second = env.campaign_with("second", user("candidate", "c"));
    drop(leads_before(&first, &[&second]).await);
    first.stop().await;
    drop(leads(&second).await);
    env.cluster.kill(0);
    env.cluster.restart(0).await;
    let third = env.campaign_with("third", user("candidate", "c"));
    second.stop().await;
    drop(leads(&third).await);
    watching.stop().await;
}

/// A signed token names the revision of the users and roles, and is refused once any of them has
/// changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_term_outlives_changes_of_users_where_tokens_are_signed() {
    let mut key = tempfile::NamedTempFile::new().unwrap();
    key.write_all(&fastrand::u128(..).to_be_bytes()).unwrap();
    let tokens =
        format!("--auth-token=jwt,sign-method=HS256,ttl=10m,priv-key={}", key.path().display());
    let cluster = Arc::new(EtcdCluster::start(1, &[&tokens]).await);
    let env = TestEnv::<1>::on(cluster, LEASE);
    for command in [
        &["user", "add", "root:r"][..],
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        env.cluster.ctl(command).await;
    }
    let lock = env.etcd().user("root", "r").lock().unwrap();
    let mut revision = write(&lock, "my_app", first_write(LEASE, 1, None, None)).await.unwrap();
    let token = Token(revision.0);
    for role in ["a", "b"] {
        env.cluster.ctl(&["--user=root:r", "role", "add", role]).await;
        read(&lock, "my_app").await; // it authenticates again
        env.cluster.ctl(&["--user=root:r", "role", "delete", role]).await;
        let renewal = first_write(LEASE, 1, Some(revision), Some(token));
        revision = write(&lock, "my_app", renewal).await.expect("it authenticates again to write");
    }
}

/// A user of before authentication was enabled, and an address without it, work alike.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_user_may_be_named_before_authentication_is_enabled() {
    let env = TestEnv::<1>::new(LEASE).await;
    let lock = env.etcd().user("candidate", "c").lock().unwrap();
    drop(leads(&env.campaign_with("first", lock)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn tls_verifies_the_server_and_presents_a_certificate() {
    let authority = Authority::new();
    let cluster = Arc::new(EtcdCluster::start_with_tls(&authority).await);
    let env = TestEnv::<1>::on(cluster, LEASE);
    let file = |name: &str, text: &str| {
        let path = env.cluster.file(name);
        fs::write(&path, text).unwrap();
        path
    };
    let ca = file("client-ca.pem", authority.certificate());
    let [certificate, key] = authority.issue("candidate");
    let (certificate, key) = (file("client.pem", &certificate), file("client.key", &key));
    let trusted = env.etcd().authorities(&ca).client_certificate(&certificate, &key);
    let lock = trusted.lock().unwrap();
    let first = env.campaign_with("first", lock.clone());
    drop(leads(&first).await);

    // The files are read again once a connection has failed, as the watch of the candidate does.
    let valid = [&certificate, &key].map(|path| fs::read(path).unwrap());
    for (path, text) in [&certificate, &key].into_iter().zip(Authority::new().issue("candidate")) {
        fs::write(path, text).unwrap();
    }
    env.cluster.restart(0).await;
    let error = lock.read("my_app", TIMEOUT).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
    for (path, text) in [&certificate, &key].into_iter().zip(valid) {
        fs::write(path, text).unwrap();
    }
    eventually("a read", async || lock.read("my_app", TIMEOUT).await.ok()).await;

    let other = file("other.pem", Authority::new().certificate());
    for refused in [
        env.etcd(),
        env.etcd().authorities(&ca),
        env.etcd().authorities(other).client_certificate(&certificate, &key),
    ] {
        let error = refused.lock().unwrap().read("my_app", TIMEOUT).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    let plain = env.etcd_lock().read("my_app", TIMEOUT).await.unwrap_err();
    assert!(plain.to_string().contains("if it requires TLS, use etcds://"), "{plain}");
    let absent = env.etcd().authorities("/absent.pem").lock().unwrap_err();
    assert_eq!(absent.kind(), LockErrorKind::Misconfigured);
    assert_eq!(absent.to_string(), "/absent.pem cannot be read");
}
