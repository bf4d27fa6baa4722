//! Fences in streams and buckets, on every version of the server.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_nats::jetstream::kv;
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, RawMessageErrorKind, RetentionPolicy, Source, StorageType,
    SubjectTransform,
};
use async_nats::{Client, HeaderMap, jetstream};
use futures_util::{StreamExt, TryStreamExt};
use incumbent::fence::{FenceError, FenceErrorKind, FencedBucket, FencedStream};
use incumbent::lock::Token;
use incumbent::memory::MemoryLock;
use incumbent::{nats, new_election};
use incumbent_test_support::{
    Cluster, Server, Version, connected, eventually, jetstream_on, on_versions, repeated,
};
use tokio::task::JoinSet;

use crate::raw::Raw;

pub const STREAM: &str = "ORDERS";
const FENCE: &str = "orders.fence";

/// The kinds of error that each version of a fence is to have.
const STALE_9: FenceErrorKind = FenceErrorKind::Stale { greatest: Token(9) };

fn orders() -> Config {
    Config { name: STREAM.to_owned(), subjects: vec!["orders.>".to_owned()], ..Config::default() }
}

async fn server(version: Version, config: Config) -> (Server, Client) {
    let server = Server::builder().version(version).start().await;
    let client = server.connect().await;
    create(&client, config).await;
    (server, client)
}

/// Creates a stream, and waits until a server of a cluster leads it.
pub async fn create(client: &Client, config: Config) {
    let js = jetstream::new(client.clone());
    // Files of one of its name that was deleted just now may be in the way for a moment, and a
    // cluster may lose a request.
    eventually("a stream", async || js.create_stream(config.clone()).await.ok()).await;
    if config.num_replicas > 1 {
        eventually("its leader", async || js.get_stream(&config.name).await.ok()).await;
    }
}

async fn create_bucket(client: &Client, config: kv::Config) -> kv::Store {
    let js = jetstream_on(client.clone());
    js.create_key_value(config).await.unwrap()
}

async fn open(client: &Client, token: u64) -> Result<FencedStream, FenceError> {
    FencedStream::with_token("my_app", Token(token), client.clone(), STREAM, FENCE).await
}

/// Whether nothing was found out, as on a busy machine, whose answer comes too late.
fn is_late(error: &FenceError) -> bool {
    matches!(error.kind(), FenceErrorKind::Unavailable | FenceErrorKind::OutcomeUnknown)
}

