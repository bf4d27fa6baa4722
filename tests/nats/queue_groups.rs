//! Fleets whose standbys receive hints through queue groups.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_nats::Client;
use futures_util::StreamExt;
use futures_util::future::select_all;
use incumbent::lock::{Content, Coverage, Hint, HintSink, Lock, Reading, Subscription};
use incumbent::nats::{Bucket, BucketConfig, NatsLock};
use incumbent::{Cause, Election, Successor, new_election};
use incumbent_test_support::{Server, eventually};
use tokio::sync::oneshot;

use crate::conformance::{LEASE, TIMEOUT, is_passing, leads, lost, soon, working};
use crate::env::{BUCKET, TestEnv, answered, opened};
use crate::lock::entry;
use crate::rights::{connect_as, documented_server};

const GROUPS: u8 = 4;
/// A lease that no test waits for: it is longer than the limit of every wait.
const LONG: Duration = Duration::from_secs(300);
/// More candidates than groups, by far.
const FLEET: usize = 24;

/// How many hints of stored entries have come.
pub struct Hints {
    pub subscription: Subscription,
    pub stored: Arc<AtomicUsize>,
    /// How often it was said that hints come: of all entries, then of a few.
    pub covered: Arc<AtomicUsize>,
}

pub async fn hints_of(lock: &NatsLock, name: &str) -> Hints {
    let stored = Arc::new(AtomicUsize::new(0));
    let covered = Arc::new(AtomicUsize::new(0));
    let (counted, coverage) = (Arc::clone(&stored), Arc::clone(&covered));
    let sink = HintSink::new(move |hint| match hint {
        Hint::Stored { record, .. } if matches!(record.content, Content::Held(_)) => {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Hint::Coverage(Coverage::Sampled | Coverage::Full) => {
            coverage.fetch_add(1, Ordering::SeqCst);
        }
        _ => {}
    });
    let subscription = lock.subscribe(name, sink);
    eventually("hints come", async || (covered.load(Ordering::SeqCst) > 0).then_some(())).await;
    Hints { subscription, stored, covered }
}

async fn lock_of(env: &TestEnv, groups: u8) -> NatsLock {
    let config = BucketConfig::new(BUCKET).queue_groups(groups);
    opened(env.client().await, config).await.lock()
}

/// The one that creates the bucket knows that nobody led before.
async fn env() -> TestEnv {
    let config = BucketConfig::new(BUCKET).ttl(LONG).queue_groups(GROUPS);
    TestEnv::with(Server::start().await, config).await
}

/// The first one leads. A notice that its successor missed, as on a busy machine, is repeated with
/// the next renewal.
async fn fleet(env: &TestEnv, size: usize) -> Vec<Election> {
    let renewal = Duration::from_secs(2);
    let mut fleet = vec![env.maker("c0").renewal(renewal).start().expect("a start")];
    let _leadership = leads(&fleet[0]).await;
    for number in 1..size {
        let lock = lock_of(env, GROUPS).await;
        let candidate = working(new_election("my_app", lock).identity(format!("c{number}")));
        fleet.push(candidate.renewal(renewal).start().expect("a start"));
    }
    fleet
}

/// Which one leads next.
async fn leader_of(candidates: &[Election]) -> usize {
    let wins = candidates.iter().map(|candidate| Box::pin(leads(candidate)));
    let (_leadership, leader, _) = select_all(wins).await;
    leader
}

async fn hints(env: &TestEnv, groups: u8) -> Hints {
    hints_of(&lock_of(env, groups).await, "my_app").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_reaches_one_of_each_group_and_those_that_need_all() {
    const ENTRIES: usize = 40;
    let env = env().await;
    let mut fleet = Vec::new();
    for _ in 0..FLEET {
        fleet.push(hints(&env, GROUPS).await);
    }
    let plain = hints(&env, 0).await;
    fleet[0].subscription.want_all(true);
    eventually("all hints come", async || {
        let before = fleet[0].stored.swap(0, Ordering::SeqCst);
        for _ in 0..10 {
            env.publish(&[], "other").await;
        }
        (before >= 10).then_some(())
    })
    .await;
    let all = [&plain].into_iter().chain(&fleet);
    all.for_each(|it| it.stored.store(0, Ordering::SeqCst));
    for _ in 0..ENTRIES {
        env.publish(&[], "other").await;
    }
    let count = |it: &Hints| it.stored.load(Ordering::SeqCst);
    eventually("every hint comes", async || {
        (count(&plain) >= ENTRIES && count(&fleet[0]) >= ENTRIES).then_some(())
    })
    .await;
    let sampled: usize = fleet[1..].iter().map(count).sum();
    assert!((1..=ENTRIES * usize::from(GROUPS) + 8).contains(&sampled), "{sampled} hints");

    fleet[0].subscription.want_all(false);
    eventually("few hints come again", async || {
        let before = count(&fleet[0]);
        for _ in 0..10 {
            env.publish(&[], "other").await;
        }
        (count(&fleet[0]) - before < 10).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_wakes_as_many_candidates_as_there_are_groups() {
    let env = env().await;
    let mut creates = env.client().await.subscribe(crate::env::KEY).await.expect("a subscription");
    let mut fleet = fleet(&env, FLEET).await;
    let mut changes = fleet[0].changes();
    fleet[0].resign();
    assert_eq!(lost(&mut changes).await, Cause::Resigned);
    let second = leader_of(&fleet).await;
    assert_ne!(second, 0);
    soon("the leader stops", fleet.remove(second).stop()).await;
    leader_of(&fleet).await;
    let mut sent = 0;
    while let Ok(Some(message)) = tokio::time::timeout(LEASE, creates.next()).await {
        let headers = message.headers.unwrap_or_default();
        let renews = headers.get("Incumbent-Token").is_some();
        sent += usize::from(!renews && headers.get("KV-Operation").is_none());
    }
    // Those of the fleet that started, and of two takeovers.
    assert!(sent <= FLEET + 2 * usize::from(GROUPS), "{sent} creates");
}

/// The successor has not received the notice that it needs when the leader sends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_after_an_eviction_does_not_wait_for_the_lease() {
    let env = env().await;
    let fleet = fleet(&env, FLEET).await;
    let mut changes = fleet[0].changes();
    env.delete_key().await;
    lost(&mut changes).await;
    leader_of(&fleet).await;
}

/// What others send upon a create must reach the candidate that creates.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_waits_for_the_subscription_of_its_candidate() {
    let env = env().await;
    let lock = lock_of(&env, GROUPS).await;
    let (begun, begins) = oneshot::channel();
    let (ready, listens) = oneshot::channel();
    let (go_on, resumed) = std::sync::mpsc::channel();
    let (end, ended) = oneshot::channel::<()>();
    let listening = lock.clone();
    // The task that subscribes runs on this runtime, which is held up.
    let busy = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let hints = hints_of(&listening, "my_app").await;
            begun.send(()).expect("the test continues");
            eventually("it joins a group", async || {
                (hints.covered.load(Ordering::SeqCst) > 1).then_some(())
            })
            .await;
            hints.subscription.want_all(true);
            ready.send(()).expect("the test continues");
            resumed.recv().expect("the test continues");
            let _ = ended.await;
        });
    });
    soon("hints come", begins).await.expect("it listens");
    let first = lock.write("my_app", entry(1, 1, None)).await.expect("a create");
    soon("few hints come", listens).await.expect("it listens");
    let create = lock.write("my_app", entry(1, 2, Some(first)));
    tokio::pin!(create);
    let early = tokio::time::timeout(Duration::from_millis(200), &mut create).await;
    assert!(early.is_err(), "written before the subscription");
    go_on.send(()).expect("it is held up");
    create.await.expect("a create");
    drop(end);
    busy.join().expect("it listened");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_with_and_without_groups_replace_each_other() {
    let env = env().await;
    let mut leader = fleet(&env, 1).await.remove(0);
    for round in 1..5 {
        let lock = lock_of(&env, if round % 2 == 0 { 0 } else { GROUPS }).await;
        let next = working(new_election("my_app", lock).identity(format!("c{round}")));
        let next = next.start().expect("a start");
        eventually("it stands by", async || next.leader().map(drop)).await;
        soon("the leader stops", leader.stop()).await;
        let _leadership = leads(&next).await;
        leader = next;
    }
}

