//! What stores, networks and administrators do to elections.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{
    Content, Lock, LockErrorKind, Mark, Nonce, Reading, Release, Write, WriteId,
};
use incumbent::{Cause, Change};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::behaviour::{Process, Witness, change, lost, sees, soon, won};
use crate::gate::{Fault, refusal};
use crate::raw::Message;
use crate::scene::{Azure, Fields, Gcs, Kind, LEASE, S3, Scene, leads, of_go, unix_ms};
use crate::server::{ACCESS_KEY, SECRET_KEY};

pub const TIMEOUT: Duration = Duration::from_secs(5);

pub fn write(number: u64) -> Write {
    Write {
        expected: None,
        identity: "c1".into(),
        mark: Mark {
            write: WriteId { nonce: Nonce(7), number },
            lease: LEASE,
            token: None,
            since_unix_ms: 0,
        },
        life: LEASE,
        advertisement: None,
        timeout: TIMEOUT,
    }
}

/// What each refusal of a write means: whether it may have been applied, and whether trying again helps.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn refusals_are_told_apart() {
    let scene = Scene::<S3>::new(LEASE).await;
    let lock = scene.bucket().lock();
    for (status, code, kind) in [
        ("412 Precondition Failed", "PreconditionFailed", LockErrorKind::Conflict),
        ("409 Conflict", "ConditionalRequestConflict", LockErrorKind::Conflict),
        ("429 Too Many Requests", "TooManyRequests", LockErrorKind::Unavailable),
        ("503 Service Unavailable", "SlowDown", LockErrorKind::Unknown),
        ("500 Internal Server Error", "InternalError", LockErrorKind::Unknown),
        ("403 Forbidden", "AccessDenied", LockErrorKind::Denied),
        ("401 Unauthorized", "InvalidAccessKeyId", LockErrorKind::Denied),
        ("404 Not Found", "NoSuchBucket", LockErrorKind::Misconfigured),
        ("501 Not Implemented", "NotImplemented", LockErrorKind::Misconfigured),
        ("400 Bad Request", "InvalidRequest", LockErrorKind::Misconfigured),
    ] {
        scene.gate.once("PUT", Fault::Answer(refusal(status, code, "said so")));
        let error = lock.write("my_app", write(1)).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{status}: {error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    scene.gate.once("GET", Fault::Answer(refusal("403 Forbidden", "AccessDenied", "said so")));
    let error = lock.names(LEASE).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Denied, "a list: {error}");
    assert_eq!(scene.gate.left(), 0, "each was sent once");
    assert_eq!(scene.object().await, None);
}

/// A store that says for how long it is too busy is asked again, once it is over, if there is time; what then looks like
/// somebody else's write may be the first try.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_busy_store_is_asked_again_when_it_says() {
    let scene = Scene::<S3>::new(LEASE).await;
    let lock = scene.bucket().lock();
    let busy = refusal("429 Too Many Requests", "SlowDown", "later").with("retry-after", "1");
    scene.gate.once("PUT", Fault::Answer(busy.clone()));
    let asked = Instant::now();
    let first = lock.write("my_app", write(1)).await.unwrap();
    assert!(asked.elapsed() >= Duration::from_secs(1));

    let expected = Some(first);
    let next = Write { expected, ..write(2) };
    scene.gate.once("PUT", Fault::Answer(busy.with("retry-after", "3600")));
    let error = lock.write("my_app", next.clone()).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");

    let failed = refusal("503 Service Unavailable", "Busy", "later").with("retry-after", "1");
    scene.gate.once("PUT", Fault::Answer(failed));
    let refused = refusal("412 Precondition Failed", "PreconditionFailed", "no");
    scene.gate.once("PUT", Fault::Answer(refused));
    let error = lock.write("my_app", next).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unknown, "{error}");
}

/// Where nothing listens nothing was written; where the answer is lost it may have been.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_lost_answer_is_an_unknown_outcome_and_a_refused_connection_is_none() {
    let scene = Scene::<Gcs>::new(LEASE).await;
    let lock = scene.bucket().lock();
    scene.gate.once("PUT", Fault::LoseAnswer);
    let error = lock.write("my_app", write(1)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unknown, "{error}");
    let again = lock.write("my_app", write(1)).await.unwrap_err();
    assert_eq!(again.kind(), LockErrorKind::Conflict, "{again}");
    let Reading::Found(record) = lock.read("my_app", TIMEOUT).await.unwrap() else { panic!() };
    let Content::Held(entry) = record.content else { panic!("{record:?}") };
    assert_eq!(entry.mark.unwrap().write, write(1).mark.write);

    scene.gate.once("PUT", Fault::Hold);
    let patience = Duration::from_millis(300);
    let hangs = Write { expected: Some(record.revision), timeout: patience, ..write(2) };
    let error = lock.write("my_app", hangs).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unknown, "{error}");

    let nobody = Gcs::bucket(1).lock();
    let error = nobody.write("my_app", write(1)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Unavailable, "{error}");
}

