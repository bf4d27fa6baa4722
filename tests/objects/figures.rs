//! The figures of `docs/object-storage.md`:
//! `cargo test --release --features object-store --test objects figures -- --ignored --nocapture --test-threads 1`.

use std::time::Duration;

use incumbent::{Election, new_election};
use tokio::time::{Instant, sleep};

use crate::behaviour::{Process, leads, sees, working};
use crate::scene::{Kind, S3, Scene};

/// A campaigner with the defaults of the library, the lease excepted.
fn stand<K: Kind>(scene: &Scene<K>, identity: &str) -> Election {
    let builder = new_election("my_app", scene.bucket().lock()).identity(identity);
    working(builder).start().unwrap()
}

fn median(mut spans: Vec<Duration>) -> (Duration, Duration) {
    spans.sort();
    (spans[spans.len() / 2], *spans.last().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn figures_of_takeovers() {
    let scene = std::sync::Arc::new(Scene::<S3>::new(Duration::from_secs(3)).await);
    let mut released = Vec::new();
    let mut first = stand(&scene, "c0");
    drop(leads(&first).await);
    for turn in 1..=8 {
        let next = stand(&scene, &format!("c{turn}"));
        sees(&next, first.identity()).await;
        sleep(Duration::from_secs(15)).await; // until it polls as seldom as it ever does
        first.stop().await;
        let at = Instant::now();
        drop(leads(&next).await);
        released.push(at.elapsed());
        first = next;
    }
    first.stop().await;
    println!("after a release, default back-off: median and longest {:?}", median(released));
    let mut crashed = Vec::new();
    for turn in 0..6 {
        let process = Process::start(&scene, &format!("d{turn}")).await;
        drop(leads(&process.election).await);
        let next = stand(&scene, &format!("e{turn}"));
        sees(&next, process.election.identity()).await;
        sleep(Duration::from_secs(4)).await;
        process.crash();
        let at = Instant::now();
        drop(leads(&next).await);
        crashed.push(at.elapsed());
        next.stop().await;
    }
    println!(
        "after a crash, lease 3 s, default back-off: median and longest {:?}",
        median(crashed)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn figures_of_stand_bys() {
    let scene = Scene::<S3>::new(Duration::from_secs(15)).await;
    let leader = stand(&scene, "leader");
    drop(leads(&leader).await);
    let stand_bys: Vec<_> = (0..49).map(|i| stand(&scene, &format!("c{i}"))).collect();
    sleep(Duration::from_secs(40)).await; // until they poll as seldom as they ever do
    let count = |method: &str| {
        scene.gate.requests().iter().filter(|request| request.method() == method).count()
    };
    let (reads, writes) = (count("GET"), count("PUT"));
    let span = Duration::from_secs(60);
    sleep(span).await;
    let (reads, writes) = (count("GET") - reads, count("PUT") - writes);
    println!("49 stand-bys and a leader in {span:?}: {reads} reads, {writes} writes");
    drop((leader, stand_bys));
}