/// What a request leads to that may be sent twice, however often that takes.
async fn done<T, F>(request: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, FenceError>>,
{
    repeated(request, is_late).await.expect("a success")
}

/// Fences, however often that takes.
pub async fn claim(client: &Client, token: u64) -> FencedStream {
    done(|| open(client, token)).await
}

/// Why a request is refused, however often it takes to learn that.
async fn refused<T: Debug, F>(request: impl Fn() -> F) -> FenceError
where
    F: Future<Output = Result<T, FenceError>>,
{
    repeated(request, is_late).await.expect_err("a refusal")
}

async fn refusal(client: &Client, token: u64) -> FenceError {
    refused(|| open(client, token)).await
}

/// Publishes a message once: the server knows one that is sent again by its identifier.
async fn publish(stream: &FencedStream, subject: &str, text: &str) {
    let id = || HeaderMap::from_iter([("Nats-Msg-Id".parse().unwrap(), text.into())]);
    done(|| stream.publish_with_headers(subject, id(), text.to_owned())).await;
}

/// Writes a value that may be written once only, and returns its revision: where no answer came, a
/// read shows it.
async fn written<F>(store: &kv::Store, key: &str, value: &str, write: impl Fn() -> F) -> u64
where
    F: Future<Output = Result<u64, FenceError>>,
{
    eventually("a write", async || match write().await {
        Ok(revision) => Some(revision),
        Err(error) if is_late(&error) => {
            let entry = store.entry(key).await.ok()??;
            (entry.value == value).then_some(entry.revision)
        }
        Err(error) => panic!("{error}"),
    })
    .await
}

/// All messages in their order, as the subject and the content.
pub async fn history(client: &Client) -> Vec<(String, String)> {
    let js = jetstream::new(client.clone());
    let stream = eventually("the stream", async || js.get_stream(STREAM).await.ok()).await;
    let last = stream.cached_info().state.last_sequence;
    let mut messages = Vec::new();
    for sequence in 1..=last {
        let found = eventually("a message, or none", async || {
            match stream.get_raw_message(sequence).await {
                Ok(message) => Some(Some(message)),
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Some(None),
                Err(_) => None,
            }
        })
        .await;
        let Some(message) = found else { continue };
        let content = String::from_utf8(message.payload.to_vec()).expect("text");
        messages.push((message.subject.to_string(), content));
    }
    messages
}

fn texts(history: &[(String, String)]) -> Vec<&str> {
    history.iter().map(|(_, text)| &**text).collect()
}

on_versions!(
    #[tokio::test]
    streams_refuse_former_leaders: v2_11, v2_12, v2_14, v2_15
);
async fn streams_refuse_former_leaders(version: Version) {
    let (_server, client) = server(version, orders()).await;
    let former = claim(&client, 7).await;
    publish(&former, "orders.new", "7 a").await;
    // A write of another handle of the same term, and of another election, changes nothing.
    let other = claim(&client, 7).await;
    publish(&other, "orders.new", "7 b").await;
    publish(&former, "orders.new", "7 c").await;
    let leader = claim(&client, 9).await;
    for handle in [&former, &other] {
        let error = refused(|| handle.publish("orders.new", "7 late")).await;
        assert_eq!(error.kind(), STALE_9, "{error}");
    }
    publish(&leader, "orders.new", "9 a").await;
    assert_eq!(refusal(&client, 8).await.kind(), STALE_9);
    let expected = ["7 my_app", "7 a", "7 b", "7 c", "9 my_app", "9 a"];
    assert_eq!(texts(&history(&client).await), expected, "the fence is written once a term");
}

on_versions!(
    #[tokio::test]
    buckets_refuse_former_leaders: v2_11, v2_12, v2_14, v2_15
);
async fn buckets_refuse_former_leaders(version: Version) {
    let server = Server::builder().version(version).start().await;
    let client = server.connect().await;
    let config = kv::Config { bucket: "STATE".to_owned(), history: 1, ..Default::default() };
    let store = create_bucket(&client, config).await;
    let open = |token| FencedBucket::with_token("my_app", Token(token), &client, "STATE");
    let former = done(|| open(7)).await;
    done(|| former.put("position", "1")).await;
    done(|| former.put("draft", "text")).await;
    done(|| former.purge("draft")).await;
    done(|| former.delete("position")).await;
    let revision = done(|| former.put("position", "2")).await;
    assert_eq!(store.entry("position").await.unwrap().unwrap().revision, revision);
    // The marker of a deletion is no value.
    let created = written(&store, "draft", "1", || former.create("draft", "1")).await;
    let error = refused(|| former.create("draft", "2")).await;
    assert_eq!(error.kind(), FenceErrorKind::Conflict, "{error}");
    let updated = written(&store, "draft", "2", || former.update("draft", "2", created)).await;
    let error = refused(|| former.update("draft", "3", created)).await;
    assert_eq!(error.kind(), FenceErrorKind::Conflict, "{error}");
    written(&store, "new", "1", || former.create("new", "1")).await;
    let error = refused(|| former.update("none", "1", 1)).await;
    assert_eq!(error.kind(), FenceErrorKind::Conflict, "{error}");
    let leader = done(|| open(9)).await;
    assert_eq!(refused(|| former.update("draft", "late", updated)).await.kind(), STALE_9);
    assert_eq!(refused(|| former.create("late", "late")).await.kind(), STALE_9);
    done(|| leader.purge("draft")).await;
    done(|| leader.delete("new")).await;
    let error = refused(|| former.put("position", "late")).await;
    assert_eq!(error.kind(), STALE_9, "{error}");
    assert_eq!(refused(|| former.delete("position")).await.kind(), STALE_9);
    assert_eq!(refused(|| former.purge("position")).await.kind(), STALE_9);
    assert_eq!(store.get("position").await.unwrap().unwrap(), "2");
    done(|| leader.put("position", "3")).await;
    assert_eq!(store.get("position").await.unwrap().unwrap(), "3");
    // Who lists all keys sees the fence.
    let mut keys: Vec<_> = store.keys().await.unwrap().try_collect().await.unwrap();
    keys.sort();
    assert_eq!(keys, ["_fence.my_app", "position"]);
    assert_eq!(store.get("_fence.my_app").await.unwrap().unwrap(), "9 my_app");
    // Nor does anyone write those of this election or another.
    for key in ["_fence.my_app", "_fence.other"] {
        for error in [
            leader.put(key, "99 my_app").await.unwrap_err(),
            leader.create(key, "99 my_app").await.unwrap_err(),
            leader.delete(key).await.unwrap_err(),
            leader.purge(key).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), FenceErrorKind::Misconfigured, "{key}: {error}");
        }
    }
}

