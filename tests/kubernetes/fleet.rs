//! A fleet of both libraries' candidates in one Lease, through releases, crashes, pauses and
//! restarts of the API server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use incumbent::{Election, new_election};
use kube::api::{Api, DynamicObject, WatchParams};
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::process::Child;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;

use crate::conformance::{Service, becomes_true, soon};
use crate::env::{InLease, OBJECT, TestEnv};
use crate::peer::{LEASE, Peer};
use crate::work_log::{self, Own, Tick, listen, work};

enum Member {
    /// In a runtime of its own, so that it can crash.
    Ours(Own, Election),
    Go(Child, JoinSet<()>),
}

struct Fleet {
    env: Arc<TestEnv>,
    members: Vec<(String, Member)>,
    started: usize,
    tell: UnboundedSender<Tick>,
}

impl Fleet {
    async fn join_ours(&mut self) {
        self.started += 1;
        let who = format!("ours-{}", self.started);
        let runtime = Own::new();
        let (env, name, tell) = (Arc::clone(&self.env), who.clone(), self.tell.clone());
        let start = async move {
            let lock = Service::lock(&*env).await;
            let identity = name.clone();
            new_election("my_app", lock)
                .identity(identity)
                .on_won(move |leadership| work(leadership, name.clone(), tell.clone()))
                .start()
                .expect("a start")
        };
        let election = runtime.run(start).await;
        // Else client-go's candidates have their turn before it takes part.
        let knows = async || election.leader().is_some();
        becomes_true("it knows the leader", knows).await;
        self.members.push((who, Member::Ours(runtime, election)));
    }

    async fn join_go(&mut self) {
        self.started += 1;
        let who = format!("go-{}", self.started);
        let (process, lines) = Peer::start(&self.env, &who).await.into_parts();
        let mut reader = JoinSet::new();
        reader.spawn(listen(lines, who.clone(), self.tell.clone()));
        self.members.push((who, Member::Go(process, reader)));
    }

    /// Ends all of ours, the leader last: else client-go's candidates, which poll, would never
    /// lead.
    async fn leave_it_to_go(&mut self, leader: &str, crash: bool) {
        let is_ours = |(_, member): &(String, Member)| matches!(member, Member::Ours(..));
        let (mut ours, others) = self.members.drain(..).partition::<Vec<_>, _>(is_ours);
        self.members = others;
        ours.sort_by_key(|(who, _)| who == leader);
        for (who, member) in ours {
            if let Member::Ours(runtime, election) = member {
                if !(crash && who == leader) {
                    soon("a stop", election.stop()).await;
                }
                drop(runtime);
            }
        }
    }

    /// Ends a member in one of two ways, and has another of its kind join.
    async fn replace(&mut self, who: &str, crash: bool) {
        let Some(place) = self.members.iter().position(|(name, _)| name == who) else { return };
        let (_, member) = self.members.swap_remove(place);
        match member {
            Member::Ours(runtime, election) => {
                if !crash {
                    soon("a stop", election.stop()).await;
                }
                drop(runtime);
                self.join_ours().await;
            }
            Member::Go(mut process, reader) => {
                if crash {
                    process.kill().await.unwrap();
                } else {
                    let id = process.id().unwrap().to_string();
                    let sent = std::process::Command::new("kill").args(["-TERM", &id]).status();
                    assert!(sent.unwrap().success());
                    soon("client-go's end", process.wait()).await.unwrap();
                }
                drop(reader);
                self.join_go().await;
            }
        }
    }
}

