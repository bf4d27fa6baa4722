//! Candidates that may do less than everything.

use std::time::Duration;

use async_nats::Event;
use futures_util::FutureExt;
use incumbent::lock::{CandidateRequest, Lock, Messages, Reading};
use incumbent::nats::{self, Bucket, BucketConfig, BucketErrorKind};
use incumbent::{Cause, Change, Election, Readiness, State, new_election, observe};
use incumbent_test_support::{
    NATS_PERMISSIONS, Server, client_options, connected, eventually, nats_options,
};
use tokio::sync::mpsc;

use crate::conformance::{change, leads, soon, working};
use crate::env::{BUCKET, CALM, TestEnv, answered, opened, prepared};
use crate::log::Log;

/// The permission to write entries.
const WRITE: &str = r#""$KV.CHORIA_LEADER_ELECTION.>""#;

/// A server with the documented permissions, and a bucket made by `admin`.
pub async fn documented_server() -> Server {
    documented_server_with(CALM).await
}

async fn documented_server_with(ttl: Duration) -> Server {
    let server = Server::builder().with_permissions().start().await;
    let (admin, config) = (connect_as(&server, "admin").await, BucketConfig::new(BUCKET).ttl(ttl));
    prepared(admin, config).await;
    server
}

pub async fn connect_as(server: &Server, user: &str) -> nats::Connection {
    connected(|| nats::connect(server.url(), nats_options(user))).await
}

pub async fn bucket_as(server: &Server, user: &str) -> Bucket {
    opened(connect_as(server, user).await, BucketConfig::new(BUCKET)).await
}

pub async fn start_as(server: &Server, user: &str, identity: &str) -> Election {
    let lock = bucket_as(server, user).await.lock();
    working(new_election("my_app", lock).identity(identity)).start().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_with_the_documented_rights_can_see_everything() {
    let server = documented_server().await;
    let observer = observe("my_app", bucket_as(&server, "observer").await.lock()).unwrap();
    let mut changes = observer.changes();
    let election = start_as(&server, "admin", "first").await;
    drop(leads(&election).await);
    for expected in [Some("first"), None] {
        change(&mut changes, "the observer sees it", |change| match change {
            Change::Leader(l) if l.as_ref().map(|l| &*l.identity) == expected => Some(()),
            _ => None,
        })
        .await;
        election.stop().await;
    }
}

/// What each role may not do, though it would be of use to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_roles_can_do_no_more_than_they_must() {
    let server = documented_server().await;
    let election = start_as(&server, "candidate", "first").await;
    drop(leads(&election).await);
    let subject = |kind: &str| format!("{kind}.{BUCKET}.my_app");
    let answer = format!("{}.00000000000000ff", subject("incumbent-answer"));
    let others = ["_INBOX.>", "_INBOX_incumbent_candidate.>", "_INBOX_incumbent_observer.>", ">"];
    for (role, own_inbox, publishes) in [
        (
            "observer",
            others[2],
            vec![subject("$KV"), subject("incumbent"), subject("incumbent-control"), answer],
        ),
        ("candidate", others[1], vec![format!("$JS.API.STREAM.PURGE.KV_{BUCKET}")]),
    ] {
        let (denials, mut denied) = mpsc::unbounded_channel();
        let connect = || {
            let denials = denials.clone();
            let options = nats_options(role).event_callback(move |event| {
                if let Event::ServerError(error) = event {
                    denials.send(error.to_string()).expect("the test waits");
                }
                std::future::ready(())
            });
            options.connect(server.url())
        };
        let client = connected(connect).await;
        let mut expected = publishes;
        for subject in &expected {
            client.publish(subject.clone(), "x".into()).await.expect("sent");
        }
        for inbox in others.into_iter().filter(|inbox| *inbox != own_inbox) {
            client.subscribe(inbox).await.expect("sent");
            expected.push(inbox.to_owned());
        }
        for subject in expected {
            let denial = soon("a denial", denied.recv()).await.expect("a denial");
            assert!(denial.contains(&format!("\"{subject}\"")), "{role}: {denial}, not {subject}");
        }
    }
    assert!(election.is_leader());
}

