//! Junk, forgeries and noise in a bucket, and on the subjects beside it: a candidate survives them,
//! logs what it saw, and leads again.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use incumbent::nats::{Bucket, BucketConfig, NatsLock};
use incumbent::{Cause, Election, new_election};
use incumbent_test_support::{Proxy, Server, Version, on_versions};
use tokio::sync::mpsc;

use crate::conformance::{ExclusionChecker, leads, lost, sees, soon};
use crate::env::{BUCKET, CALM, TestEnv, answered, created, opened};
use crate::log::Log;
use crate::raw::Raw;

/// Longer than a busy machine holds up a leader.
const TTL: Duration = Duration::from_secs(16);

/// Soon enough for a leader to meet what was done to its entry.
const RENEWAL: Duration = Duration::from_millis(700);

/// The log message for an unreadable entry.
const UNREADABLE: &str = "entry without a mark";

/// Two candidates of one election, the first leading, and the record of their terms.
struct Contest {
    name: String,
    first: Election,
    second: Election,
    won: mpsc::UnboundedReceiver<String>,
    checker: Arc<ExclusionChecker>,
}

impl Contest {
    async fn open(env: &TestEnv, name: &str) -> Self {
        let (checker, (told, won)) =
            (Arc::new(ExclusionChecker::default()), mpsc::unbounded_channel());
        let start = |lock: NatsLock, identity: &str| {
            let builder = new_election(name, lock).identity(identity).renewal(RENEWAL);
            checker.watch(builder, identity, told.clone()).start().expect("a start")
        };
        // The one that created the bucket need not wait.
        let first = start(env.bucket.lock(), "first");
        let mut contest = Self {
            name: name.to_owned(),
            second: first.clone(),
            first,
            won,
            checker: checker.clone(),
        };
        contest.next_win().await;
        contest.second = start(env.lock().await, "second");
        sees(&contest.second, "first").await;
        contest
    }

    fn key(&self) -> String {
        format!("$KV.{BUCKET}.{}", self.name)
    }

    async fn next_win(&mut self) {
        soon(&format!("{}: there is a leader", self.name), self.won.recv()).await;
    }

    /// One leads again; two never did, and tokens grew. Then both stop without an error.
    async fn ends_well(mut self) {
        self.next_win().await;
        soon(&format!("{}: a stop", self.name), self.first.stop()).await;
        soon(&format!("{}: a stop", self.name), self.second.stop()).await;
        self.checker.verdict();
    }
}

fn lines(lines: &str) -> Vec<u8> {
    format!("NATS/1.0\r\n{lines}\r\n").into_bytes()
}

/// What is written over a leader's entry: its name, headers and value.
fn junk() -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let ours = "Incumbent-Version: 1\r\nIncumbent-Write: 00000000000000aa-1\r\nIncumbent-Lease:";
    let name = || b"junk".to_vec();
    let thousand: String = (0..1_000).map(|n| format!("X-{n}: {n}\r\n")).collect();
    let with = |bytes: &[u8]| [&b"NATS/1.0\r\nIncumbent-Write: "[..], bytes, b"\r\n\r\n"].concat();
    let marked = |bytes: &str| lines(&format!("{ours}{bytes}"));
    vec![
        ("megabyte", lines(""), vec![b'x'; 1_000_000]),
        ("not-text", lines(""), vec![0xff; 3_000]),
        ("escapes", lines(""), b"\x1b[31m\r\nfake line\0".to_vec()),
        ("empty", lines(""), Vec::new()),
        ("thousand-headers", lines(&thousand), name()),
        ("later-version", lines("Incumbent-Version: 2\r\n"), name()),
        ("negative-lease", marked(" -5\r\n"), name()),
        ("huge-lease", marked(" 99999999999999999999\r\n"), name()),
        ("lease-not-a-number", marked(" NaN\r\n"), name()),
        ("empty-lease", marked("\r\n"), name()),
        ("token-too-large", marked(" 2000\r\nIncumbent-Token: 18446744073709551616\r\n"), name()),
        ("bad-nonce", with(b"zz-99999999999999999999"), name()),
        ("not-utf-8-header", with(b"\xff\xfe\xc0"), name()),
        ("no-colon", b"NATS/1.0\r\nIncumbent\r\n\r\n".to_vec(), name()),
        ("status", b"NATS/1.0 503 No Responders\r\n\r\n".to_vec(), name()),
        ("bad-status", b"NATS/1.0 junk\r\n\r\n".to_vec(), name()),
    ]
}