on_versions!(
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    removed_fences_end_the_writes_of_a_term: v2_11, v2_12, v2_14, v2_15
);
async fn removed_fences_end_the_writes_of_a_term(version: Version) {
    let config = Config { allow_message_ttl: true, ..orders() };
    let (_server, client) = server(version, config).await;
    let js = jetstream_on(client.clone());
    let stream = js.get_stream(STREAM).await.unwrap();
    let leader = claim(&client, 7).await;
    let gone = async |handle: &FencedStream, what: &str| {
        let error = refused(|| handle.publish("orders.new", "7 late")).await;
        assert_eq!(error.kind(), FenceErrorKind::Misconfigured, "{what}: {error}");
    };
    stream.purge().filter(FENCE).await.unwrap();
    gone(&leader, "a purge").await;
    let leader = claim(&client, 8).await;
    js.publish(FENCE, "".into()).await.unwrap().await.unwrap();
    gone(&leader, "a message").await;
    let leader = claim(&client, 9).await;
    let sequence = stream.get_last_raw_message_by_subject(FENCE).await.unwrap().sequence;
    stream.delete_message(sequence).await.unwrap();
    gone(&leader, "a deletion").await;
    js.publish(FENCE, "something else".into()).await.unwrap().await.unwrap();
    gone(&leader, "another message").await;
    let error = refusal(&client, 10).await;
    assert_eq!(error.kind(), FenceErrorKind::Misconfigured, "{error}");
}

