//! Two candidates of client-go's as processes on a real API server, beside the model of them that
//! the simulation plays with.
//!
//! Both report who stored a record when, and who was at work. The order must be the same, and work
//! ends no later than in the model. A successor writes no sooner than the rule of both allows. How
//! much later it writes depends on when it reads: once soon after the last record, and once soon
//! after the lease. So the soonest of some runs is no bound for another run: the model and
//! client-go are each held to the rule. A run in which the machine held up the processes is late
//! for that reason alone: it is repeated.

use std::sync::Arc;
use std::time::Duration;

use incumbent_sim::{Fault, Retention, Scenario, World};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::conformance::soon;
use crate::env::{InLease, TestEnv};
use crate::peer::Peer;
use crate::relay::{Relay, Way};
use crate::work_log::{Tick, listen, now};

/// Its parts are as in the model: a third, and a fifteenth. client-go compares the times of records
/// in whole seconds. Renewals within one second are one to it, and it waits from the first of them:
/// so the retry period is a second, and the documentation requires one.
const LEASE: Duration = Duration::from_secs(15);
const TIMING: [&str; 3] = ["15s", "5s", "1s"];
const RETRY: Duration = Duration::from_secs(1);
/// The clocks of the model run fast by up to 1,000 ppm.
const DRIFT: Duration = Duration::from_millis(15);
/// How often the record is read, and what a busy machine may add.
const LOOK: Duration = Duration::from_millis(10);
const SLACK: Duration = Duration::from_secs(1);
const RUNS: u64 = 200;
/// How often the processes are run at most, on a machine that holds them up.
const MOST_RUNS_FOR_REAL: usize = 5;

/// How the first leader's term comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Cut,
    Stopped,
}

impl End {
    /// The soonest that a successor may write after the last record of the first leader: a release
    /// frees the record at once.
    fn rule(self) -> Duration {
        match self {
            Self::Cut => LEASE,
            Self::Stopped => Duration::ZERO,
        }
    }
}

/// The end of a first leader, as it was observed.
#[derive(Debug, Clone, Copy)]
struct Observation {
    /// From the last record in which the first leader is the holder, to the end of its work: at
    /// least.
    works_on: Duration,
    /// From that record to the first one of its successor: at most, and at least.
    replaced: Duration,
    not_replaced: Duration,
    /// Whether it emptied its record in between.
    released: bool,
}

/// What the simulation makes of it; `None`: another one led first, or it was disturbed.
fn in_the_model(end: End, seed: u64) -> Option<Observation> {
    let fault = match end {
        End::Cut => Fault::PeerCut { which: 0, for_ms: 30_000 },
        End::Stopped => Fault::PeerStop { which: 0 },
    };
    let scenario = Scenario {
        retention: Retention::Forever,
        client_gos: 2,
        faults: vec![(30_000, fault)],
        ..Scenario::new(seed, LEASE, Vec::new())
    };
    let mut world = World::new(&scenario, true);
    world.calm();
    world.run(Duration::from_secs(55));
    let history = world.history();
    let lines: Vec<(f64, &str)> = (history.lines())
        .filter_map(|line| line.trim_start().split_once("  "))
        .filter_map(|(at, what)| Some((at.parse().ok()?, what)))
        .collect();
    let all = |text: &str| {
        let found = lines.iter().filter(|(_, what)| what.contains(text)).map(|(at, _)| *at);
        found.collect::<Vec<_>>()
    };
    let successor = *all("server: of go-1").first()?;
    let stored = all("server: of go-0").into_iter().rfind(|at| *at < successor)?;
    let ended = match end {
        End::Cut => *all("go-0's work has ended").first()?,
        End::Stopped => *all("go-0 stops leading").first()?,
    };
    let since = |at: f64| Duration::from_secs_f64((at - stored).max(0.0));
    let released = !all("server: go-0 has released").is_empty();
    let replaced = since(successor);
    Some(Observation { works_on: since(ended), replaced, not_replaced: replaced, released })
}

/// When records were stored.
#[derive(Debug, Default)]
struct Stored {
    /// The last record in which the first leader is the holder: stored no earlier than this, and
    /// no later.
    since: u64,
    by: u64,
    /// Whether it was emptied then.
    released: bool,
    /// The first record of the successor was stored after this, and by then.
    before_successor: u64,
    successor: u64,
}

async fn watch(env: Arc<TestEnv>) -> Stored {
    let (mut stored, mut last, mut last_read) = (Stored::default(), None, now());
    loop {
        let began = now();
        let record = env.record().await.expect("a record");
        let at = now();
        match record["holderIdentity"].as_str().unwrap_or_default() {
            "go-1" => return Stored { before_successor: last_read, successor: at, ..stored },
            "" => stored.released = true,
            // The read before this one did not show it, and may have been answered as soon as it
            // began.
            _ if last.as_ref() != Some(&record) => (stored.since, stored.by) = (last_read, at),
            _ => {}
        }
        (last, last_read) = (Some(record), began);
        tokio::time::sleep(LOOK).await;
    }
}