/// An entry that cannot be read is a holder of another kind: it supersedes, it is logged, it
/// expires, and it is waited out.
#[tokio::test]
async fn junk_over_an_entry_is_logged_and_waited_out() {
    let log = Log::start();
    let env = TestEnv::with_ttl(TTL).await;
    let cases = junk().into_iter().map(|(name, headers, value)| {
        let (env, log) = (&env, &log);
        async move {
            let contest = Contest::open(env, name).await;
            let mut changes = contest.first.changes();
            let mut raw = Raw::connect(&env.server).await;
            let before = std::time::Instant::now();
            raw.publish(&contest.key(), &headers, &value).await;
            let cause = lost(&mut changes).await;
            assert!(matches!(cause, Cause::Superseded { .. }), "{name}: {cause}");
            contest.ends_well().await;
            // 0.75 of the TTL and 5 s: what one of Choria's may need to learn of its loss.
            let waited = before.elapsed();
            assert!(waited >= TTL * 3 / 4 + Duration::from_secs(5), "{name}: {waited:?}");
            let told = log.lines(&["WARN", UNREADABLE, &format!("name={name} ")]);
            assert!((1..=2).contains(&told.len()), "{name}: {told:#?}");
            assert!(told.iter().all(|line| line.len() < 600), "{name}: {told:#?}");
        }
    });
    futures_util::future::join_all(cases).await;
    assert_eq!(log.lines(&[]).iter().filter(|line| line.starts_with("fake")).count(), 0);
}

/// Not even a span of years in a mark keeps an election empty forever; a negative one counts as
/// none.
#[tokio::test]
async fn impossible_durations_do_not_outlast_the_bucket() {
    let env = TestEnv::with_ttl(TTL).await;
    let ours = "KV-Operation: DEL\r\nIncumbent-Version: 1\r\nIncumbent-By: 00000000000000aa\r\n";
    let tombstones = [
        ("forged-mark", format!("{ours}Incumbent-Left: 0\r\n")),
        ("forged-years", format!("{ours}Incumbent-Left: 99999999999\r\n")),
        ("negative-left", format!("{ours}Incumbent-Left: -1\r\n")),
        ("no-left", ours.to_owned()),
        (
            "mark-not-hex",
            "KV-Operation: DEL\r\nIncumbent-Version: 1\r\nIncumbent-By: \u{e9}\r\n".to_owned(),
        ),
        ("purge-of-nobody", "KV-Operation: PURGE\r\nKV-Operation: PUT\r\n".to_owned()),
        ("forged-marker", "Nats-Marker-Reason: MaxAge\r\n".to_owned()),
        ("unknown-marker", "Nats-Marker-Reason: \u{202e}\r\n".to_owned()),
    ];
    let cases = tombstones.into_iter().map(|(name, headers)| {
        let env = &env;
        async move {
            let contest = Contest::open(env, name).await;
            let mut changes = contest.first.changes();
            let mut raw = Raw::connect(&env.server).await;
            raw.publish(&contest.key(), &lines(&headers), b"").await;
            let cause = lost(&mut changes).await;
            assert!(matches!(cause, Cause::Evicted | Cause::Expired { .. }), "{name}: {cause}");
            contest.ends_well().await;
        }
    });
    futures_util::future::join_all(cases).await;
}

on_versions!(
    #[tokio::test]
    an_endless_entry_expires_on_a_server_without_message_ttls: v2_10
);
/// The old servers store a life that they do not know of: the entry is gone after the bucket's own,
/// without a sign.
async fn an_endless_entry_expires_on_a_server_without_message_ttls(version: Version) {
    let env = TestEnv::of_version(version, TTL).await;
    let mut contest = Contest::open(&env, "my_app").await;
    let mut raw = Raw::connect(&env.server).await;
    raw.publish(&contest.key(), &lines("Nats-TTL: never\r\n"), b"junk").await;
    contest.next_win().await;
    contest.first.resign();
    contest.second.resign();
    contest.ends_well().await;
}

/// Ten thousand other keys, and a flood of writes to them, change nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_unrelated_keys_are_ignored() {
    let env = TestEnv::with_ttl(CALM).await;
    let client = env.client().await;
    let noise = async |round: u32| {
        for key in 0..10_000 {
            let value = vec![b'~'; 20 + key % 50];
            client
                .publish(format!("$KV.{BUCKET}.noise.{key}.{round}"), value.into())
                .await
                .unwrap();
        }
        client.flush().await.unwrap();
    };
    noise(0).await;
    let contest = Contest::open(&env, "my_app").await;
    let leadership = leads(&contest.first).await;
    noise(1).await;
    assert!(leadership.is_valid(), "noise on other keys costs no term");
    assert!(!answered(|| env.bucket.health()).await.unwrap().is_empty());
    drop(leadership);
    contest.first.resign();
    contest.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_over_the_entry_itself_is_survived() {
    let env = TestEnv::with_ttl(TTL).await;
    let contest = Contest::open(&env, "my_app").await;
    let client = env.client().await;
    for n in 0..3_000_u32 {
        let value: Vec<u8> = n.to_be_bytes().repeat(8);
        client.publish(contest.key(), value.into()).await.unwrap();
    }
    client.flush().await.unwrap();
    contest.ends_well().await;
}