on_versions!(
    #[tokio::test]
    streams_that_remove_their_fence_are_refused: v2_11, v2_12, v2_14, v2_15
);
async fn streams_that_remove_their_fence_are_refused(version: Version) {
    let server = Server::builder().version(version).start().await;
    let client = server.connect().await;
    let js = jetstream::new(client.clone());
    let minute = Duration::from_secs(60);
    let limited = Config { max_bytes: 1 << 20, discard: DiscardPolicy::Old, ..orders() };
    // It keeps the first fence, and refuses that of the next leader.
    let per_subject = Config {
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        max_messages_per_subject: 1,
        ..orders()
    };
    for (config, advice) in [
        (Config { max_age: minute, ..orders() }, "allow message TTLs"),
        (Config { retention: RetentionPolicy::WorkQueue, ..orders() }, "`limits`"),
        (Config { retention: RetentionPolicy::Interest, ..orders() }, "`limits`"),
        (limited.clone(), "discard new"),
        (Config { max_messages: 9, max_bytes: -1, ..limited }, "discard new"),
        (Config { storage: StorageType::Memory, ..orders() }, "in files"),
        (per_subject, "of each subject"),
    ] {
        create(&client, config).await;
        let error = refusal(&client, 7).await;
        assert_eq!(error.kind(), FenceErrorKind::Misconfigured);
        assert!(error.to_string().contains(advice), "{error}");
        js.delete_stream(STREAM).await.unwrap();
    }

    // One that rewrites subjects keeps the fence where it is not looked for.
    let transform = SubjectTransform { source: ">".to_owned(), destination: "t.>".to_owned() };
    create(&client, Config { subject_transform: Some(transform), ..orders() }).await;
    let error = refusal(&client, 7).await;
    assert_eq!(error.kind(), FenceErrorKind::Misconfigured);
    assert!(error.to_string().contains("another subject"), "{error}");
    js.delete_stream(STREAM).await.unwrap();

    create(&client, Config { name: "ORIGIN".to_owned(), ..orders() }).await;
    let origin = Source { name: "ORIGIN".to_owned(), ..Source::default() };
    let mirror = Config { name: STREAM.to_owned(), mirror: Some(origin), ..Config::default() };
    create(&client, mirror).await;
    let error = refusal(&client, 7).await;
    assert!(error.to_string().contains("it is a mirror"), "{error}");
    let open = || FencedStream::with_token("my_app", Token(7), &client, "NONE", FENCE);
    assert_eq!(refused(open).await.kind(), FenceErrorKind::Misconfigured);
}

