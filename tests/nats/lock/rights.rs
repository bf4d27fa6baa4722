//! Missing permissions, reported by the server or not.

use std::time::Duration;

use futures_util::StreamExt;
use incumbent::lock::{Coverage, Lock, LockErrorKind, Reading};
use incumbent::nats::{self, Bucket, BucketConfig, BucketErrorKind, Connection};
use incumbent::new_election;
use incumbent_test_support::{Proxy, Request, Server, ServerBuilder, Way, connected};

use super::*;
use crate::conformance::{leads, soon, working};
use crate::env::BUCKET;

const BRIEF: Duration = Duration::from_millis(600);

/// `admin`, who may do anything, and `a`, with the given permissions.
fn server(publish: &str, subscribe: &str) -> ServerBuilder {
    Server::builder().config(users(publish, subscribe))
}

fn users(publish: &str, subscribe: &str) -> String {
    format!(
        r#"authorization: {{ users: [
            {{ user: admin, password: pw-admin }},
            {{ user: a, password: pw-a, permissions: {{ publish: {publish}, subscribe: {subscribe} }} }},
        ] }}"#
    )
}

async fn made_by_admin(server: &Server) -> Bucket {
    let (admin, config) = (client_of("admin", server.url()).await, BucketConfig::new("B").ttl(TTL));
    answered(|| Bucket::create_or_open(&admin, config.clone())).await.unwrap()
}

/// A connection of a user, which learns of denials.
async fn connection_of(name: &str, url: String) -> Connection {
    connected(|| nats::connect(&url, user(name))).await
}

/// The bucket as who is connected opens it.
async fn open(connection: impl Into<Connection>) -> Bucket {
    opened(connection, BucketConfig::new("B")).await
}

/// The lock of the user `a`, in the bucket that the administrator has made.
async fn lock_of_a(server: &Server) -> NatsLock {
    made_by_admin(server).await;
    open(connection_of("a", server.url()).await).await.lock()
}

const ALL: &str = "{ allow: \">\" }";

