//! Workers that share the partitions of a JetStream stream: one leader per partition, moved only by
//! handovers, and results that a former leader cannot write.
//!
//! ```text
//! cargo run --example sharded_worker                                    # starts a nats-server
//! cargo run --example sharded_worker -- --url nats://127.0.0.1          # uses a running one
//! cargo run --example sharded_worker -- --url nats://127.0.0.1 work     # is one worker
//! ```
//! Without `work` it checks itself: it publishes messages, runs workers as processes of its own,
//! kills one, stops one and adds one, and reads what they wrote. It fails if a message was not
//! handled, or if a result of a former leader was accepted.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::kv::{self, UpdateErrorKind};
use async_nats::jetstream::{self, stream};
use clap::{Parser, Subcommand};
use futures_util::StreamExt;
use incumbent::{Leadership, Token, nats, new_set};
use incumbent_test_support::Server;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

type AnyError = Box<dyn Error + Send + Sync>;

#[derive(Parser, Clone)]
struct Args {
    /// The NATS server with JetStream. The check starts one if none is given.
    #[arg(long)]
    url: Option<String>,
    /// The partitions: the subjects jobs.0, jobs.1 and so on.
    #[arg(long, default_value_t = 8)]
    shards: u32,
    /// How many messages the check publishes.
    #[arg(long, default_value_t = 2000)]
    messages: u32,
    /// The lease, in seconds.
    #[arg(long, default_value_t = 3)]
    lease: u64,
    #[command(subcommand)]
    mode: Option<Mode>,
}