on_versions!(
    #[tokio::test]
    limits_of_streams_spare_the_fence: v2_11, v2_12, v2_14, v2_15
);
async fn limits_of_streams_spare_the_fence(version: Version) {
    let config = Config {
        allow_message_ttl: true,
        max_messages_per_subject: 1,
        max_messages: 3,
        discard: DiscardPolicy::New,
        allow_direct: true,
        duplicate_window: Duration::from_millis(500),
        ..orders()
    };
    let (_server, client) = server(version, config.clone()).await;
    let leader = claim(&client, 9).await;
    publish(&leader, "orders.a", "9 a").await;
    publish(&leader, "orders.b", "9 b").await;
    let is_unanswered = |error: &FenceError| error.kind() == FenceErrorKind::OutcomeUnknown;
    let error = repeated(|| leader.publish("orders.c", "9 c"), is_unanswered).await.unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::Unavailable, "{error}");
    let brief = Config { max_age: Duration::from_secs(1), ..config };
    jetstream::new(client.clone()).update_stream(brief).await.unwrap();
    crate::conformance::soon("the messages expire", async {
        while history(&client).await.len() > 1 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(texts(&history(&client).await), ["9 my_app"]);
    publish(&leader, "orders.c", "9 c").await;
    assert_eq!(refusal(&client, 7).await.kind(), STALE_9);
}

on_versions!(
    #[tokio::test]
    fences_outlive_the_ttl_of_buckets: v2_11, v2_12, v2_14, v2_15
);
async fn fences_outlive_the_ttl_of_buckets(version: Version) {
    let server = Server::builder().version(version).start().await;
    let client = server.connect().await;
    let ttl = Duration::from_secs(1);
    for (bucket, limit_markers) in [("BARE", None), ("MARKED", Some(ttl))] {
        let config = kv::Config {
            bucket: bucket.to_owned(),
            max_age: ttl,
            limit_markers,
            ..Default::default()
        };
        let store = create_bucket(&client, config).await;
        let open = |token| FencedBucket::with_token("my_app", Token(token), &client, bucket);
        if limit_markers.is_none() {
            let error = refused(|| open(9)).await;
            assert!(error.to_string().contains("limit markers"), "{error}");
            continue;
        }
        let leader = done(|| open(9)).await;
        written(&store, "position", "1", || leader.create("position", "1")).await;
        eventually("the value expires", async || {
            store.get("position").await.unwrap().is_none().then_some(())
        })
        .await;
        // Over the marker of its expiry, too.
        written(&store, "position", "2", || leader.create("position", "2")).await;
        assert_eq!(store.get("_fence.my_app").await.unwrap().unwrap(), "9 my_app");
        assert_eq!(refused(|| open(7)).await.kind(), STALE_9);
    }
}

on_versions!(
    #[tokio::test]
    known_message_ids_hide_no_late_write: v2_11, v2_12, v2_14, v2_15
);
async fn known_message_ids_hide_no_late_write(version: Version) {
    let (_server, client) = server(version, orders()).await;
    let id = || HeaderMap::from_iter([("Nats-Msg-Id".parse().unwrap(), "job 1".into())]);
    let former = claim(&client, 7).await;
    let first = done(|| former.publish_with_headers("orders.new", id(), "7 a")).await;
    let again = done(|| former.publish_with_headers("orders.new", id(), "7 b")).await;
    assert_eq!(first, again, "the same message");
    let leader = claim(&client, 9).await;
    let error = refused(|| former.publish_with_headers("orders.new", id(), "7 c")).await;
    assert_eq!(error.kind(), STALE_9, "{error}");
    let again = done(|| leader.publish_with_headers("orders.new", id(), "9 a")).await;
    assert_eq!(first, again);
    assert_eq!(texts(&history(&client).await), ["7 my_app", "7 a", "9 my_app"]);
    for name in ["Nats-Expected-Last-Sequence", "nats-rollup", "Nats-Batch-Id", "Nats-Schedule"] {
        let headers = HeaderMap::from_iter([(name.parse().unwrap(), "1".into())]);
        let error = leader.publish_with_headers("orders.new", headers, "9").await.unwrap_err();
        assert_eq!(error.kind(), FenceErrorKind::Misconfigured, "{error}");
    }
}

on_versions!(#[tokio::test] headers_of_messages_do_not_hide_the_condition: v2_11);
/// A header with the name of the condition in its value, or many headers, do not put it out of
/// force.
async fn headers_of_messages_do_not_hide_the_condition(version: Version) {
    let (_server, client) = server(version, orders()).await;
    let former = claim(&client, 7).await;
    let _leader = claim(&client, 9).await;
    for attempt in 0..200 {
        let mut headers = HeaderMap::new();
        for number in 0..attempt % 20 {
            headers.insert(format!("X-{number}"), "Nats-Expected-Last-Subject-Sequence: 1");
        }
        let late = || former.publish_with_headers("orders.new", headers.clone(), "7 late");
        let error = refused(late).await;
        assert_eq!(error.kind(), STALE_9, "{error}");
    }
    assert_eq!(history(&client).await.len(), 2);
}

on_versions!(#[tokio::test] servers_before_2_11_are_refused: v2_10);
/// It does not support a condition on another subject, and takes it for one on the subject of the
/// message, which never has the fence's sequence: it would store nothing. What it does with the
/// condition behind a longer header is why the order matters.
async fn servers_before_2_11_are_refused(version: Version) {
    let (server, client) = server(version, orders()).await;
    for token in [7, 9] {
        let error = refusal(&client, token).await;
        assert_eq!(error.kind(), FenceErrorKind::Misconfigured);
        assert!(error.to_string().contains("use nats-server 2.11 or later"), "{error}");
    }
    let before = history(&client).await.len();
    let mut raw = Raw::connect(&server).await;
    let (sequence, subject) = (
        "Nats-Expected-Last-Subject-Sequence: 77\r\n",
        "Nats-Expected-Last-Subject-Sequence-Subject: orders.fence\r\n",
    );
    for (headers, stored) in [
        (format!("NATS/1.0\r\n{sequence}{subject}\r\n"), 0),
        (format!("NATS/1.0\r\n{subject}{sequence}\r\n"), 1),
    ] {
        raw.publish("orders.new", headers.as_bytes(), b"7").await;
        assert_eq!(history(&client).await.len(), before + stored, "{headers}");
    }
}

#[tokio::test]
async fn term_that_is_over_publishes_nothing() {
    let (_server, client) = server(Version::default(), orders()).await;
    let election = new_election("my_app", MemoryLock::new()).start().unwrap();
    let leadership = election.won().await.unwrap();
    let stream = done(|| FencedStream::open(&leadership, &client, STREAM, FENCE)).await;
    publish(&stream, "orders.new", "1").await;
    leadership.resign();
    leadership.ended().await;
    let error = stream.publish("orders.new", "2").await.unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::TermOver);
    let error = FencedStream::open(&leadership, &client, STREAM, FENCE).await.unwrap_err();
    assert_eq!(error.kind(), FenceErrorKind::TermOver);
    drop(leadership);
    // The handle is no share in the term.
    let next = election.won().await.unwrap();
    done(|| FencedStream::open(&next, &client, STREAM, FENCE)).await;
    assert_eq!(
        stream.publish("orders.new", "3").await.unwrap_err().kind(),
        FenceErrorKind::TermOver
    );
    for subject in [FENCE, "orders.*", "", "orders. new"] {
        let stream = done(|| FencedStream::open(&next, &client, STREAM, FENCE)).await;
        let error = stream.publish(subject, "4").await.unwrap_err();
        assert_eq!(error.kind(), FenceErrorKind::Misconfigured, "{subject:?}: {error}");
    }
}

/// Messages that a stream copies from another come without conditions. A copied fence ends the
/// writes of the term.
#[tokio::test]
async fn copied_fences_end_the_writes_of_a_term() {
    let server = Server::start().await;
    let client = server.connect().await;
    let origin = Config {
        name: "ORIGIN".to_owned(),
        subjects: vec!["origin.>".to_owned()],
        ..Config::default()
    };
    create(&client, origin).await;
    let to_fence =
        SubjectTransform { source: "origin.fence".to_owned(), destination: FENCE.to_owned() };
    let source = Source {
        name: "ORIGIN".to_owned(),
        subject_transforms: vec![to_fence],
        ..Source::default()
    };
    create(&client, Config { sources: Some(vec![source]), ..orders() }).await;
    let leader = claim(&client, 9).await;
    publish(&leader, "orders.new", "9").await;
    let js = jetstream_on(client.clone());
    js.publish("origin.fence", "9 my_app".into()).await.unwrap().await.unwrap();
    crate::conformance::soon("the copy", async {
        while history(&client).await.len() < 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let error = refused(|| leader.publish("orders.new", "9")).await;
    assert_eq!(error.kind(), FenceErrorKind::Misconfigured, "{error}");
}

/// Those of docs/fencing.md.
#[tokio::test]
async fn least_permissions_are_enough() {
    let server = Server::builder()
        .config(
            r#"authorization { users: [
                { user: admin, password: pw }
                { user: leader, password: pw, permissions: {
                    publish: [
                        "$JS.API.STREAM.INFO.ORDERS", "$JS.API.STREAM.MSG.GET.ORDERS", "orders.>"
                    ]
                    subscribe: "_INBOX.>"
                } }
            ] }"#,
        )
        .start()
        .await;
    let connect = |user| nats::connect(server.url_as(user, "pw"), nats::connect_options());
    create(connected(|| connect("admin")).await.client(), orders()).await;
    let connection = connected(|| connect("leader")).await;
    let open =
        |stream, fence| FencedStream::with_token("my_app", Token(9), &connection, stream, fence);
    let leader = done(|| open(STREAM, FENCE)).await;
    publish(&leader, "orders.new", "9").await;
    let error = refused(|| leader.publish("other.new", "9")).await;
    assert!(error.to_string().contains("publish to other.new; grant it"), "{error}");
    for (stream, fence, subject) in
        [("OTHER", FENCE, "$JS.API.STREAM.INFO.OTHER"), (STREAM, "other.fence", "other.fence")]
    {
        let error = refused(|| open(stream, fence)).await;
        assert_eq!(error.kind(), FenceErrorKind::Misconfigured, "{error}");
        assert!(error.to_string().contains(&format!("publish to {subject}; grant it")), "{error}");
    }
}

/// A former leader of a replicated stream responds for a while, without the last messages: the
/// leader of the election is not told that its fence is gone.
#[tokio::test]
async fn stale_answers_do_not_end_a_term() {
    let mappings = r#"mappings {
        "$JS.API.STREAM.INFO.ORDERS": "former.info"
        "$JS.API.STREAM.MSG.GET.ORDERS": "former.get"
    }"#;
    let server = Server::builder().config(mappings).start().await;
    let client = server.connect().await;
    create(&client, orders()).await;
    let mut requests = client.subscribe("former.*").await.unwrap();
    let (stale, former) = (Arc::new(AtomicU32::new(4)), client.clone());
    let left = Arc::clone(&stale);
    let answers = tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            let is_stale = |left: u32| left.checked_sub(1);
            let answer = if request.subject.as_str() == "former.info" {
                r#"{"config":{"retention":"limits","storage":"file","num_replicas":3}}"#
            } else if left.fetch_update(Relaxed, Relaxed, is_stale).is_ok() {
                r#"{"error":{"code":404,"err_code":10037,"description":"no message found"}}"#
            } else {
                r#"{"message":{"subject":"orders.fence","seq":1,"data":"OSBteV9hcHA=","time":"2026-01-01T00:00:00Z"}}"#
            };
            former.publish(request.reply.unwrap(), answer.into()).await.unwrap();
        }
    });
    let leader = claim(&client, 9).await;
    assert_eq!(stale.load(Relaxed), 0);
    let id = || HeaderMap::from_iter([("Nats-Msg-Id".parse().unwrap(), "job 1".into())]);
    let sequence = done(|| leader.publish_with_headers("orders.new", id(), "9 a")).await;
    stale.store(3, Relaxed);
    let again = done(|| leader.publish_with_headers("orders.new", id(), "9 a")).await;
    assert_eq!((again, stale.load(Relaxed)), (sequence, 0));
    answers.abort();
}

