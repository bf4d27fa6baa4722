//! A worker of a fleet that shares the partitions of a JetStream stream: one leader per partition,
//! moved only by handovers, and results that a former leader cannot write.
//!
//! Needs nats-server 2.11 or later with JetStream. Run several, and stop, kill and add some:
//!
//! ```text
//! cargo run --example sharded_worker                             # a worker
//! nats pub jobs.3 "job 1"                                        # a message for partition 3
//! nats kv watch RESULTS                                          # what is done
//! ```

use std::error::Error;
use std::time::Duration;

use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::{self, kv, stream};
use clap::Parser;
use futures_util::StreamExt;
use incumbent::fence::FencedBucket;
use incumbent::{Leadership, nats, new_set};
use tokio::signal::unix::{SignalKind, signal};

type AnyError = Box<dyn Error + Send + Sync>;

#[derive(Parser)]
struct Args {
    /// The NATS server with JetStream.
    #[arg(long, default_value = "nats://127.0.0.1")]
    url: String,
    /// The partitions: the subjects jobs.0, jobs.1 and so on.
    #[arg(long, default_value_t = 8)]
    shards: u32,
    /// The lease, in seconds.
    #[arg(long, default_value_t = 3)]
    lease: u64,
    /// Its name. It must be unique.
    #[arg(long, default_value_t = format!("worker-{}", std::process::id()))]
    identity: String,
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let args = Args::parse();
    let mut terminate = signal(SignalKind::terminate())?;
    let connection = nats::connect(&args.url, nats::connect_options()).await?;
    let jobs = Jobs::open(connection.clone()).await?;
    let config = nats::BucketConfig::new("WORKERS").ttl(Duration::from_secs(args.lease));
    let lock = nats::Bucket::create_or_open(connection, config).await?.lock();
    let set = new_set("jobs", lock)
        .shards(args.shards)
        .identity(args.identity)
        .drain(Duration::from_secs(5)) // the message that is begun is finished
        .on_won(move |shard, leadership| {
            let jobs = jobs.clone();
            async move {
                // Dropped at its next await if the term ends.
                let handled = leadership.run(handle_messages(&jobs, shard, &leadership)).await;
                if let Ok(Err(error)) = handled {
                    eprintln!("partition {shard}: {error}"); // it is given up, and led again
                }
            }
        })
        .start()?;
    tokio::select! {
        interrupted = tokio::signal::ctrl_c() => interrupted?,
        _ = terminate.recv() => {}
    }
    set.stop().await;
    Ok(())
}

/// The stream of messages, and the bucket of results.
#[derive(Clone)]
struct Jobs {
    connection: nats::Connection,
    messages: stream::Stream,
    results: kv::Store,
}

impl Jobs {
    /// Creates both where they are missing.
    async fn open(connection: nats::Connection) -> Result<Self, AnyError> {
        let context = jetstream::new(connection.client().clone());
        let messages = stream::Config {
            name: "JOBS".to_owned(),
            subjects: vec!["jobs.*".to_owned()],
            ..Default::default()
        };
        let results = kv::Config { bucket: "RESULTS".to_owned(), ..Default::default() };
        Ok(Self {
            messages: context.get_or_create_stream(messages).await?,
            results: context.create_or_update_key_value(results).await?,
            connection,
        })
    }

    /// What waits for the leader of a partition. All leaders use the same consumer, so each
    /// continues where the one before it was.
    async fn consumer(&self, shard: u32) -> Result<PullConsumer, AnyError> {
        let name = format!("jobs-{shard}");
        let config = pull::Config {
            durable_name: Some(name.clone()),
            filter_subject: format!("jobs.{shard}"),
            // One message at a time, in order. A killed leader's is delivered again after this.
            max_ack_pending: 1,
            ack_wait: Duration::from_secs(2),
            ..Default::default()
        };
        Ok(self.messages.get_or_create_consumer(&name, config).await?)
    }
}

/// Handles the messages of a partition while this process leads it.
async fn handle_messages(jobs: &Jobs, shard: u32, leadership: &Leadership) -> Result<(), AnyError> {
    let consumer = jobs.consumer(shard).await?;
    // From here on no earlier leader of this partition writes a result: now it is read.
    let results = FencedBucket::open(leadership, &jobs.connection, "RESULTS").await?;
    let key = format!("done.{shard}");
    let mut done = match jobs.results.get(&key).await? {
        Some(sequence) => std::str::from_utf8(&sequence)?.parse()?,
        None => 0,
    };
    let mut messages = consumer.stream().max_messages_per_batch(1).messages().await?;
    loop {
        let message = tokio::select! {
            _ = leadership.draining() => return Ok(()), // between two messages: nothing is begun
            message = messages.next() => message.ok_or("the consumer is gone")??,
        };
        let sequence: u64 = message.info()?.stream_sequence;
        // It was handled if its leader died before it acknowledged it.
        if sequence > done {
            tokio::time::sleep(Duration::from_millis(20)).await; // your work
            results.put(&key, sequence.to_string()).await?;
            done = sequence;
        }
        message.ack().await?;
    }
}