/// Forged hints: they may end a term, they begin none, and true ones are received afterwards.
#[tokio::test]
async fn forged_messages_beside_the_bucket_end_at_most_a_term() {
    let env = TestEnv::with_ttl(TTL).await;
    let contest = Contest::open(&env, "my_app").await;
    let mut raw = Raw::connect(&env.server).await;
    let subject = format!("incumbent.{BUCKET}.my_app");
    let stored = format!("Nats-Stream: KV_{BUCKET}\r\nNats-Sequence:");
    let mut changes = contest.first.changes();
    for said in [
        String::new(),
        "Incumbent-Stepped-Down: 1-2-3-4\r\n".to_owned(),
        format!("Incumbent-Stepped-Down: {:016x}-{}-{}-0\r\n", 1, u64::MAX, u64::MAX),
        "Nats-Stream: KV_OTHER\r\nNats-Sequence: 99999999\r\n".to_owned(),
        format!("{stored} -1\r\n"),
        format!("{stored} 1\r\nNats-Time-Stamp: 9999-12-31T23:59:60Z\r\n"),
        format!("{stored} 18446744073709551615\r\nKV-Operation: DEL\r\nNats-Time-Stamp: never\r\n"),
        format!("{stored} 18446744073709551615\r\nNats-TTL: never\r\n"),
    ] {
        raw.publish(&subject, &lines(&said), &[b'?'; 3_000]).await;
    }
    assert!(matches!(lost(&mut changes).await, Cause::Evicted | Cause::Superseded { .. }));
    contest.ends_well().await;
}

/// Of another term, and of another write: neither is a notice of the superseded holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_down_notice_of_another_term_shortens_no_wait() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.address());
    let (client, config) = (proxy.connect().await, BucketConfig::new(BUCKET).ttl(TTL));
    let create = || Bucket::create(&client, config.clone());
    let bucket = created(&client, BUCKET, create).await;
    let env = TestEnv { server, bucket };
    let behind = new_election("my_app", env.bucket.lock()).identity("cut-off");
    let cut_off = behind.start().unwrap();
    let leadership = leads(&cut_off).await;
    let other = env.start("other").await;
    sees(&other, "cut-off").await;
    proxy.black_hole();
    let mut raw = Raw::connect(&env.server).await;
    env.delete_key().await;
    let told = format!("incumbent.{BUCKET}.my_app");
    let token = leadership.token().0;
    for (by, token, revision) in [(1, token, token - 1), (0xaa, token + 1, 0), (0, 0, u64::MAX)] {
        let said = format!("Incumbent-Stepped-Down: {by:016x}-{token}-{revision}-0\r\n");
        raw.publish(&told, &lines(&said), b"").await;
    }
    let next = leads(&other).await;
    assert!(!leadership.is_valid() && leadership.remaining().is_zero());
    drop(next);
}

/// A client that may subscribe to the key sees the writer's reply subject, and can send a reply of
/// its own. A false success needs the stream's name and a revision that can be; anything less is
/// settled by reading.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn false_responses_to_renewals_are_verified() {
    let env = TestEnv::with_ttl(TTL).await;
    let contest = Contest::open(&env, "my_app").await;
    let liar = env.client().await;
    let mut writes = liar.subscribe(contest.key()).await.unwrap();
    liar.flush().await.unwrap();
    let lies = [
        "",
        "\u{0}",
        "{",
        r#"{"stream":"KV_OTHER","seq":5}"#,
        r#"{"stream":"KV_CHORIA_LEADER_ELECTION","seq":1}"#,
        r#"{"stream":"KV_CHORIA_LEADER_ELECTION","seq":-1}"#,
        r#"{"error":{"code":400,"err_code":10071,"description":"lie"}}"#,
        r#"{"error":{"code":503,"err_code":10008,"description":"lie\r\nlie"}}"#,
        r#"{"error":"lie"}"#,
    ];
    for lie in lies {
        let heard = soon("a write", writes.next()).await.expect("a subscription");
        let Some(reply) = heard.reply else { continue };
        liar.publish(reply, lie.into()).await.unwrap();
        liar.flush().await.unwrap();
    }
    drop(writes);
    contest.first.resign();
    contest.second.resign();
    contest.ends_well().await;
}

/// The greatest sequences that there are. (In memory: on disk the server keeps the two highest bits
/// of one for itself.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_near_the_largest_integer_are_accepted() {
    let server = Server::start().await;
    let client = server.connect().await;
    let stream = serde_json::json!({
        "name": format!("KV_{BUCKET}"), "subjects": [format!("$KV.{BUCKET}.>")],
        "max_age": u64::try_from(TTL.as_nanos()).unwrap(), "max_msgs_per_subject": 1,
        "num_replicas": 1, "storage": "memory", "allow_rollup_hdrs": true,
        "first_seq": u64::MAX - 1_000_000,
    });
    let subject = format!("$JS.API.STREAM.CREATE.KV_{BUCKET}");
    let answer = client.request(subject, stream.to_string().into()).await.unwrap();
    assert!(!answer.payload.windows(7).any(|w| w == b"\"error\""), "{:?}", answer.payload);
    let bucket = opened(client, BucketConfig::new(BUCKET)).await;
    let env = TestEnv { server, bucket };
    let contest = Contest::open(&env, "my_app").await;
    assert!(contest.first.token().is_some_and(|token| token.0 > u64::MAX - 1_000_001));
    contest.first.resign();
    contest.ends_well().await;
}