/// Of many elections of a process, each one is heard of, also after another has joined.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn elections_of_one_process_share_its_groups() {
    let env = env().await;
    let locks = [env.bucket.lock(), lock_of(&env, GROUPS).await];
    let mut elections = Vec::new();
    for number in 0..5 {
        for (process, lock) in locks.iter().enumerate() {
            let election = new_election(format!("job-{number}"), lock.clone());
            let election = working(election.identity(format!("p{process}")));
            elections.push(election.start().expect("a start"));
        }
        let [.., first, second] = &elections[..] else { unreachable!() };
        let leader = leader_of(&elections[elections.len() - 2..]).await;
        let (leader, standby) = if leader == 0 { (first, second) } else { (second, first) };
        eventually("the other stands by", async || standby.leader().map(drop)).await;
        leader.resign();
        let _leadership = leads(standby).await;
    }
}

/// The release reaches the candidate that was chosen, and no other one is faster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_candidate_that_was_chosen_leads_next() {
    let env = env().await;
    let fleet = fleet(&env, FLEET).await;
    let chosen =
        eventually("the handover", async || fleet[0].hand_over(Successor::Any).await.ok()).await;
    let others = &fleet[1..];
    let leader = &others[leader_of(others).await];
    assert_eq!(*chosen, *leader.identity());
}

