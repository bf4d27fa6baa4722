//! A process that campaigns with this library, and logs all that it does.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use incumbent::clock::{BootClock, Clock};
use incumbent::etcd::Etcd;
use incumbent::lock::Lock;
use incumbent::peer::Peer;
use incumbent::{CoolDown, Election, Leadership, nats, new_election};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::record::fenced_store;
use crate::record::history;
use crate::record::journal::{Event, Writer, now};

/// How often a leader does a piece of work.
const WORK: Duration = Duration::from_millis(5);
/// Where a voter of a quorum listens, and how many there are.
const PORT: u16 = 12345;
const VOTERS: u32 = 3;
/// How often another thread checks whether it leads.
const CLAIM: Duration = Duration::from_millis(2);
/// One piece of work in this many is a write to the fenced store.
const FENCED: u32 = 10;
/// One write to it in this many is held up on its way, as by a process that is paused between the
/// check and the write.
const LATE: u32 = 20;

/// The command line of a candidate.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// The servers, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub urls: Vec<String>,
    #[arg(long)]
    pub bucket: String,
    #[arg(long)]
    pub election: String,
    #[arg(long)]
    pub identity: String,
    /// The number of this process among those of its name.
    #[arg(long)]
    pub life: u32,
    /// The journal of the run.
    #[arg(long)]
    pub journal: PathBuf,
    /// The socket of the fenced store.
    #[arg(long)]
    pub fenced_store: PathBuf,
    /// The addresses of a quorum's voters, its own first; none: the bucket is the lock.
    #[arg(long = "voter")]
    pub voters: Vec<Ipv4Addr>,
    /// A member of etcd, which is the lock then.
    #[arg(long)]
    pub etcd: Option<String>,
    /// The lease, and the TTL of a bucket that it makes, in milliseconds.
    #[arg(long)]
    pub lease: u64,
    /// Choria's candidates take part in this election.
    #[arg(long)]
    pub with_choria: bool,
    /// The server's clock is not believed.
    #[arg(long)]
    pub strict: bool,
    /// The interval of its pings to the server, in milliseconds; 0 for the client's own choice.
    #[arg(long, default_value_t = 0)]
    pub ping: u64,
}

impl Options {
    /// The end of the journal that a candidate writes.
    pub fn journal(&self) -> Writer {
        let journal = Writer::open(&self.journal, &self.identity, self.life);
        journal.expect("the journal of the run").of_election(&self.election)
    }
}

/// Writes every 2 ms of which term a candidate reports that it leads. Apart from the runtime: the
/// result is right even while that is blocked.
pub fn report_claims(journal: Writer, token: impl Fn(u64) -> Option<u64> + Send + 'static) {
    std::thread::spawn(move || {
        loop {
            let t = now();
            if let Some(token) = token(t) {
                journal.write_at(t, Event::Claim { token });
            }
            std::thread::sleep(CLAIM);
        }
    });
}

/// How a candidate connects: it tries again soon.
pub fn connect_options() -> async_nats::ConnectOptions {
    async_nats::ConnectOptions::new()
        .reconnect_delay_callback(|_| Duration::from_millis(100))
        .connection_timeout(Duration::from_secs(2))
}

/// Campaigns until SIGTERM.
pub async fn run(options: Options) {
    let mut terminate = signal(SignalKind::terminate()).expect("a handler of SIGTERM");
    let journal = options.journal();
    let fenced_store = Arc::new(fenced_store::Address::new(&options));
    let (late, held_up) = unbounded_channel();
    let work = Work {
        journal: journal.clone(),
        fenced_store: Arc::clone(&fenced_store),
        late,
        longest: Duration::from_millis(options.lease * 3),
    };
    let campaign = async {
        let lock = open(&options).await;
        campaign(&options, lock, work)
    };
    let election = tokio::select! {
        election = campaign => election,
        _ = terminate.recv() => {
            journal.write(Event::Stopped);
            return;
        }
    };
    let asked = election.clone();
    report_claims(journal.clone(), move |_| asked.token().map(|token| token.0));
    tokio::select! {
        _ = terminate.recv() => {}
        never = deliver(held_up, &fenced_store, &journal) => match never {},
    }
    election.stop().await;
    journal.write(Event::Stopped);
}

