//! Locks named by URLs.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::Lock;
use incumbent::lock_url::{LockUrlError, LockUrlErrorKind};
use incumbent::{LockUrl, new_election};
use incumbent_test_support::{Server, Version};

use crate::conformance::leads;

async fn open(url: &str) -> Result<Arc<dyn Lock>, LockUrlError> {
    url.parse::<LockUrl>()?.open().await
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
    let missing = open(&format!("{}/MINE?create=no", server.url())).await.unwrap_err();
    assert_eq!(missing.kind(), LockUrlErrorKind::Missing, "{missing}");
    assert_eq!(missing.to_string(), "bucket MINE does not exist; create it first");
    let lock = open(&format!("{}/MINE", server.url())).await.unwrap();
    assert_eq!(lock.capabilities().max_lease, Duration::from_secs(60));
    can_lead(lock).await;
    open(&format!("{}/MINE?create=no", server.url())).await.expect("it is there now");
}

/// It is the same as `with_choria()` of the builder, for a bucket that is named by its URL alone.
#[tokio::test]
async fn a_url_declares_a_bucket_shared_with_choria() {
    let server = Server::start().await;
    let shared = async |bucket: &str| {
        let lock = open(&format!("{}/{bucket}", server.url())).await.unwrap();
        lock.timing().with_choria
    };
    assert!(!shared("OWN").await && !shared("OWN?with-choria=no").await);
    assert!(shared("OWN?with-choria").await && shared("MINE?with-choria=yes").await);
    assert!(shared("MINE").await && !shared("OWN").await, "what a bucket states from its creation");
    let refused = open("nats://localhost/B?with-choria=maybe").await.unwrap_err();
    assert!(refused.to_string().ends_with("with-choria is yes or no"), "{refused}");
    // Three quarters of the TTL of 60 s: a grace of 45 s leaves no time to lead, which it does
    // where nothing is shared.
    let lock = open(&format!("{}/MINE?with-choria", server.url())).await.unwrap();
    let start = |lock: Arc<dyn Lock>, lease: u64| {
        let builder = new_election("my_app", lock).lease(Duration::from_secs(lease));
        builder.renewal(Duration::from_secs(1)).grace(Duration::from_secs(45)).start()
    };
    assert!(start(Arc::clone(&lock), 60).unwrap_err().to_string().contains("leaves no time"));
    start(open(&format!("{}/OWN", server.url())).await.unwrap(), 60).unwrap().stop().await;
}

#[tokio::test]
async fn a_user_or_a_token_of_the_url_is_used() {
    for (rights, who) in [
        ("authorization { user: me, password: \"s:t\" }", "me:s%3At"),
        ("authorization { token: s3cret }", "s3cret"),
    ] {
        let server = Server::builder().config(rights).start().await;
        let url = |who: &str| format!("nats://{who}{}/MINE", server.address());
        let lock = open(&url(&format!("{who}@"))).await.unwrap();
        let options = async_nats::ConnectOptions::new();
        let connection = incumbent::nats::connect(url(&format!("{who}@")), options).await.unwrap();
        let shown = format!("{lock:?} {connection:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("s:t"), "{shown}");
        can_lead(lock).await;
        let refused = open(&url("")).await.unwrap_err();
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
    let lock = open(&format!("{url}?ttl=2s")).await.unwrap();
    let election = new_election("my_app", lock).start().unwrap();
    server.start_again().await;
    drop(leads(&election).await);
    election.stop().await;
}