/// The leader receives all hints: its successor states that it does not, and is notified.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_leader_notifies_a_successor_in_a_queue_group() {
    let env = env().await;
    let fleet = fleet(&env, 2).await;
    let leader = working(new_election("my_app", lock_of(&env, 0).await).identity("plain"));
    let leader = leader.start().expect("a start");
    let to = Successor::Identity("plain".into());
    eventually("it takes over", async || fleet[0].hand_over(to.clone()).await.ok()).await;
    drop(leads(&leader).await);
    let calls = format!("incumbent-roll-call.{BUCKET}.my_app");
    let mut calls = env.client().await.subscribe(calls).await.expect("a subscription");
    let to = Successor::Identity("c1".into());
    eventually("it hands over", async || leader.hand_over(to.clone()).await.ok()).await;
    let notified = async {
        while let Some(call) = calls.next().await {
            let text = String::from_utf8_lossy(&call.payload).into_owned();
            if text.contains("\"candidate\"") {
                return;
            }
        }
    };
    soon("the successor is notified", notified).await;
    drop(leads(&fleet[1]).await);
}

/// The bucket states the groups: candidates that know of none by themselves share hints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_adopts_the_groups_of_its_bucket() {
    let env = env().await;
    let adopting = async || {
        let bucket = opened(env.client().await, BucketConfig::new(BUCKET)).await;
        hints_of(&bucket.lock(), "my_app").await
    };
    let mut fleet = Vec::new();
    for _ in 0..FLEET {
        fleet.push(adopting().await);
    }
    let client = env.client().await;
    let round = async || {
        fleet.iter().for_each(|hints| hints.stored.store(0, Ordering::SeqCst));
        for _ in 0..20 {
            client.publish(crate::env::KEY, "other".into()).await.expect("a publish");
        }
        client.flush().await.expect("a flush");
        tokio::time::sleep(Duration::from_millis(50)).await;
        fleet.iter().map(|hints| hints.stored.load(Ordering::SeqCst)).sum::<usize>()
    };
    eventually("they share hints", async || {
        (1..=20 * usize::from(GROUPS)).contains(&round().await).then_some(())
    })
    .await;
}

/// A bucket that states nothing, as of an earlier version or of Choria, is neither changed nor
/// taken for one with groups.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_without_metadata_keeps_its_behaviour() {
    let env = env().await;
    let client = env.client().await;
    let api = async |verb: &str, body| stream_api(&client, verb, body).await;
    let mut config = api("INFO", serde_json::json!({})).await["config"].take();
    assert_eq!(config["metadata"]["incumbent.queue-groups"], GROUPS.to_string());
    config["metadata"] = serde_json::json!({});
    let before = api("UPDATE", config).await["config"].take();
    let bucket = opened(env.client().await, BucketConfig::new(BUCKET)).await;
    let hints = [hints_of(&bucket.lock(), "my_app").await, hints(&env, 0).await];
    for _ in 0..100 {
        client.publish(crate::env::KEY, "other".into()).await.expect("a publish");
    }
    // The last one is behind all that came twice.
    client.publish(crate::env::KEY, "last".into()).await.expect("a publish");
    let counts = || hints.iter().map(|hints| hints.stored.load(Ordering::SeqCst));
    eventually("all hints come", async || counts().all(|count| count >= 101).then_some(())).await;
    assert!(counts().all(|count| count == 101), "no hint comes twice");
    assert_eq!(api("INFO", serde_json::json!({})).await["config"], before);
}

/// An election that starts before its bucket is known, or before the bucket states this, keeps no
/// time for Choria's candidates: it acquires nothing. Whoever observes and evicts may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidate_unaware_of_choria_acquires_nothing_beside_it() {
    let config = BucketConfig::new(BUCKET).ttl(LEASE);
    let stating = config.clone().with_choria(true);
    let env = TestEnv::with(Server::start().await, stating).await;
    assert!(env.bucket.lock().timing().with_choria);
    let deferred = async || {
        let bucket = Bucket::deferred(env.client().await, config.clone());
        new_election("my_app", bucket.expect("a bucket").lock())
    };
    let refused = working(deferred().await.identity("refused")).start().expect("a start");
    soon("the refusal", refusal_of(&refused)).await;
    let lock = Bucket::deferred(env.client().await, config.clone()).expect("a bucket").lock();
    let reading = lock.read("my_app", TIMEOUT).await.expect("a reading");
    assert!(matches!(reading, Reading::Empty { .. }), "{reading:?}");
    let told = working(deferred().await.identity("told")).with_choria().start().expect("a start");
    drop(leads(&told).await);
}