#[derive(Subcommand, Clone)]
enum Mode {
    /// Be a worker, until Ctrl-C or SIGTERM.
    Work {
        /// Its name. It must be unique.
        #[arg(long, default_value_t = format!("worker-{}", std::process::id()))]
        identity: String,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let done = match (&args.mode, &args.url) {
        (Some(Mode::Work { identity }), url) => {
            work(&args, url.as_deref().unwrap_or("nats://127.0.0.1"), identity).await
        }
        (None, Some(url)) => check(&args, url).await,
        (None, None) => {
            let server = Server::start().await;
            check(&args, &server.url()).await
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

// ---- the worker -----------------------------------------------------------------------------

/// The stream of messages, and the bucket of results.
#[derive(Clone)]
struct Jobs {
    messages: stream::Stream,
    results: kv::Store,
}

impl Jobs {
    /// Creates both where they are missing.
    async fn open(client: async_nats::Client) -> Result<Self, AnyError> {
        let context = jetstream::new(client);
        let messages = stream::Config {
            name: "JOBS".to_owned(),
            subjects: vec!["jobs.*".to_owned()],
            ..Default::default()
        };
        // One entry per partition; the check reads what was in it before, too.
        let results =
            kv::Config { bucket: "RESULTS".to_owned(), history: 64, ..Default::default() };
        Ok(Self {
            messages: context.get_or_create_stream(messages).await?,
            results: context.create_or_update_key_value(results).await?,
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

async fn work(args: &Args, url: &str, identity: &str) -> Result<(), AnyError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let lease = Duration::from_secs(args.lease);
    let jobs = Jobs::open(async_nats::connect(url).await?).await?;
    let connection = nats::connect(url, nats::connect_options()).await?;
    let config = nats::BucketConfig::new("WORKERS").ttl(lease);
    let lock = nats::Bucket::create_or_open(connection, config).await?.lock();
    let set = new_set("jobs", lock)
        .shards(args.shards)
        .identity(identity)
        .drain(Duration::from_secs(5)) // the message that is begun is finished
        .on_won(move |shard, leadership| {
            let jobs = jobs.clone();
            async move {
                if let Err(error) = lead(&jobs, shard, leadership).await {
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

/// Handles the messages of a partition while this process leads it.
async fn lead(jobs: &Jobs, shard: u32, leadership: Leadership) -> Result<(), AnyError> {
    // Dropped at its next await if the term ends.
    leadership.run(handle_messages(jobs, shard, &leadership)).await.unwrap_or(Ok(()))
}

async fn handle_messages(jobs: &Jobs, shard: u32, leadership: &Leadership) -> Result<(), AnyError> {
    let consumer = jobs.consumer(shard).await?;
    let mut result = Fenced::begin(&jobs.results, shard, leadership.token()).await?;
    let mut messages = consumer.stream().max_messages_per_batch(1).messages().await?;
    loop {
        let message = tokio::select! {
            _ = leadership.draining() => return Ok(()), // between two messages: nothing is begun
            message = messages.next() => message.ok_or("the consumer is gone")??,
        };
        let sequence = message.info()?.stream_sequence;
        // It was handled if its leader died before it acknowledged it.
        if sequence > result.done.sequence {
            tokio::time::sleep(Duration::from_millis(20)).await; // your work
            result.write(sequence).await?;
        }
        message.ack().await?;
    }
}

/// What was done last in a partition, and with which token.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Done {
    token: u64,
    sequence: u64,
}

impl Done {
    fn read(value: &[u8]) -> Option<Self> {
        let (token, sequence) = std::str::from_utf8(value).ok()?.split_once(' ')?;
        Some(Self { token: token.parse().ok()?, sequence: sequence.parse().ok()? })
    }

    fn to_value(self) -> String {
        format!("{} {}", self.token, self.sequence)
    }
}

/// The result of a partition, `done.K`, which a write with an older token does not change.
struct Fenced<'a> {
    results: &'a kv::Store,
    key: String,
    token: u64,
    /// The entry at `revision`.
    done: Done,
    revision: u64,
}

impl<'a> Fenced<'a> {
    /// Puts this term's token into the entry: from then on writes of earlier terms are refused.
    async fn begin(results: &'a kv::Store, shard: u32, token: Token) -> Result<Self, AnyError> {
        let key = format!("done.{shard}");
        let mut fenced = Self { results, key, token: token.0, done: Done::default(), revision: 0 };
        fenced.refresh().await?;
        fenced.write(fenced.done.sequence).await?;
        Ok(fenced)
    }

    /// Writes this sequence, unless a newer leader has written.
    async fn write(&mut self, sequence: u64) -> Result<(), AnyError> {
        loop {
            if self.token < self.done.token {
                let Self { token, done, .. } = self;
                return Err(format!("token {token} is older than {}", done.token).into());
            }
            let done = Done { token: self.token, sequence: sequence.max(self.done.sequence) };
            let value = done.to_value().into();
            // A condition of the server's: the entry is as this process has read it.
            match self.results.update(&self.key, value, self.revision).await {
                Ok(revision) => {
                    (self.done, self.revision) = (done, revision);
                    return Ok(());
                }
                // Somebody else wrote: an earlier leader right before it was fenced off, or a newer
                // one. The entry shows it.
                Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => {
                    self.refresh().await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn refresh(&mut self) -> Result<(), AnyError> {
        if let Some(entry) = self.results.entry(&self.key).await? {
            self.done = Done::read(&entry.value).ok_or("a result that no worker wrote")?;
            self.revision = entry.revision;
        }
        Ok(())
    }
}

// ---- the check ------------------------------------------------------------------------------

/// Which process does the work, while this one disturbs it.
struct Workers<'a> {
    args: &'a Args,
    url: &'a str,
    running: Vec<Child>,
    started: u32,
}

impl Workers<'_> {
    fn add(&mut self) -> Result<(), AnyError> {
        self.started += 1;
        let number = |number: u64| number.to_string();
        let child = Command::new(std::env::current_exe()?)
            .args(["--url", self.url, "--shards", &number(self.args.shards.into())])
            .args(["--lease", &number(self.args.lease), "work"])
            .args(["--identity", &format!("worker-{}", self.started)])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        self.running.push(child);
        Ok(())
    }

    async fn kill_first(&mut self) -> Result<(), AnyError> {
        Ok(self.running.remove(0).kill().await?)
    }

    /// SIGTERM: it finishes the messages that it has begun.
    async fn stop_first(&mut self) -> Result<(), AnyError> {
        let mut child = self.running.remove(0);
        let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        kill_process(pid.ok_or("a worker has ended by itself")?, Signal::TERM)?;
        let status = child.wait().await?;
        if status.success() { Ok(()) } else { Err(format!("a worker ended with {status}").into()) }
    }
}

/// The newest result of each partition that was accepted.
#[derive(Default)]
struct Accepted {
    newest: BTreeMap<String, Done>,
    /// How many leaders have written results.
    terms: usize,
}

impl Accepted {
    /// Takes the next result, in the order of the server's revisions.
    fn take(&mut self, entry: &kv::Entry) -> Result<Done, AnyError> {
        let (key, done) = (&entry.key, Done::read(&entry.value).ok_or("an unknown result")?);
        let newest = self.newest.entry(key.clone()).or_default();
        if done.token < newest.token || done.sequence < newest.sequence {
            let revision = entry.revision;
            return Err(format!("{key}: {done:?} after {newest:?}, revision {revision}").into());
        }
        self.terms += usize::from(done.token > newest.token);
        *newest = done;
        Ok(done)
    }
}

async fn check(args: &Args, url: &str) -> Result<(), AnyError> {
    let client = async_nats::connect(url).await?;
    let jobs = Jobs::open(client.clone()).await?;
    let mut results = jobs.results.watch_all().await?;
    let mut left = publish(client, args).await?;
    let mut workers = Workers { args, url, running: Vec::new(), started: 0 };
    for _ in 0..3 {
        workers.add()?;
    }
    println!("{} messages in {} partitions, three workers", left.len(), args.shards);

    let (all, mut quarter) = (left.len(), 1);
    let mut accepted = Accepted::default();
    while !left.is_empty() {
        let entry = tokio::time::timeout(Duration::from_secs(60), results.next()).await;
        let entry = entry.map_err(|_| format!("{} messages are not handled", left.len()))?;
        left.remove(&accepted.take(&entry.ok_or("the bucket is gone")??)?.sequence);
        let handled = all - left.len();
        if handled >= all * quarter / 4 {
            match quarter {
                1 => workers.kill_first().await?,
                2 => workers.add()?,
                3 => workers.stop_first().await?,
                _ => {}
            }
            let what = ["a worker was killed", "one was added", "one has stopped", "all"];
            println!("{handled} handled: {}", what[quarter - 1]);
            quarter += 1;
        }
    }
    // A leader that does not know yet that it was replaced.
    let newest = accepted.newest.get("done.0").map_or(0, |done| done.token);
    match Fenced::begin(&jobs.results, 0, Token(newest.saturating_sub(1))).await {
        Ok(_) => return Err("a result with an old token was accepted".into()),
        Err(refusal) => println!("refused: {refusal}"),
    }
    while !workers.running.is_empty() {
        workers.stop_first().await?;
    }
    println!("{} terms, and no result of a former leader was accepted", accepted.terms);
    Ok(())
}

/// Publishes the messages, round the partitions, and returns their sequences.
async fn publish(client: async_nats::Client, args: &Args) -> Result<BTreeSet<u64>, AnyError> {
    let context = jetstream::new(client);
    let mut published = BTreeSet::new();
    for number in 0..args.messages {
        let subject = format!("jobs.{}", number % args.shards);
        let ack = context.publish(subject, format!("job {number}").into()).await?.await?;
        published.insert(ack.sequence);
    }
    Ok(published)
}