/// Opens the bucket, or makes it, as soon as that can be done.
async fn open(options: &Options) -> Arc<dyn Lock> {
    let lease = Duration::from_millis(options.lease);
    if let [me, others @ ..] = &options.voters[..] {
        let member = Peer::builder().bind((*me, PORT));
        let member = others.iter().fold(member, |member, other| member.peer((*other, PORT)));
        let member = member.quorum(VOTERS).lease(lease).start().expect("a voter");
        return Arc::new(member.lock());
    }
    if let Some(member) = &options.etcd {
        return Arc::new(Etcd::new([member]).max_lease(lease).lock().expect("a member"));
    }
    let config = nats::BucketConfig::new(&options.bucket).ttl(lease.max(nats::MIN_TTL));
    loop {
        let mut connecting = connect_options();
        if options.ping > 0 {
            connecting = connecting.ping_interval(Duration::from_millis(options.ping));
        }
        match nats::connect(options.urls.clone(), connecting).await {
            Ok(connection) => loop {
                match nats::Bucket::create_or_open(&connection, config.clone()).await {
                    Ok(bucket) => return Arc::new(bucket.lock()),
                    Err(error) => eprintln!("cannot open the bucket yet: {error}"),
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            },
            Err(error) => eprintln!("cannot connect yet: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn campaign(options: &Options, lock: Arc<dyn Lock>, work: Work) -> Election {
    let told = work.journal.clone();
    told.write(Event::Started { ours: true });
    let mut builder = new_election(&options.election, lock)
        .identity(&options.identity)
        .lease(Duration::from_millis(options.lease))
        .on_won(move |leadership| work.clone().of_a_term(leadership))
        .on_lost(move |loss| {
            told.write(Event::Lost {
                token: loss.token.0,
                cause: loss.cause.as_str().to_owned(),
                why: loss.cause.to_string(),
            });
            std::future::ready(())
        });
    let history = history::writer(&options.journal, &options.identity, options.life)
        .expect("a history of its own");
    builder = builder.record_history(history);
    if options.with_choria {
        builder = builder.with_choria();
    }
    if options.strict {
        builder = builder.cool_down(CoolDown::Strict);
    }
    builder.start().expect("settings that go together")
}

#[derive(Clone)]
struct Work {
    journal: Writer,
    fenced_store: Arc<fenced_store::Address>,
    /// Writes that are held up, and when they arrive.
    late: UnboundedSender<(Instant, u64)>,
    /// How long, at most.
    longest: Duration,
}

/// Sends the delayed writes at their times, even after the term.
async fn deliver(
    mut held_up: UnboundedReceiver<(Instant, u64)>,
    fenced_store: &fenced_store::Address,
    journal: &Writer,
) -> Infallible {
    while let Some((at, token)) = held_up.recv().await {
        tokio::time::sleep_until(at).await;
        if let Ok(answer) = fenced_store.write(token).await {
            let fenced_store::Answer { accepted, greatest } = answer;
            journal.write(Event::Fenced { token, accepted, greatest, leads: false });
        }
    }
    std::future::pending().await
}

impl Work {
    async fn of_a_term(self, leadership: Leadership) {
        let token = leadership.token().0;
        self.journal.write(Event::Won { token });
        let loss = {
            let writes = async {
                let mut every = tokio::time::interval(WORK * FENCED);
                loop {
                    every.tick().await;
                    self.write_fenced(&leadership, token).await;
                }
            };
            tokio::select! {
                loss = leadership.ended() => loss,
                never = self.tick(&leadership, token) => match never {},
                never = writes => match never {},
            }
        };
        // Work that takes its time to stop, and may.
        let grace = loss.stop_by.saturating_since(BootClock.now());
        let _ = tokio::time::timeout(
            grace.mul_f64(fastrand::f64() * 0.9),
            self.tick(&leadership, token),
        )
        .await;
    }

    /// Continues forever; works only while it leads.
    async fn tick(&self, leadership: &Leadership, token: u64) -> Infallible {
        let mut every = tokio::time::interval(WORK);
        loop {
            every.tick().await;
            let t = now();
            if !leadership.remaining().is_zero() {
                self.journal.write_at(t, Event::Work { token });
            }
        }
    }

    async fn write_fenced(&self, leadership: &Leadership, token: u64) {
        if fastrand::u32(..LATE) == 0 {
            let at = Instant::now() + self.longest.mul_f64(fastrand::f64());
            let _ = self.late.send((at, token)); // the receiver is gone while the campaign stops
            return;
        }
        let Ok(answer) = self.fenced_store.write(token).await else { return };
        let t = now();
        let leads = leadership.is_valid();
        self.journal.write_at(
            t,
            Event::Fenced { token, accepted: answer.accepted, greatest: answer.greatest, leads },
        );
    }
}
