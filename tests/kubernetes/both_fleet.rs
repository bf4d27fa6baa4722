//! A fleet in which some need a Lease, some a bucket and some both, client-go's candidates among
//! them, through faults of either.

use std::sync::Arc;

use incumbent::lock::Lock;
use incumbent::{Election, all_of, new_election};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;

use crate::both::{Both, Which};
use crate::conformance::soon;
use crate::peer::{LEASE, Peer};
use crate::work_log::{self, Own, Tick, listen, work};

/// What befalls who leads by both.
#[derive(Debug, Clone, Copy)]
enum Blow {
    Paused(Which),
    Restarted(Which),
    Revoked(Which),
    KeyDeleted,
    Crash,
    Resigns,
}

const BLOWS: [Blow; 9] = [
    Blow::Paused(Which::Nats),
    Blow::Paused(Which::Lease),
    Blow::Crash,
    Blow::KeyDeleted,
    Blow::Revoked(Which::Lease),
    Blow::Restarted(Which::Nats),
    Blow::Restarted(Which::Lease),
    Blow::Revoked(Which::Nats),
    Blow::Resigns,
];

struct Fleet {
    both: Both,
    started: usize,
    tell: UnboundedSender<Tick>,
}

impl Fleet {
    async fn start(&mut self, kind: &str, lock: impl Lock) -> (Own, Election) {
        self.started += 1;
        let (runtime, who) = (Own::new(), format!("{kind}-{}", self.started));
        let tell = self.tell.clone();
        let start = async move {
            let builder = new_election("my_app", lock).identity(&*who);
            let builder =
                builder.on_won(move |leadership| work(leadership, who.clone(), tell.clone()));
            builder.start().expect("a start")
        };
        let election = runtime.run(start).await;
        (runtime, election)
    }

    async fn start_both(&mut self) -> (Own, Election) {
        let locks = [self.both.lock(Which::Lease).await, self.both.lock(Which::Nats).await];
        self.start("both", all_of(locks)).await
    }

    async fn start_on(&mut self, which: Which) -> (Own, Election) {
        let lock: Arc<dyn Lock> = self.both.lock(which).await;
        let kind = match which {
            Which::Lease => "lease",
            Which::Nats => "nats",
        };
        self.start(kind, lock).await
    }

    /// One of ours on each lock, and one of client-go's on the Lease.
    async fn start_plain(&mut self) -> Plain {
        let ours = [self.start_on(Which::Lease).await, self.start_on(Which::Nats).await];
        self.started += 1;
        let who = format!("go-{}", self.started);
        let (go, lines) = Peer::start(&self.both.kube, &who).await.into_parts();
        let mut reader = JoinSet::new();
        reader.spawn(listen(lines, who, self.tell.clone()));
        Plain { ours, go, _reader: reader }
    }

    /// Injects a fault, and heals it once a candidate works that needs one lock alone.
    async fn strike(&mut self, blow: Blow, pairs: &mut Vec<(Own, Election)>, seen: &mut Seen) {
        let leader = pairs.iter().position(|(_, election)| election.is_leader());
        match blow {
            Blow::Paused(which) => {
                self.both.pause(which);
                seen.work_by_others_than("both").await;
                self.both.resume(which);
            }
            Blow::Restarted(which) => self.both.restart(which).await,
            Blow::Revoked(which) => {
                let binding = self.both.revoke(which).await;
                seen.of(match which {
                    Which::Lease => "nats",
                    Which::Nats => "lease or go",
                })
                .await;
                self.both.grant(which, binding).await;
            }
            Blow::KeyDeleted => self.both.nats.delete_key().await,
            Blow::Crash => {
                if let Some(leader) = leader {
                    drop(pairs.swap_remove(leader));
                    pairs.push(self.start_both().await);
                }
            }
            Blow::Resigns => {
                if let Some(leader) = leader {
                    pairs[leader].1.resign();
                }
            }
        }
    }
}

struct Plain {
    ours: [(Own, Election); 2],
    go: tokio::process::Child,
    _reader: JoinSet<()>,
}

impl Plain {
    /// Stops all of them; they release what they hold.
    async fn stop(mut self) {
        let id = self.go.id().expect("it runs").to_string();
        let sent = std::process::Command::new("kill").args(["-TERM", &id]).status();
        assert!(sent.unwrap().success());
        for (_, election) in &self.ours {
            soon("a stop", election.stop()).await;
        }
        soon("client-go's end", self.go.wait()).await.unwrap();
    }
}

/// The ticks so far.
struct Seen {
    ticks: UnboundedReceiver<Tick>,
    all: Vec<Tick>,
}

impl Seen {
    /// Waits until one of these is at work, from now on.
    async fn wanted(&mut self, what: &str, wanted: impl Fn(&str) -> bool) {
        let from = work_log::now();
        soon(&format!("{what} at work"), async {
            loop {
                let tick = self.ticks.recv().await.expect("the fleet");
                let found = tick.at >= from && wanted(&tick.who);
                self.all.push(tick);
                if found {
                    return;
                }
            }
        })
        .await;
    }

    async fn of(&mut self, kinds: &str) {
        let of = |who: &str| kinds.split(" or ").any(|kind| who.starts_with(kind));
        self.wanted(kinds, of).await;
    }

    async fn work_by_others_than(&mut self, kind: &str) {
        self.wanted(&format!("somebody who is not {kind}"), |who| !who.starts_with(kind)).await;
    }
}

/// Candidates that need the Lease never work at once, and the same for the bucket.
/// `INCUMBENT_BLOWS` sets how many blows there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn candidates_that_need_the_same_lock_never_work_at_once() {
    let blows = std::env::var("INCUMBENT_BLOWS").map_or(4, |n| n.parse().expect("a number"));
    let (tell, ticks) = mpsc::unbounded_channel();
    let mut seen = Seen { ticks, all: Vec::new() };
    let mut fleet = Fleet { both: Both::new(LEASE).await, started: 0, tell };
    let mut pairs = vec![fleet.start_both().await, fleet.start_both().await];
    for blow in BLOWS.into_iter().cycle().take(blows) {
        seen.of("both").await;
        let plain = fleet.start_plain().await;
        fleet.strike(blow, &mut pairs, &mut seen).await;
        seen.wanted("somebody", |_| true).await; // whoever was first
        plain.stop().await;
    }
    while let Ok(tick) = seen.ticks.try_recv() {
        seen.all.push(tick);
    }
    let who_need = |lock: &'static [&'static str]| {
        let needs = move |tick: &&Tick| lock.iter().any(|kind| tick.who.starts_with(kind));
        work_log::terms(seen.all.iter().filter(needs))
    };
    let on_lease = who_need(&["both", "lease", "go"]);
    let on_nats = who_need(&["both", "nats"]);
    let of = |kind: &str| {
        let terms = on_lease.union(&on_nats);
        terms.filter(|(who, _)| who.starts_with(kind)).count()
    };
    let [both, lease, go, nats] = ["both", "lease", "go", "nats"].map(of);
    println!(
        "{blows} blows, {both} terms by both, {lease} by the Lease, {go} of client-go by it, {nats} by the bucket, {} work ticks, no overlap",
        seen.all.len()
    );
    assert!(both >= blows / 2 && lease + go + nats >= blows / 2);
}
