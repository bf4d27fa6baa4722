//! Locks named by URLs.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::Lock;
use incumbent::lock_url::{LockUrlError, LockUrlErrorKind};
use incumbent::{LockUrl, new_election};
use incumbent_test_support::{Server, Version};

use crate::behaviour::leads;

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
async fn a_bucket_is_made_unless_it_must_be_there() {
    let server = Server::start().await;
    let missing = open(&format!("{}/MINE?create=no", server.url())).await.unwrap_err();
    assert_eq!(missing.kind(), LockUrlErrorKind::Missing, "{missing}");
    assert!(missing.to_string().ends_with("bucket MINE cannot be used"), "{missing}");
    let lock = open(&format!("{}/MINE", server.url())).await.unwrap();
    assert_eq!(lock.capabilities().longest_lease, Duration::from_secs(60));
    can_lead(lock).await;
    open(&format!("{}/MINE?create=no", server.url())).await.expect("it is there now");
}

#[tokio::test]
async fn a_user_or_a_token_of_the_url_is_used() {
    for (rights, who) in [
        ("authorization { user: me, password: \"s:t\" }", "me:s%3At"),
        ("authorization { token: s3cret }", "s3cret"),
    ] {
        let server = Server::builder().config(rights).start().await;
        let url = |who: &str| format!("nats://{who}{}/MINE", server.address());
        can_lead(open(&url(&format!("{who}@"))).await.unwrap()).await;
        let refused = open(&url("")).await.unwrap_err();
        assert_eq!(refused.kind(), LockUrlErrorKind::Denied, "{refused}: {:?}", refused);
    }
}

/// A fleet may be started before its server.
#[tokio::test]
async fn a_lock_whose_ttl_is_told_can_be_opened_before_its_server_is_there() {
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