/// Every record that the Lease has had, in order.
async fn history(api: Api<DynamicObject>, tell: UnboundedSender<Value>) {
    let params = WatchParams::default().fields(&format!("metadata.name={OBJECT}"));
    let mut from = "0".to_owned();
    loop {
        if let Ok(events) = api.watch(&params, &from).await {
            let mut events = std::pin::pin!(events);
            while let Some(Ok(event)) = events.next().await {
                if let WatchEvent::Added(object) | WatchEvent::Modified(object) = event {
                    from = object.metadata.resource_version.unwrap_or_default();
                    let _ = tell.send(object.data["spec"].clone());
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until a candidate other than `last` works, and returns it.
async fn next_leader(
    ticks: &mut UnboundedReceiver<Tick>,
    all: &mut Vec<Tick>,
    last: &str,
) -> String {
    soon("another candidate works", async {
        loop {
            let tick = ticks.recv().await.expect("the fleet");
            let who = tick.who.clone();
            all.push(tick);
            if who != last {
                return who;
            }
        }
    })
    .await
}

/// At most one works at any instant, and each term adds exactly one to leaseTransitions.
/// `INCUMBENT_TAKEOVERS` sets how many takeovers there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_two_of_a_mixed_fleet_work_at_once() {
    let takeovers =
        std::env::var("INCUMBENT_TAKEOVERS").map_or(12, |n| n.parse().expect("a number"));
    let env = Arc::new(TestEnv::<InLease>::alone(LEASE).await);
    let (tell_record, mut records) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    tasks.spawn(history(env.api(), tell_record));
    let (tell, mut ticks) = mpsc::unbounded_channel();
    let mut fleet = Fleet { env: Arc::clone(&env), members: Vec::new(), started: 0, tell };
    for _ in 0..2 {
        fleet.join_ours().await;
        fleet.join_go().await;
    }
    let mut all = Vec::new();
    let mut leader = next_leader(&mut ticks, &mut all, "").await;
    let terms_of = |all: &[Tick], kind: &str| {
        work_log::terms(all).iter().filter(|(who, _)| who.starts_with(kind)).count()
    };
    // Who is first on a busy machine is chance: further ones, until both have led often enough.
    for number in 0..takeovers * 5 {
        let is_enough = |kind: &str| terms_of(&all, kind) >= takeovers / 4;
        if number >= takeovers && is_enough("ours") && is_enough("go") {
            break;
        }
        match number % 12 {
            3 => {
                env.server.pause();
                tokio::time::sleep(Duration::from_secs(1)).await;
                env.server.resume();
            }
            7 => {
                env.server.kill();
                env.server.restart().await;
            }
            _ => {}
        }
        // The current leader.
        while let Ok(tick) = ticks.try_recv() {
            leader.clone_from(&tick.who);
            all.push(tick);
        }
        let crash = number % 5 == 4;
        if leader.starts_with("ours") {
            fleet.leave_it_to_go(&leader, crash).await;
            leader = next_leader(&mut ticks, &mut all, &leader).await;
            fleet.join_ours().await;
            fleet.join_ours().await;
        } else {
            fleet.replace(&leader, crash).await;
            leader = next_leader(&mut ticks, &mut all, &leader).await;
        }
    }

    let mut last: Option<Value> = None;
    let mut terms = 0;
    while let Ok(record) = records.try_recv() {
        let held = record["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty());
        let transitions = record["leaseTransitions"].as_i64().unwrap();
        if let Some(last) = &last {
            let again = record["acquireTime"].as_str() > last["renewTime"].as_str();
            let began = held && (again || record["holderIdentity"] != last["holderIdentity"]);
            terms += i64::from(began);
            let before = last["leaseTransitions"].as_i64().unwrap();
            assert_eq!(transitions, before + i64::from(began), "{last} then {record}");
        }
        last = Some(record);
    }
    let transitions = last.expect("records")["leaseTransitions"].as_i64().unwrap();
    assert_eq!(transitions, terms, "none was missed");
    let (of_ours, of_go) = (terms_of(&all, "ours"), terms_of(&all, "go"));
    assert!(of_ours.min(of_go) >= takeovers / 4, "{of_ours} terms of ours, {of_go} of client-go");
    println!(
        "{of_ours} terms of ours, {of_go} of client-go, {} work ticks, {takeovers} takeovers, no overlap",
        all.len(),
    );
}