/// A write, a renewal and a release name what they replace, so that what somebody else has written since stays.
async fn what_others_wrote_stays<K: Kind>() {
    let scene = Scene::<K>::new(LEASE).await;
    let (ours, theirs) = (scene.bucket().lock(), scene.bucket().lock());
    let conflict = |error: incumbent::lock::LockError| {
        assert_eq!(error.kind(), LockErrorKind::Conflict, "{error}");
    };
    let first = ours.write("my_app", write(1)).await.unwrap();
    conflict(theirs.write("my_app", write(2)).await.unwrap_err());
    let over = |number| Write { expected: Some(first), ..write(number) };
    theirs.write("my_app", over(3)).await.unwrap();
    let theirs = scene.object().await;
    conflict(ours.write("my_app", over(4)).await.unwrap_err());
    conflict(ours.evict("my_app", first, TIMEOUT).await.unwrap_err());
    let release = Release {
        expected: first,
        by: Nonce(7),
        left: Duration::ZERO,
        cause: "stopped",
        timeout: TIMEOUT,
    };
    conflict(ours.release("my_app", release).await.unwrap_err());
    assert_eq!(scene.object().await, theirs);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_others_wrote_stays_on_s3() {
    what_others_wrote_stays::<S3>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_others_wrote_stays_on_gcs() {
    what_others_wrote_stays::<Gcs>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_others_wrote_stays_on_azure() {
    what_others_wrote_stays::<Azure>().await;
}

/// A store that applies conditional writes in any case would elect everybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_store_that_heeds_no_conditions_is_refused() {
    let scene = Scene::<S3>::new(LEASE).await;
    let applied = Message::new("HTTP/1.1 200 OK").with("etag", "\"1\"");
    scene.gate.always("PUT", Fault::Answer(applied));
    let error = scene.bucket().lock().write("my_app", write(1)).await.unwrap_err();
    assert_eq!(error.kind(), LockErrorKind::Misconfigured);
    assert!(error.to_string().contains("does not heed If-None-Match"), "{error}");
}

/// What no campaigner has written is not taken for an election.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_object_of_something_else_is_left_alone() {
    let scene = Scene::<S3>::new(LEASE).await;
    for body in [b"{\"holder\": 1}".to_vec(), vec![b'x'; 100_000]] {
        scene.put(body.clone()).await;
        let error = scene.bucket().lock().read("my_app", TIMEOUT).await.unwrap_err();
        assert_eq!(error.kind(), LockErrorKind::Misconfigured, "{error}");
        let stands = scene.stand("c1");
        soon("it says what is wrong", async {
            while stands.trouble().is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        stands.stop().await;
        assert_eq!(scene.object().await, Some(body));
    }
}

/// No key is ever shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn keys_are_not_told() {
    let scene = Scene::<S3>::new(LEASE).await;
    let bucket = scene.bucket();
    let mut told = format!("{bucket:?} {:?}", bucket.lock());
    let body = format!("it signs with {SECRET_KEY}, key {ACCESS_KEY}");
    let mut answer = refusal("403 Forbidden", "SignatureDoesNotMatch", "see to the key");
    answer.body.extend(format!("<StringToSign>{body}</StringToSign>").bytes());
    scene.gate.once("PUT", Fault::Answer(answer));
    let error = bucket.lock().write("my_app", write(1)).await.unwrap_err();
    told.push_str(&format!("{error} {error:?}"));
    assert!(!told.contains(SECRET_KEY) && !told.contains(ACCESS_KEY), "{told}");
    assert!(told.contains("see to the key"), "{told}");
}

/// Tokens grow when the object is deleted, by who has seen it and by who has not.
async fn tokens_grow_over_a_deletion<K: Kind>() {
    let scene = Scene::<K>::new(LEASE).await;
    let first = scene.stand("first");
    let token = leads(&first).await.token();
    scene.delete().await;
    let again = soon("it leads again", async {
        loop {
            let leadership = leads(&first).await;
            if leadership.token() > token {
                return leadership;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let token = again.token();
    drop(again);
    first.stop().await;
    scene.delete().await;
    let newcomer = scene.stand("newcomer");
    assert!(leads(&newcomer).await.token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn tokens_grow_over_a_deletion_on_s3() {
    tokens_grow_over_a_deletion::<S3>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn tokens_grow_over_a_deletion_on_gcs() {
    tokens_grow_over_a_deletion::<Gcs>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn tokens_grow_over_a_deletion_on_azure() {
    tokens_grow_over_a_deletion::<Azure>().await;
}

/// An older version put back in the place of the last one deposes the leader, whose term it does not tell of; whoever has
/// seen a later one waits out a lease, and nobody takes it for a fresh start.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_object_that_was_set_back_is_noticed() {
    let scene = Scene::<S3>::new(LEASE).await;
    let first = scene.stand("first");
    drop(leads(&first).await);
    let old = scene.object().await.unwrap();
    first.stop().await;
    let second = scene.stand("second");
    let token = leads(&second).await.token();
    let mut changes = second.changes();
    let set_back = Instant::now();
    scene.put(old).await;
    let cause = lost(&mut changes).await;
    assert_eq!(cause, Cause::Usurped { by: Some("first".into()) });
    won(&mut changes).await;
    assert!(set_back.elapsed() >= LEASE, "{:?}", set_back.elapsed());
    assert!(second.token().unwrap() > token);
}

/// The holder's own last write, put back while it leads, is not taken for its present entry either.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn ones_own_older_entry_is_not_ones_term() {
    let scene = Scene::<Gcs>::new(LEASE).await;
    let only = scene.stand("only");
    let token = leads(&only).await.token();
    let old = scene.object().await.unwrap();
    soon("a renewal", async {
        while scene.object().await == Some(old.clone()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let mut changes = only.changes();
    scene.put(old).await;
    assert!(matches!(lost(&mut changes).await, Cause::Usurped { .. }));
    won(&mut changes).await;
    assert!(only.token().unwrap() > token);
}

/// Every write differs from every other, so that no ETag comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn every_write_has_its_own_content() {
    let scene = Scene::<S3>::new(LEASE).await;
    let mut changes = 0;
    for _ in 0..2 {
        let only = scene.stand("only");
        let mut leadership = leads(&only).await;
        let mut deadline = leadership.deadline();
        for _ in 0..2 {
            deadline = soon("a renewal", leadership.renewed(deadline)).await;
            leadership = leads(&only).await;
            changes += 1;
        }
        drop(leadership);
        only.stop().await;
    }
    let written = scene.gate.requests().into_iter().filter(|r| r.method() == "PUT");
    // The check of the conditions repeats the first write of each campaigner, and is refused.
    let mut bodies: Vec<_> = written
        .filter(|r| {
            let condition = r.header("if-match").or(r.header("if-none-match"));
            assert!(condition.is_some(), "an unconditional write: {r:?}");
            true
        })
        .map(|r| r.body)
        .collect();
    let all = bodies.len();
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), all - 4, "but for the checks");
    assert!(all >= changes + 4);
    assert!(scene.gate.requests().iter().all(|r| r.method() != "DELETE"));
}

/// A leader outlives a store that stands still for less than its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_short_pause_of_the_store_costs_nothing() {
    let lease = Duration::from_secs(8);
    let scene = Scene::<S3>::alone(lease).await;
    let only = scene.stand("only");
    let leadership = leads(&only).await;
    let before = leadership.deadline();
    let stood = soon("a renewal", leadership.renewed(before)).await;
    scene.server.pause();
    tokio::time::sleep(lease / 2).await;
    scene.server.resume();
    soon("a renewal", leadership.renewed(stood)).await;
    assert!(leadership.is_valid());
    assert_eq!(only.token(), Some(leadership.token()));
}

/// One that stands still for longer ends the term in time, and begins another.
async fn a_long_pause_of_the_store_ends_the_term<K: Kind>() {
    let scene = Scene::<K>::alone(LEASE).await;
    let witness = Arc::new(Witness::default());
    let (told, mut wins) = mpsc::unbounded_channel();
    let start = |name: &str| {
        let described = scene.describe(name);
        witness.watch(described, name, told.clone()).start().unwrap()
    };
    let (one, two) = (start("one"), start("two"));
    soon("somebody leads", wins.recv()).await.unwrap();
    scene.server.pause();
    tokio::time::sleep(LEASE * 2).await;
    assert!(!one.is_leader() && !two.is_leader());
    scene.server.resume();
    soon("somebody leads again", wins.recv()).await.unwrap();
    drop((one, two));
    witness.verdict();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_long_pause_of_the_store_ends_the_term_on_gcs() {
    a_long_pause_of_the_store_ends_the_term::<Gcs>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_long_pause_of_the_store_ends_the_term_on_azure() {
    a_long_pause_of_the_store_ends_the_term::<Azure>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_long_pause_of_the_store_ends_the_term_on_s3() {
    a_long_pause_of_the_store_ends_the_term::<S3>().await;
}

/// A store that is killed and started again has kept the election.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_store_that_was_killed_is_led_on() {
    let scene = Scene::<S3>::alone(Duration::from_secs(60)).await;
    let only = scene.describe("only").renewal(Duration::from_secs(1)).start().unwrap();
    // Nothing is known of whoever may have led before.
    let token = soon("it is in office", async {
        loop {
            if let Some(object) = scene.object().await {
                return Fields::of(&object).number(1);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    scene.server.kill();
    tokio::time::sleep(Duration::from_secs(2)).await;
    scene.server.restart().await;
    soon("a renewal", async {
        loop {
            let object = scene.object().await.unwrap();
            if Fields::of(&object).number(1) > token {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(only.trouble(), None);
}

/// A leader that may not write any more ends its term with that cause.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_leader_without_the_right_to_write_stops_in_time() {
    let scene = Scene::<S3>::new(LEASE).await;
    let only = scene.stand("only");
    let leadership = leads(&only).await;
    let denied = refusal("403 Forbidden", "AccessDenied", "not any more");
    scene.gate.always("PUT", Fault::Answer(denied));
    let loss = soon("the end", leadership.ended()).await;
    assert!(matches!(&loss.cause, Cause::Denied { error } if error.contains("the right to write")));
    assert!(!leadership.is_valid());
    drop(leadership);
    scene.gate.open();
    drop(leads(&only).await);
}

/// Losing answers, refusing, standing still: while all of that happens nobody leads beside another.
async fn nobody_leads_beside_another<K: Kind>(seed: u64) {
    let scene = Arc::new(Scene::<K>::new(Duration::from_secs(2)).await);
    let witness = Arc::new(Witness::default());
    let (told, mut wins) = mpsc::unbounded_channel();
    let campaigners: Vec<_> = (0..5)
        .map(|i| {
            let name = format!("c{i}");
            let described = scene.describe(&name).renewal(Duration::from_millis(300));
            witness.watch(described, &name, told.clone()).start().unwrap()
        })
        .collect();
    soon("somebody leads", wins.recv()).await.unwrap();
    let mut random = seed;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % below
    };
    for _ in 0..40 {
        let method = if draw(2) == 0 { "PUT" } else { "GET" };
        let fault = match draw(6) {
            0 => Fault::Answer(refusal("503 Service Unavailable", "SlowDown", "busy")),
            1 => Fault::Answer(refusal("429 Too Many Requests", "SlowDown", "busy")),
            2 => Fault::Answer(refusal("412 Precondition Failed", "PreconditionFailed", "no")),
            3 => Fault::Hold,
            _ => Fault::LoseAnswer,
        };
        for _ in 0..=draw(3) {
            scene.gate.once(method, fault.clone());
        }
        match draw(12) {
            0 => scene.delete_if_there().await,
            1 => campaigners[draw(5) as usize].resign(),
            2 => scene.put(of_go(unix_ms(), "mallory", Duration::ZERO)).await,
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(100 + draw(400))).await;
        if draw(3) == 0 {
            scene.gate.open();
        }
    }
    scene.gate.open();
    for campaigner in &campaigners {
        campaigner.resign();
    }
    while wins.try_recv().is_ok() {}
    soon("somebody leads when it is over", wins.recv()).await.unwrap();
    drop(campaigners);
    println!("seed {seed}");
    witness.verdict();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nobody_leads_beside_another_on_s3() {
    nobody_leads_beside_another::<S3>(unix_ms()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nobody_leads_beside_another_on_gcs() {
    nobody_leads_beside_another::<Gcs>(unix_ms()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nobody_leads_beside_another_on_azure() {
    nobody_leads_beside_another::<Azure>(unix_ms()).await;
}

/// A Go leader is believed for two terms: its work may go on until a renewal that hangs has timed out.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_go_leader_is_waited_for() {
    let scene = Scene::<Gcs>::new(LEASE).await;
    let written = Instant::now();
    scene.put(of_go(7, "go", LEASE)).await;
    let ours = scene.stand("ours");
    sees(&ours, "go").await;
    drop(leads(&ours).await);
    assert!(written.elapsed() >= LEASE * 2, "{:?}", written.elapsed());
}

/// Nor is a Go leader that began a new object, with the number that was seen in the last one, taken for the last one.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_number_that_comes_again_is_another_entry() {
    let scene = Scene::<Gcs>::new(LEASE).await;
    scene.put(of_go(0, "go", LEASE)).await;
    let ours = scene.stand("ours");
    sees(&ours, "go").await;
    let mut last = Instant::now();
    for turn in 0..6 {
        tokio::time::sleep(LEASE / 2).await;
        scene.delete().await;
        last = Instant::now();
        scene.put(of_go(0, &format!("go{turn}"), LEASE)).await;
        assert!(!ours.is_leader());
    }
    drop(leads(&ours).await);
    assert!(last.elapsed() >= LEASE * 2, "{:?}", last.elapsed());
}

/// Who advertises is found by Go's clients, and who leads there by ours.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn addresses_go_both_ways() {
    let scene = Scene::<Gcs>::new(LEASE).await;
    let ours = scene.describe("ours").advertise("10.0.0.1:50051").start().unwrap();
    drop(leads(&ours).await);
    let entry = Fields::of(&scene.object().await.unwrap());
    assert_eq!(entry.text(3).as_deref(), Some("10.0.0.1:50051"));
    assert!(entry.expiry_ms() > unix_ms());
    ours.stop().await;
    let released = Fields::of(&scene.object().await.unwrap());
    assert_eq!((released.text(2), released.text(3)), (None, None));
    assert!(released.number(1) > entry.number(1), "it stays, and its numbers grow");
    assert!(released.expiry_ms() <= unix_ms(), "whoever is of Go may take it at once");

    let mut of_go = of_go(released.number(1) + 1, "go", LEASE);
    for address in ["10.0.0.2:1", "[fd00::2]:1"] {
        of_go.extend([0x1a, address.len() as u8]);
        of_go.extend(address.as_bytes());
    }
    scene.put(of_go).await;
    let observer = incumbent::observe("my_app", scene.bucket().lock()).unwrap();
    let mut changes = observer.changes();
    let leader = change(&mut changes, "the leader", |change| match change {
        Change::Leader(Some(leader)) => Some(leader.clone()),
        _ => None,
    })
    .await;
    let said = leader.advertisement.unwrap();
    assert_eq!((&*leader.identity, said.address()), ("go", "10.0.0.2:1"));
    assert_eq!(said.metadata()["addresses"], "10.0.0.2:1,[fd00::2]:1");
}

/// A campaigner whose process stands still while it leads is out of office when it wakes up.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_leader_that_stood_still_does_not_write_over_its_successor() {
    let scene = Arc::new(Scene::<Gcs>::new(LEASE).await);
    let process = Process::start(&scene, "blocked").await;
    let old = leads(&process.election).await;
    let blocked = process.block();
    let next = scene.stand("next");
    let leadership = leads(&next).await;
    drop(blocked);
    soon("the loss", old.ended()).await;
    assert!(leadership.is_valid() && leadership.token() > old.token());
    let deadline = leadership.deadline();
    soon("a renewal", leadership.renewed(deadline)).await;
}

/// An operator's eviction is told from a release, and the next leader waits until the evicted one knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_operator_evicts_under_a_condition() {
    let scene = Scene::<S3>::new(LEASE).await;
    let only = scene.stand("only");
    drop(leads(&only).await);
    let mut changes = only.changes();
    let lock = scene.bucket().lock();
    let evicted = loop {
        let Reading::Found(record) = lock.read("my_app", TIMEOUT).await.unwrap() else { panic!() };
        match lock.evict("my_app", record.revision, TIMEOUT).await {
            Ok(()) => break Instant::now(),
            Err(error) => assert_eq!(error.kind(), LockErrorKind::Conflict, "{error}"), // renewed
        }
    };
    assert_eq!(lost(&mut changes).await, Cause::Evicted);
    won(&mut changes).await;
    assert!(evicted.elapsed() >= LEASE - Duration::from_millis(100), "{:?}", evicted.elapsed());
}

/// Go's work may go on for a term after its own is over, whoever ended that.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_evicted_go_leader_is_waited_for_by_those_who_never_saw_it() {
    let scene = Scene::<Gcs>::new(LEASE).await;
    scene.put(of_go(0, "go", LEASE)).await;
    let lock = scene.bucket().lock();
    let Reading::Found(record) = lock.read("my_app", TIMEOUT).await.unwrap() else { panic!() };
    lock.evict("my_app", record.revision, TIMEOUT).await.unwrap();
    let evicted = Instant::now();
    let ours = scene.stand("ours");
    drop(leads(&ours).await);
    assert!(evicted.elapsed() >= LEASE * 2, "{:?}", evicted.elapsed());
}