/// Waits until it reports that it acquires nothing, as the bucket has Choria's candidates.
async fn refusal_of(candidate: &Election) {
    let expected = "the bucket states that Choria's candidates take part";
    let mut status = candidate.watch();
    while !status.current().lock_failure.is_some_and(|it| it.message.contains(expected)) {
        status.next().await.expect("a change");
    }
}

async fn stream_api(client: &Client, verb: &str, body: serde_json::Value) -> serde_json::Value {
    let subject = format!("$JS.API.STREAM.{verb}.KV_{BUCKET}");
    let reply = client.request(subject, body.to_string().into()).await.expect("an answer");
    serde_json::from_slice(&reply.payload).expect("JSON")
}

/// Edits the metadata of the bucket.
async fn state(client: &Client, key: &str, value: &str) {
    let mut config = stream_api(client, "INFO", serde_json::json!({})).await["config"].take();
    config["metadata"][key] = value.into();
    let edited = stream_api(client, "UPDATE", config).await;
    assert_eq!(edited["config"]["metadata"][key], value, "{edited}");
}

/// It reads the settings again before it creates the entry over a deleted one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_may_state_choria_after_candidates_have_started() {
    let env = env().await;
    let fleet = fleet(&env, 1).await;
    let standby = working(new_election("my_app", lock_of(&env, 0).await).identity("standby"));
    let standby = standby.start().expect("a start");
    let mut status = standby.watch();
    while status.current().leader.is_none() {
        status.next().await.expect("a change");
    }
    let client = env.client().await;
    state(&client, "incumbent.with-choria", "true").await;
    env.delete_key().await;
    soon("the refusal", refusal_of(&standby)).await;
    drop(fleet);
}

#[tokio::test]
async fn a_value_that_is_neither_true_nor_false_is_refused() {
    let env = env().await;
    let client = env.client().await;
    state(&client, "incumbent.with-choria", "yes").await;
    let refused = answered(|| Bucket::open(&client, BUCKET)).await.expect_err("a refusal");
    assert!(refused.to_string().contains("neither true nor false"), "{refused}");
}

/// A group has members that take part in the same elections, also after one of them has joined
/// another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_of_different_elections_share_no_hints() {
    let name = |process: usize, number: usize| match number {
        3 => format!("own-{process}"),
        _ => format!("shared-{number}"),
    };
    let env = env().await;
    let mut processes = Vec::new();
    for _ in 0..4 {
        processes.push((lock_of(&env, 1).await, Vec::new()));
    }
    for number in 0..4 {
        for (process, (lock, hints)) in processes.iter_mut().enumerate() {
            hints.push(hints_of(lock, &name(process, number)).await);
        }
    }
    let client = env.client().await;
    let write = async |process: usize, number: usize, times: usize| {
        for _ in 0..times {
            let key = format!("$KV.{BUCKET}.{}", name(process, number));
            client.publish(key, "other".into()).await.expect("a publish");
        }
        client.flush().await.expect("a flush");
    };
    for (process, (_, hints)) in processes.iter().enumerate() {
        eventually("all hints come", async || {
            for number in 0..4 {
                write(process, number, 10).await;
            }
            let stored = || hints.iter().map(|hints| hints.stored.load(Ordering::SeqCst));
            stored().all(|stored| stored >= 10).then_some(())
        })
        .await;
        hints.iter().for_each(|hints| hints.stored.store(0, Ordering::SeqCst));
        write(process, 3, 30).await;
        let count = || hints[3].stored.load(Ordering::SeqCst);
        eventually("every hint comes", async || (count() >= 30).then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_suffice() {
    let server = documented_server().await;
    let config = BucketConfig::new(BUCKET).queue_groups(GROUPS);
    let candidate = async |identity: &str| {
        let connection = connect_as(&server, "candidate").await;
        let lock = opened(connection, config.clone()).await.lock();
        working(new_election("my_app", lock).identity(identity)).start().expect("a start")
    };
    let first = candidate("first").await;
    let _leadership = leads(&first).await;
    let second = candidate("second").await;
    eventually("it stands by", async || second.leader().map(drop)).await;
    soon("the leader stops", first.stop()).await;
    let _leadership = leads(&second).await;
    eventually("no failure", async || {
        let Some(failure) = second.lock_failure() else { return Some(()) };
        assert!(is_passing(failure.kind), "{failure:?}"); // of a busy machine, for a moment
        None
    })
    .await;
}
