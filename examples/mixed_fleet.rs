//! A fleet moves from a Kubernetes Lease to a NATS bucket, one agent at a time, without two leaders
//! at any moment.
//!
//! ```text
//! nats-server --jetstream &
//! cargo run --example mixed_fleet --features kubernetes-latest -- nats://127.0.0.1:4222
//! ```
//!
//! It reaches the API server as `kubectl` does. `docs/multiple-locks.md` says why each step is
//! safe.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use incumbent::kubernetes::{Cluster, LeaseLock, LeaseTiming};
use incumbent::lock::LockMember;
use incumbent::nats::{self, Bucket, BucketConfig, NatsLock};
use incumbent::{Election, Leadership, all_of, best_effort, new_election, required};

const LEASE: Duration = Duration::from_secs(5);

type Step = fn(&LeaseLock, &NatsLock) -> Vec<LockMember>;

/// Each shares a required lock with the one before it.
const STEPS: [(&str, Step); 5] = [
    ("0: the Lease", |old, _| vec![required(old.clone())]),
    ("1: the Lease, and NATS on best effort", |old, new| {
        vec![required(old.clone()), best_effort(new.clone())]
    }),
    ("2: both", |old, new| vec![required(old.clone()), required(new.clone())]),
    ("3: the Lease on best effort, and NATS", |old, new| {
        vec![best_effort(old.clone()), required(new.clone())]
    }),
    ("4: NATS", |_, new| vec![required(new.clone())]),
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "nats://127.0.0.1:4222".to_owned());
    let client = nats::connect(&url, nats::connect_options()).await?;
    let bucket = BucketConfig::new("MIXED_FLEET").ttl(LEASE);
    let new = Bucket::create_or_open(client, bucket).await?.lock();
    let timing = LeaseTiming::new(LEASE, LEASE * 4 / 5, LEASE / 5)?;
    let old = Cluster::infer().await?.lease_lock().timing(timing);

    let at_work = Arc::new(AtomicUsize::new(0));
    let mut fleet: Vec<Election> = Vec::new();
    for (name, step) in STEPS {
        println!("== {name}");
        for who in 0..3 {
            if who < fleet.len() {
                fleet[who].stop().await;
            }
            let (identity, at_work) = (format!("agent-{who}"), Arc::clone(&at_work));
            let agent = identity.clone();
            let election = new_election("my-app", all_of(step(&old, &new)))
                .identity(identity)
                .on_won(move |leadership| work(leadership, agent.clone(), Arc::clone(&at_work)))
                .start()?;
            match fleet.get_mut(who) {
                Some(place) => *place = election,
                None => fleet.push(election),
            }
        }
        while !fleet.iter().any(Election::is_leader) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await; // to look at both
    }
    for election in &fleet {
        election.stop().await;
    }
    Ok(())
}

async fn work(leadership: Leadership, who: String, at_work: Arc<AtomicUsize>) {
    assert_eq!(at_work.fetch_add(1, Ordering::SeqCst), 0, "two at work");
    let tokens: Vec<_> = leadership.tokens().iter().map(|t| t.map(|t| t.0)).collect();
    println!("{who} leads, with tokens {tokens:?}");
    let loss = leadership.ended().await;
    println!("{who} leads no more: {}", loss.cause);
    at_work.fetch_sub(1, Ordering::SeqCst);
}