/// Whoever consumes the stream receives the fence, unless by a filter.
#[tokio::test]
async fn watchers_of_all_keys_see_the_fence() {
    let server = Server::start().await;
    let client = server.connect().await;
    let config = kv::Config { bucket: "STATE".to_owned(), ..Default::default() };
    let store = create_bucket(&client, config).await;
    let mut watch = store.watch_all().await.unwrap();
    let open = || FencedBucket::with_token("my_app", Token(9), &client, "STATE");
    let bucket = done(open).await;
    done(|| bucket.put("position", "1")).await;
    for key in ["_fence.my_app", "position"] {
        assert_eq!(watch.next().await.unwrap().unwrap().key, key);
    }
}

/// Of tasks that count in the same key, each for itself, each counts once, whatever others write
/// meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn updates_of_one_term_exclude_each_other() {
    for replicas in [1, 3] {
        let cluster = Cluster::start().await;
        let client = cluster.connect().await;
        let js = jetstream::new(client.clone());
        let config =
            kv::Config { bucket: "STATE".to_owned(), num_replicas: replicas, ..Default::default() };
        let create = async || js.create_key_value(config.clone()).await.ok();
        let store = eventually("a bucket", create).await;
        let open = || FencedBucket::with_token("my_app", Token(9), &client, "STATE");
        let bucket = Arc::new(done(open).await);
        written(&store, "counts", "0 0 0 0", || bucket.create("counts", "0 0 0 0")).await;
        let mut tasks = JoinSet::new();
        for task in 0..4 {
            let (bucket, store) = (Arc::clone(&bucket), store.clone());
            tasks.spawn(async move {
                let other = format!("other.{task}");
                for number in 1..=5 {
                    done(|| bucket.put(&other, "1")).await;
                    loop {
                        // A direct read may be an older one, of which there is no update.
                        let Ok(Some(entry)) = store.entry("counts").await else { continue };
                        let text = std::str::from_utf8(&entry.value).unwrap();
                        let mut counts: Vec<u64> =
                            text.split(' ').map(|count| count.parse().unwrap()).collect();
                        if counts[task] == number {
                            break; // no answer had come to the update
                        }
                        counts[task] += 1;
                        let next = counts.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
                        match bucket.update("counts", next, entry.revision).await {
                            Ok(_) => break,
                            Err(error) if is_late(&error) => {}
                            Err(error) => {
                                assert_eq!(error.kind(), FenceErrorKind::Conflict, "{error}");
                            }
                        }
                    }
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        let counted = eventually("the last count", async || {
            store.get("counts").await.ok()?.filter(|counts| counts == "5 5 5 5")
        });
        counted.await;
    }
}

on_versions!(
    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    replicated_streams_take_writes_at_the_same_time: v2_11, v2_12, v2_14, v2_15
);
/// A replicated stream checks one condition on a subject at a time.
async fn replicated_streams_take_writes_at_the_same_time(version: Version) {
    let cluster = Cluster::builder().version(version).start().await;
    let client = cluster.connect().await;
    create(&client, Config { num_replicas: 3, ..orders() }).await;
    let leader = Arc::new(claim(&client, 7).await);
    let other = Arc::new(claim(&cluster.connect().await, 7).await);
    let mut writes = JoinSet::new();
    for number in 0..100 {
        let handle = Arc::clone(if number % 4 == 0 { &other } else { &leader });
        // Without an identifier: 2.11 keeps that of a write that it refused as one in process.
        writes.spawn(async move { handle.publish("orders.new", "7").await });
    }
    let mut stored = std::collections::BTreeSet::new();
    while let Some(written) = writes.join_next().await {
        stored.insert(written.unwrap().unwrap());
    }
    assert_eq!(stored.len(), 100);
    let successor = claim(&client, 9).await;
    assert_eq!(refused(|| leader.publish("orders.new", "7")).await.kind(), STALE_9);
    let before = history(&client).await.len();
    let dead = cluster.await_stream_leader(STREAM).await;
    cluster.server(dead).kill();
    let client = cluster.connect().await;
    crate::conformance::soon("another leader of the stream", async {
        while successor.publish("orders.new", "9").await.is_err() {}
    })
    .await;
    assert_eq!(refused(|| leader.publish("orders.new", "7")).await.kind(), STALE_9);
    assert_eq!(refusal(&client, 8).await.kind(), STALE_9);
    assert!(history(&client).await.len() > before);
}

/// Prints what a fence costs a write: the medians of 2,000 writes of 100 bytes with and without
/// one, by turns.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn cost_of_a_fence() {
    let cluster = Cluster::start().await;
    for replicas in [1, 3] {
        let client = async_nats::connect(cluster.server(0).url()).await.expect("a connection");
        create(&client, Config { num_replicas: replicas, ..orders() }).await;
        let leader = open(&client, 9).await.unwrap();
        let js = jetstream::new(client.clone());
        let mut spans = [Vec::new(), Vec::new()];
        for _ in 0..2_000 {
            let start = std::time::Instant::now();
            leader.publish("orders.new", vec![b'x'; 100]).await.unwrap();
            spans[0].push(start.elapsed());
            let start = std::time::Instant::now();
            js.publish("orders.new", vec![b'x'; 100].into()).await.unwrap().await.unwrap();
            spans[1].push(start.elapsed());
        }
        let [fenced, plain] = spans.map(|mut spans| {
            spans.sort();
            spans[spans.len() / 2]
        });
        eprintln!("{replicas} replicas: fenced {fenced:?}, plain {plain:?}");
        let start = std::time::Instant::now();
        let _next = open(&client, 10).await.unwrap();
        eprintln!("{replicas} replicas: opened in {:?}", start.elapsed());
        js.delete_stream(STREAM).await.unwrap();
    }
}
