//! A fleet shared with candidates that behave as Choria's do.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, kv};
use incumbent::nats::{Bucket, BucketConfig};
use incumbent::new_election;
use incumbent_test_support::{Server, eventually, jetstream_on};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::conformance::{leads, working};
use crate::env::{BUCKET, CALM, TestEnv, answered, opened};

const TTL: Duration = Duration::from_secs(5);

/// Who leads by its own word, and whether two of different kinds ever did at once. (Two of Choria's
/// may, by their rules.)
#[derive(Default)]
struct Ledger {
    ours: AtomicUsize,
    theirs: AtomicUsize,
    /// Until when theirs is at work: one that hears of no success for a whole TTL hangs, as on a
    /// machine that stands still, and nobody waits for that.
    theirs_works_until: Mutex<Option<Instant>>,
    overlaps: Mutex<Vec<String>>,
}

impl Ledger {
    fn enter(&self, mine: &AtomicUsize, who: &str) {
        mine.fetch_add(1, Ordering::SeqCst);
        let (ours, theirs) = (self.ours.load(Ordering::SeqCst), self.theirs.load(Ordering::SeqCst));
        let works_until = *self.theirs_works_until.lock().unwrap();
        let theirs = if works_until < Some(Instant::now()) { 0 } else { theirs };
        if ours > 1 || (ours > 0 && theirs > 0) {
            self.overlaps.lock().unwrap().push(format!("{who}: {ours} ours, {theirs} theirs"));
        }
    }
}

/// A candidate that does on the wire what go-choria's provider does without back-off: create, plain
/// update at 0.75 of the TTL, win 200 ms after the first update, give up on any error.
fn choria_like(kv: kv::Store, identity: &'static str, ledger: Arc<Ledger>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut tick = tokio::time::interval(TTL * 3 / 4);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut held: Option<u64> = None;
        let mut leads = false;
        loop {
            tick.tick().await;
            let value = identity.into();
            let campaign = match held {
                None => kv.create("my_app", value).await.map_err(|_| ()),
                Some(revision) => kv.update("my_app", value, revision).await.map_err(|_| ()),
            };
            if campaign.is_ok() {
                *ledger.theirs_works_until.lock().unwrap() = Some(Instant::now() + TTL);
            }
            match (campaign, held) {
                (Ok(revision), None) => held = Some(revision),
                (Ok(revision), Some(_)) => {
                    held = Some(revision);
                    if !leads {
                        tokio::time::sleep(Duration::from_millis(200)).await;
                        leads = true;
                        ledger.enter(&ledger.theirs, identity);
                    }
                }
                (Err(()), _) => {
                    held = None;
                    if std::mem::take(&mut leads) {
                        ledger.theirs.fetch_sub(1, Ordering::SeqCst);
                    }
                }
            }
        }
    })
}

async fn until(what: &str, mut reached: impl FnMut() -> bool) {
    eventually(what, async || reached().then_some(())).await;
}

/// As a Choria broker makes it: 1024 bytes a message, no markers, no republish.
async fn choria_made_bucket(server: &Server) -> jetstream::Context {
    let js = jetstream_on(server.connect().await);
    js.create_stream(jetstream::stream::Config {
        name: format!("KV_{BUCKET}"),
        subjects: vec![format!("$KV.{BUCKET}.>")],
        max_messages_per_subject: 1,
        max_age: TTL,
        max_message_size: 1024,
        discard: jetstream::stream::DiscardPolicy::New,
        deny_delete: true,
        allow_rollup: true,
        allow_direct: true,
        ..Default::default()
    })
    .await
    .unwrap();
    js
}

/// Deletes each entry of `evicted` until the holder of the entry is as it should be: whom a busy
/// machine holds up does not lead next.
async fn evict_until(
    kv: &kv::Store,
    evicted: &str,
    what: &str,
    reached: impl Fn(Option<&str>) -> bool,
) {
    eventually(what, async || {
        let entry = kv.get("my_app").await.ok()?;
        let holder = entry.as_deref().and_then(|entry| std::str::from_utf8(entry).ok());
        if reached(holder) {
            return Some(());
        }
        if holder == Some(evicted) {
            let _ = kv.delete("my_app").await;
        }
        None
    })
    .await;
}

/// Leadership goes from theirs to ours and back, by release, by expiry and by eviction, and never
/// do one of ours and one of theirs lead at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn ours_and_chorias_never_lead_at_once() {
    let server = Server::start().await;
    let js = choria_made_bucket(&server).await;
    let ledger = Arc::new(Ledger::default());
    let kv = js.get_key_value(BUCKET).await.unwrap();
    let theirs = choria_like(kv.clone(), "go-1", Arc::clone(&ledger));
    until("theirs leads", || ledger.theirs.load(Ordering::SeqCst) == 1).await;

    let lock = opened(server.connect().await, BucketConfig::new(BUCKET)).await.lock();
    let at_work = Arc::clone(&ledger);
    let election = new_election("my_app", lock)
        .identity("rust-1")
        .with_choria()
        .on_won(move |leadership| {
            let ledger = Arc::clone(&at_work);
            async move {
                ledger.enter(&ledger.ours, "rust-1");
                leadership.ended().await;
                ledger.ours.fetch_sub(1, Ordering::SeqCst);
            }
        })
        .start()
        .unwrap();

    // Evicted: theirs may not notice for a while, and ours has to wait it out.
    evict_until(&kv, "go-1", "ours leads", |holder| {
        holder == Some("rust-1") && ledger.ours.load(Ordering::SeqCst) == 1
    })
    .await;

    // Evicted again, with theirs waiting: ours stops on the hint.
    evict_until(&kv, "rust-1", "ours stands down", |_| ledger.ours.load(Ordering::SeqCst) == 0)
        .await;

    // Released: theirs, or ours again, may lead.
    election.stop().await;
    until("theirs leads again", || ledger.theirs.load(Ordering::SeqCst) == 1).await;
    theirs.abort();
    assert_eq!(*ledger.overlaps.lock().unwrap(), Vec::<String>::new());
}

/// A Choria broker's bucket carries elections of ours: entries fit its messages, expiry is its max
/// age.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_created_by_choria_carries_elections() {
    let server = Server::start().await;
    choria_made_bucket(&server).await;
    let bucket = opened(server.connect().await, BucketConfig::new(BUCKET)).await;
    let lock = bucket.lock();
    let start = |identity: &str| {
        let builder = new_election("my_app", lock.clone()).identity(identity);
        working(builder).start().unwrap()
    };
    let first = start("first");
    drop(leads(&first).await);
    let second = start("second");
    first.stop().await;
    drop(leads(&second).await);
    let longest = "x".repeat(2000);
    let refused = new_election("my_app", lock.clone()).identity(longest).start().unwrap_err();
    assert!(refused.to_string().contains("2000 bytes"), "{refused}");
    let findings = answered(|| bucket.health()).await.unwrap();
    assert!(!findings.is_empty(), "no markers, no republish");
}

/// What `kv get` of Choria and of nats shows is the identity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_value_is_the_identity_as_choria_writes_it() {
    let env = TestEnv::with_ttl(CALM).await;
    let election = env.maker("c1.example.net").start().unwrap();
    drop(leads(&election).await);
    let message = env.message().await.unwrap();
    assert_eq!(&message.payload[..], b"c1.example.net");
    let (client, config) = (env.client().await, BucketConfig::new(BUCKET));
    let again = answered(|| Bucket::create_or_open(&client, config.clone())).await;
    assert!(again.is_ok(), "an existing bucket is taken as it is");
}
