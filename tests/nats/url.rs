//! Locks named by URLs.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::Lock;
use incumbent::lock_url::{LockUrlError, LockUrlErrorKind};
use incumbent::{LockUrl, new_election};
use incumbent_test_support::{Server, Version, client_options, connected, repeated};

use crate::conformance::leads;

async fn open(url: &str) -> Result<Arc<dyn Lock>, LockUrlError> {
    url.parse::<LockUrl>()?.open().await
}

/// Opens a lock, and again where a busy machine does not answer in time.
pub async fn opened(url: &str) -> Result<Arc<dyn Lock>, LockUrlError> {
    let is_late = |error: &LockUrlError| error.kind() == LockUrlErrorKind::Unavailable;
    repeated(|| open(url), is_late).await
}

/// Whether one can lead by the lock.
async fn can_lead(lock: Arc<dyn Lock>) {
    let election = new_election("my_app", lock).start().unwrap();
    drop(leads(&election).await);
    election.stop().await;
}

#[tokio::test]
async fn a_bucket_is_created_unless_it_must_exist() {
    let server = Server::start().await;
    let missing = opened(&format!("{}/MINE?create=no", server.url())).await.unwrap_err();
    assert_eq!(missing.kind(), LockUrlErrorKind::Missing, "{missing}");
    assert_eq!(missing.to_string(), "bucket MINE does not exist; create it first");
    let lock = opened(&format!("{}/MINE", server.url())).await.unwrap();
    assert_eq!(lock.capabilities().max_lease, Duration::from_secs(60));
    can_lead(lock).await;
    opened(&format!("{}/MINE?create=no", server.url())).await.expect("it is there now");
}

/// It is the same as `with_choria()` of the builder, for a bucket that is named by its URL alone.
#[tokio::test]
async fn a_url_declares_a_bucket_shared_with_choria() {
    let server = Server::start().await;
    let shared = async |bucket: &str| {
        let lock = opened(&format!("{}/{bucket}", server.url())).await.unwrap();
        lock.timing().with_choria
    };
    assert!(!shared("OWN").await && !shared("OWN?with-choria=no").await);
    assert!(shared("OWN?with-choria").await && shared("MINE?with-choria=yes").await);
    assert!(shared("MINE").await && !shared("OWN").await, "what a bucket states from its creation");
    let refused = opened("nats://localhost/B?with-choria=maybe").await.unwrap_err();
    assert!(refused.to_string().ends_with("with-choria is yes or no"), "{refused}");
    // Three quarters of the TTL of 60 s: a grace of 45 s leaves no time to lead, which it does
    // where nothing is shared.
    let lock = opened(&format!("{}/MINE?with-choria", server.url())).await.unwrap();
    let start = |lock: Arc<dyn Lock>, lease: u64| {
        let builder = new_election("my_app", lock).lease(Duration::from_secs(lease));
        builder.renewal(Duration::from_secs(1)).grace(Duration::from_secs(45)).start()
    };
    assert!(start(Arc::clone(&lock), 60).unwrap_err().to_string().contains("leaves no time"));
    start(opened(&format!("{}/OWN", server.url())).await.unwrap(), 60).unwrap().stop().await;
}

#[tokio::test]
async fn a_user_or_a_token_of_the_url_is_used() {
    for (rights, who) in [
        ("authorization { user: me, password: \"s:t\" }", "me:s%3At"),
        ("authorization { token: s3cret }", "s3cret"),
    ] {
        let server = Server::builder().config(rights).start().await;
        let url = |who: &str| format!("nats://{who}{}/MINE", server.address());
        let lock = opened(&url(&format!("{who}@"))).await.unwrap();
        let url_of_user = url(&format!("{who}@"));
        let connect = || incumbent::nats::connect(url_of_user.as_str(), client_options());
        let connection = connected(connect).await;
        let shown = format!("{lock:?} {connection:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("s:t"), "{shown}");
        can_lead(lock).await;
        let refused = opened(&url("")).await.unwrap_err();
        assert_eq!(refused.kind(), LockUrlErrorKind::Denied, "{refused}: {:?}", refused);
    }
}

/// A fleet may be started before its server.
#[tokio::test]
async fn a_lock_with_a_declared_ttl_opens_before_its_server_starts() {
    let server = Server::builder().version(Version::V2_15).start().await;
    server.stop().await;
    let url = format!("{}/MINE", server.url());
    let unreachable = open(&url).await.unwrap_err();
    assert_eq!(unreachable.kind(), LockUrlErrorKind::Unavailable, "{unreachable}");
    let lock = opened(&format!("{url}?ttl=2s")).await.unwrap();
    let election = new_election("my_app", lock).start().unwrap();
    server.start_again().await;
    drop(leads(&election).await);
    election.stop().await;
}
