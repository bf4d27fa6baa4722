//! A fleet moves from one lock to another without two leaders at any time: here from one in process to a NATS bucket.
//!
//! ```text
//! nats-server --jetstream &
//! cargo run --example mixed_fleet -- nats://127.0.0.1:4222
//! ```
//!
//! `docs/mixed-fleets.md` walks through the same from a Kubernetes Lease.

use std::error::Error;
use std::time::Duration;

use incumbent::lock::Member;
use incumbent::memory::MemoryLock;
use incumbent::nats::{self, Bucket, BucketConfig, NatsLock};
use incumbent::{Election, all_of, best_effort, new_election, required};

const LEASE: Duration = Duration::from_secs(5);

type Step = fn(&MemoryLock, &NatsLock) -> Vec<Member>;

/// Each shares a required lock with the one before it.
const STEPS: [(&str, Step); 5] = [
    ("the old lock", |old, _| vec![required(old.clone())]),
    ("old, and new on best effort", |old, new| {
        vec![required(old.clone()), best_effort(new.clone())]
    }),
    ("both", |old, new| vec![required(old.clone()), required(new.clone())]),
    ("old on best effort, and new", |old, new| {
        vec![best_effort(old.clone()), required(new.clone())]
    }),
    ("the new lock", |_, new| vec![required(new.clone())]),
];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "nats://127.0.0.1:4222".to_owned());
    let client = nats::connect(&url, async_nats::ConnectOptions::new()).await?;
    let bucket = BucketConfig::new("MIXED_FLEET").ttl(LEASE);
    let new = Bucket::create_or_open(client, bucket).await?.lock();
    let old = MemoryLock::with_ttl(LEASE);

    let mut fleet: Vec<Election> = Vec::new();
    for (name, step) in STEPS {
        println!("== {name}");
        for who in 0..3 {
            if who < fleet.len() {
                fleet[who].stop().await;
            }
            let identity = format!("agent-{who}");
            let builder = new_election("my_app", all_of(step(&old, &new))).identity(identity);
            let election = builder.lease(LEASE).on_won(work).start()?;
            match fleet.get_mut(who) {
                Some(place) => *place = election,
                None => fleet.push(election),
            }
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    for election in &fleet {
        election.stop().await;
    }
    Ok(())
}

async fn work(leadership: incumbent::Leadership) {
    let tokens = leadership.tokens();
    println!("   somebody leads, with tokens {:?}", tokens.iter().flatten().collect::<Vec<_>>());
    let loss = leadership.ended().await;
    println!("   and no more: {}", loss.cause);
}