#[tokio::test]
async fn a_refused_write_is_denied_at_once() {
    let server = server(r#"{ deny: ["$KV.B.a"] }"#, ALL).start().await;
    let lock = lock_of_a(&server).await;
    // Far longer than the test may take: the refusal wakes the request.
    let write = within(TIMEOUT * 100, entry(1, 1, None));
    let denied = soon("a refusal", lock.write("a", write)).await.unwrap_err();
    assert_eq!(denied.kind(), LockErrorKind::Denied, "{denied}");
    assert!(denied.to_string().contains("to $KV.B.a; grant it"), "{denied}");
    assert!(!format!("{denied:?}").contains("pw-a"), "no secret is shown: {denied:?}");
    lock.write("b", entry(1, 1, None)).await.expect("another key is granted");
}

#[tokio::test]
async fn a_refused_write_of_a_plain_client_names_likely_causes() {
    let server = server(r#"{ deny: ["$KV.B.a"] }"#, ALL).start().await;
    made_by_admin(&server).await;
    let client = client_of("a", server.url()).await;
    let lock = open(client).await.lock();
    let unknown = lock.write("a", within(BRIEF, entry(1, 1, None))).await.unwrap_err();
    assert_eq!(unknown.kind(), LockErrorKind::OutcomeUnknown);
    assert!(unknown.to_string().contains("a missing permission to publish looks the same"));
}

#[tokio::test]
async fn rights_revoked_while_leading_are_reported() {
    let server = server(ALL, ALL).start().await;
    let lock = lock_of_a(&server).await;
    let created = lock.write("a", entry(1, 1, None)).await.unwrap();
    server.reload(users(r#"{ deny: ["$KV.>"] }"#, ALL)).await;
    let denied = incumbent_test_support::eventually("a denied renewal", async || {
        let renewal = within(BRIEF, renewal(1, 2, created));
        let refused = lock.write("a", renewal).await.unwrap_err();
        (refused.kind() == LockErrorKind::Denied).then_some(refused)
    });
    denied.await;
}

#[tokio::test]
async fn a_missing_right_to_read_is_reported() {
    let rights = r#"{ deny: ["$JS.API.STREAM.MSG.GET.>"] }"#;
    let server = server(rights, ALL).start().await;
    made_by_admin(&server).await;
    let connection = connection_of("a", server.url()).await;
    let bucket = open(connection).await;
    let lock = bucket.lock();
    assert!(lock.capabilities().can_read);
    let denied = lock.read("a", TIMEOUT).await.unwrap_err();
    assert_eq!(denied.kind(), LockErrorKind::Denied, "{denied}");
    assert!(!lock.capabilities().can_read);
    // The other locks of the bucket know it as well, and send no request.
    assert!(!bucket.lock().capabilities().can_read);
    assert_eq!(bucket.lock().read("b", TIMEOUT).await.unwrap_err().kind(), LockErrorKind::Denied);
}

/// What the server did not say is no refusal, even where other requests get responses.
#[tokio::test]
async fn a_read_without_a_response_is_not_denied() {
    let server = Server::start().await;
    let admins = made_by_admin(&server).await.lock();
    admins.write("a", entry(1, 1, None)).await.unwrap();
    let proxy = Proxy::start(server.address());
    let connection = connection_of("admin", proxy.url()).await;
    let lock = open(connection).await.lock();
    let mut lost = proxy.lose_reply(|request| request.subject.contains(".MSG.GET."));
    let (read, ()) = tokio::join!(lock.read("a", BRIEF), async { drop(lost.sprung().await) });
    let unavailable = read.unwrap_err();
    assert_eq!(unavailable.kind(), LockErrorKind::Unavailable, "{unavailable}");
    assert!(lock.capabilities().can_read);
    found(&lock, "a").await;
}

#[tokio::test]
async fn the_right_to_read_is_tried_again_on_another_connection() {
    let rights = r#"{ deny: ["$JS.API.STREAM.MSG.GET.>"] }"#;
    let server = server(rights, ALL).start().await;
    made_by_admin(&server).await;
    let connection = connection_of("a", server.url()).await;
    let client = connection.client().clone();
    let lock = open(connection).await.lock();
    lock.read("a", TIMEOUT).await.unwrap_err();
    server.reload(users(ALL, ALL)).await;
    client.force_reconnect().await.unwrap();
    incumbent_test_support::eventually("a read", async || {
        let reads = lock.capabilities().can_read;
        (reads && matches!(lock.read("a", TIMEOUT).await, Ok(Reading::Empty { .. }))).then_some(())
    })
    .await;
}

/// The server drops the subscription, and says so while no request waits.
#[tokio::test]
async fn a_revoked_inbox_is_reported_and_opened_again_once_granted() {
    let server = server(ALL, ALL).start().await;
    let lock = lock_of_a(&server).await;
    lock.read("a", TIMEOUT).await.unwrap();
    server.reload(users(ALL, r#"{ deny: ["_INBOX.>"] }"#)).await;
    incumbent_test_support::eventually("a read that says why it fails", async || {
        let refused = lock.read("a", BRIEF).await.err()?;
        refused.to_string().contains("_INBOX.").then_some(())
    })
    .await;
    server.reload(users(ALL, ALL)).await;
    incumbent_test_support::eventually("a read", async || lock.read("a", BRIEF).await.ok()).await;
}

/// A plain client is told nothing of that.
#[tokio::test]
async fn a_revoked_inbox_of_a_plain_client_is_opened_again_once_granted() {
    let server = server(ALL, ALL).start().await;
    made_by_admin(&server).await;
    let client = client_of("a", server.url()).await;
    let lock = open(client).await.lock();
    lock.read("a", TIMEOUT).await.unwrap();
    server.reload(users(ALL, r#"{ deny: ["_INBOX.>"] }"#)).await;
    incumbent_test_support::eventually("a read that fails", async || {
        lock.read("a", BRIEF).await.err()
    })
    .await;
    server.reload(users(ALL, ALL)).await;
    incumbent_test_support::eventually("a read", async || lock.read("a", BRIEF).await.ok()).await;
}

/// A Choria client may publish to the bucket's information and to its keys, and do nothing else.
#[tokio::test]
async fn with_a_choria_clients_rights_it_writes_and_polls() {
    let rights = r#"{ allow: ["$JS.API.STREAM.INFO.KV_B", "$KV.B.>"] }"#;
    let server = server(rights, r#"{ allow: "_INBOX.>" }"#).start().await;
    let lock = lock_of_a(&server).await;
    lock.read("a", TIMEOUT).await.unwrap_err();
    assert!(!lock.capabilities().can_read);

    let mut hints = Hints::of(&lock, "a");
    let created = lock.write("a", entry(1, 1, None)).await.unwrap();
    let renewed = lock.write("a", renewal(1, 2, created)).await.unwrap();
    let conflict = lock.write("a", entry(2, 1, None)).await.unwrap_err();
    assert_eq!(conflict.kind(), LockErrorKind::Conflict);
    lock.release("a", release(1, renewed)).await.unwrap();
    hints.coverage(Coverage::None).await;
}

#[tokio::test]
async fn without_the_right_to_notices_it_still_receives_writes() {
    let server = server(ALL, r#"{ deny: ["incumbent.>"] }"#).start().await;
    let admins = made_by_admin(&server).await.lock();
    let connection = connection_of("a", server.url()).await;
    let lock = open(connection).await.lock();
    let mut hints = Hints::of(&lock, "a");
    hints.coverage(Coverage::Partial).await;
    hints.look().await;
    let created = admins.write("a", entry(1, 1, None)).await.unwrap();
    admins.release("a", release(1, created)).await.unwrap();
    hints.look().await;
}

/// A plain client does not learn that it may not subscribe; that no hints of what it reads arrive
/// shows it.
#[tokio::test]
async fn a_silent_subscription_is_detected() {
    let server = server(ALL, r#"{ deny: ["incumbent.>"] }"#).start().await;
    let admins = made_by_admin(&server).await.lock();
    let mut last = None;
    for groups in [0, 4] {
        let client = client_of("a", server.url()).await;
        let config = BucketConfig::new("B").queue_groups(groups);
        let lock = opened(client, config).await.lock();
        let mut hints = Hints::of(&lock, "a");
        hints.coverage(Coverage::Full).await;
        incumbent_test_support::eventually("the end of trust", async || {
            last = Some(admins.write("a", entry(1, 1, last)).await.unwrap());
            found(&lock, "a").await;
            let hints = std::iter::from_fn(|| hints.hints.try_recv().ok());
            hints.into_iter().any(|hint| hint == Hint::Coverage(Coverage::None)).then_some(())
        })
        .await;
        hints.coverage(Coverage::Partial).await;
    }
}

#[tokio::test]
async fn a_bucket_without_the_right_to_its_info_is_denied() {
    let server = server(r#"{ deny: ["$JS.API.STREAM.INFO.>"] }"#, ALL).start().await;
    made_by_admin(&server).await;
    let connection = connection_of("a", server.url()).await;
    let denied = answered(|| Bucket::open(&connection, "B")).await.unwrap_err();
    assert_eq!(denied.kind(), BucketErrorKind::Denied);
    assert!(denied.to_string().contains("grant it"), "{denied}");
}

/// The response to each attempt to subscribe is a denial.
#[tokio::test]
async fn hints_of_a_bucket_without_the_right_to_its_info_are_tried_for_at_intervals() {
    let server = server(r#"{ deny: ["$JS.API.STREAM.INFO.>"] }"#, ALL).start().await;
    made_by_admin(&server).await;
    let connection = connection_of("a", server.url()).await;
    let bucket = Bucket::deferred(connection, BucketConfig::new("B").ttl(TTL)).unwrap();
    let lock = bucket.lock();
    let _hints = Hints::of(&lock, "a");
    let denials = || server.log().matches("Publish Violation").count();
    incumbent_test_support::eventually("a denial", async || (denials() > 0).then_some(())).await;
    tokio::time::sleep(BRIEF).await;
    let denials = denials();
    assert!(denials < 20, "{denials} denials");
}

/// Who may read the inbox of a candidate, and write a key of its own, has the server send the
/// acknowledgement of that write to the request that comes next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledgement_of_anothers_write_extends_no_term() {
    fn is_renewal(request: &Request) -> bool {
        request.subject == format!("$KV.{BUCKET}.my_app")
            && request.header("Incumbent-Token").is_some()
    }
    let server = Server::start().await;
    let client = server.connect().await;
    let mut answers = client.subscribe("_INBOX.>").await.expect("a subscription");
    client.flush().await.expect("the server has it");
    let proxy = Proxy::start(server.address());
    let connection = proxy.connect().await;
    // A lease that does not end in the test, of a leader that need not wait.
    let config = BucketConfig::new(BUCKET).ttl(Duration::from_secs(60));
    let create = || Bucket::create(&connection, config.clone());
    let bucket = created(&connection, BUCKET, create).await;
    let election = working(new_election("my_app", bucket.lock()).identity("leader"));
    let election = election.renewal(Duration::from_secs(1)).start().expect("a start");
    let leadership = leads(&election).await;
    let mut lost = proxy.lose_request(is_renewal);
    lost.sprung().await;
    proxy.lose(Way::ToServer); // nor is the renewal repeated
    let deadline = leadership.deadline();
    let mut last = None;
    while let Ok(Some(answer)) =
        tokio::time::timeout(Duration::from_millis(200), answers.next()).await
    {
        last = Some(answer.subject.to_string());
    }
    let last = last.expect("it was answered before");
    let (inbox, token) = last.rsplit_once('.').expect("its last token");
    let digits = token.find(|c: char| !c.is_ascii_digit()).unwrap_or(token.len());
    let (number, rest) = token.split_at(digits);
    let number: u64 = number.parse().expect("a number");
    for next in number + 1..number + 10 {
        let (key, reply) = (format!("$KV.{BUCKET}.other"), format!("{inbox}.{next}{rest}"));
        client.publish_with_reply(key, reply, "x".into()).await.expect("a connection");
    }
    client.flush().await.expect("the server has them");
    let extended = leadership.renewed(deadline);
    let extended = tokio::time::timeout(Duration::from_millis(500), extended).await;
    assert!(extended.is_err(), "a renewal that the server never had: {extended:?}");
}