/// What the processes make of it.
async fn for_real(end: End) -> Observation {
    let env = Arc::new(TestEnv::<InLease>::new(LEASE).await);
    let relay = Relay::start(env.admin.clone(), "go-0").await;
    let (tell, mut ticks) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    let file = relay.kubeconfig(&env);
    let (first, lines) = Peer::start_timed(&env, &file, "go-0", TIMING).await.into_parts();
    tasks.spawn(listen(lines, "go-0".to_owned(), tell.clone()));
    works_until(&mut ticks, "go-0").await;
    let watched = tokio::spawn(watch(Arc::clone(&env)));
    let kubeconfig = env.kubeconfig.clone();
    let (_second, lines) = Peer::start_timed(&env, &kubeconfig, "go-1", TIMING).await.into_parts();
    tasks.spawn(listen(lines, "go-1".to_owned(), tell));
    // Both have found their pace.
    tokio::time::sleep(LEASE / 2).await;
    match end {
        End::Cut => relay.set(Way::Cut),
        End::Stopped => {
            let id = first.id().expect("it runs").to_string();
            let mut kill = tokio::process::Command::new("kill");
            assert!(kill.args(["-TERM", &id]).status().await.unwrap().success());
        }
    }
    let stored = soon("a successor", watched).await.unwrap();
    let mut ended = works_until(&mut ticks, "go-1").await;
    let until = Instant::now() + SLACK;
    while let Ok(Some(tick)) = tokio::time::timeout_at(until, ticks.recv()).await {
        if tick.who == "go-0" {
            ended = ended.max(tick.at);
        }
    }
    let between = |from: u64, to: u64| Duration::from_nanos(to.saturating_sub(from));
    let replaced = between(stored.since, stored.successor);
    Observation {
        works_on: between(stored.by, ended),
        replaced,
        not_replaced: between(stored.by, stored.before_successor),
        // An empty record may be written over between two reads. Nothing else frees one so soon.
        released: stored.released || replaced < LEASE,
    }
}

/// How long a task that sleeps for a moment was held up at most, until `end` is dropped.
async fn greatest_gap(mut end: oneshot::Receiver<()>) -> Duration {
    let mut greatest = Duration::ZERO;
    loop {
        let began = Instant::now();
        let has_ended = tokio::time::timeout(LOOK, &mut end).await.is_ok();
        greatest = greatest.max(began.elapsed());
        if has_ended {
            return greatest;
        }
    }
}

/// Waits until it works. Answers when another one was at work before, last.
async fn works_until(ticks: &mut UnboundedReceiver<Tick>, who: &str) -> u64 {
    soon("it works", async {
        let mut before = 0;
        loop {
            match ticks.recv().await.expect("a tick") {
                tick if tick.who == who => return before,
                tick => before = tick.at,
            }
        }
    })
    .await
}

async fn is_as_in_the_model(end: End) {
    let model: Vec<Observation> = (0..RUNS).filter_map(|seed| in_the_model(end, seed)).collect();
    assert!(model.len() > 20, "{end:?}: {} runs of the model", model.len());
    let soonest = model.iter().map(|observed| observed.replaced).min().expect("some");
    let slowest = model.iter().map(|observed| observed.replaced).max().expect("some");
    let latest = model.iter().map(|observed| observed.works_on).max().expect("some");
    // Of many runs of the model, one reads soon after both moments, and one late. A read comes a
    // pause after its moment at the latest, and a pause is 1 to 2.2 retry periods long. The model
    // starts a stopped process again: it is no late successor's turn then.
    let rule = end.rule();
    assert!(soonest + DRIFT >= rule && soonest <= rule + RETRY, "{end:?}: {soonest:?}");
    let latest_write = rule + RETRY * 22 / 5;
    assert!(slowest <= latest_write + DRIFT, "{end:?}: {slowest:?}");
    assert!(end == End::Stopped || slowest >= latest_write - RETRY * 2, "{end:?}: {slowest:?}");
    for run in 1..=MOST_RUNS_FOR_REAL {
        let (stop, stopped) = oneshot::channel();
        let gap = tokio::spawn(greatest_gap(stopped));
        let seen = for_real(end).await;
        drop(stop);
        let gap = gap.await.expect("a gap");
        println!(
            "{end:?}: {seen:?}, held up by {gap:?}; in the model replaced after {soonest:?} to \
             {slowest:?}, works until {latest:?}"
        );
        assert!(
            model.iter().all(|observed| observed.released == seen.released),
            "{end:?}: {seen:?}"
        );
        assert!(seen.replaced >= rule, "{end:?}: {seen:?}");
        let is_late =
            seen.not_replaced > latest_write + SLACK * 3 || seen.works_on > latest + SLACK;
        if !is_late {
            return;
        }
        let was_held_up = gap > SLACK / 2 && run < MOST_RUNS_FOR_REAL;
        assert!(was_held_up, "{end:?}: {seen:?}, in the model {latest:?}, held up by {gap:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_leader_that_is_cut_off_is_as_in_the_model() {
    is_as_in_the_model(End::Cut).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_leader_that_is_stopped_is_as_in_the_model() {
    is_as_in_the_model(End::Stopped).await;
}