/// It would rather lead, and may not write: each handover to it costs a term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_candidate_pulls_no_leadership_until_it_may_write() {
    /// The test lasts for three of them.
    const LEASE: Duration = Duration::from_secs(6);
    let server = documented_server_with(LEASE).await;
    server.reload(NATS_PERMISSIONS.replace(WRITE, "")).await;
    let first = start_as(&server, "admin", "first").await;
    drop(leads(&first).await);
    let lock = bucket_as(&server, "candidate").await.lock();
    let preferred = new_election("my_app", lock).identity("preferred").priority(1);
    let preferred = preferred.prefer_after(Duration::ZERO);
    let (preferred, mut changes) = working(preferred).start_with_changes().unwrap();
    let mut becomes = async |readiness: Readiness| {
        change(&mut changes, readiness.as_str(), |change| {
            (*change == Change::Readiness(readiness)).then_some(())
        })
        .await;
    };
    becomes(Readiness::Unhealthy).await; // it was handed over to, once
    let admins = bucket_as(&server, "admin").await.lock();
    let mut terms = first.changes();
    drop(leads(&first).await);
    let entry = async || match admins.read("my_app", LEASE).await {
        Ok(Reading::Found(record)) => Some(record.revision),
        _ => None,
    };
    let since = eventually("an entry", async || entry().await).await;
    eventually("renewals for three leases", async || {
        assert_ne!(preferred.state(), State::Leader);
        let roll = admins.call_roll("my_app", CandidateRequest::Identify, LEASE / 8).await.ok()?;
        let told = roll.iter().find(|info| &*info.identity == "preferred");
        assert!(told.is_none_or(|info| info.readiness == Readiness::Unhealthy), "{told:?}");
        (entry().await?.0 >= since.0 + 9).then_some(())
    })
    .await;
    // But a lease runs out on a busy machine.
    while let Some(Some(change)) = terms.next().now_or_never() {
        if let Change::Lost { cause, .. } = change {
            assert!(matches!(cause, Cause::Expired { .. }), "{cause}");
        }
    }
    server.reload(NATS_PERMISSIONS).await;
    becomes(Readiness::Ready).await;
    drop(leads(&preferred).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_permission_to_create_a_bucket_opening_it_works() {
    let server = documented_server().await;
    let connection = connect_as(&server, "candidate").await;
    let other = BucketConfig::new("OTHER").ttl(CALM);
    let error = answered(|| Bucket::create(connection.clone(), other.clone())).await.unwrap_err();
    assert_eq!(error.kind(), BucketErrorKind::Denied, "{error}");
    let config = BucketConfig::new(BUCKET).ttl(CALM);
    let existing = answered(|| Bucket::create_or_open(connection.clone(), config.clone())).await;
    existing.expect("the bucket is there");
}

/// A server without users accepts every client, as in all other tests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_bucket_is_named() {
    let env = TestEnv::with_ttl(CALM).await;
    let client = env.client().await;
    let error = answered(|| Bucket::open(client.clone(), "NOT_THERE")).await.unwrap_err();
    assert_eq!(error.kind(), BucketErrorKind::Missing);
    assert!(error.to_string().contains("NOT_THERE"), "{error}");
}

#[tokio::test]
async fn a_password_in_an_address_is_not_logged() {
    let config = "authorization: { users: [{ user: u, password: s3cret }] }";
    let server = Server::builder().config(config).start().await;
    let log = Log::of("trace");
    let connect = |password| nats::connect(server.url_as("u", password), client_options());
    connected(|| connect("s3cret")).await;
    connect("s3cret-of-old").await.expect_err("not let in");
    assert!(!log.lines(&["async_nats"]).is_empty());
    assert_eq!(log.lines(&["s3cret"]), Vec::<String>::new());
}
