//! One group of ours and Node's.

use std::time::Duration;

use incumbent::peer::{Change, Peer};
use serde_json::{Value, json};

use crate::conformance::change;
use crate::env::{Net, elected, follows, resigned, sees};
use crate::node::Node;

async fn node(net: &Net, host: u8, weight: f64) -> Node {
    let peers: Vec<_> = (1..=3).map(|host| net.address(host)).collect();
    Node::start(net.address(host), &peers, weight, json!({})).await
}

/// A member whose runtime can die without a last word.
struct Mortal(Option<tokio::runtime::Runtime>, Peer);

impl Mortal {
    fn start(net: &Net, host: u8, weight: f64) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let guard = runtime.enter();
        let peer = net.ours(host, weight).start().expect("a start");
        drop(guard);
        Self(Some(runtime), peer)
    }

    fn crash(mut self) {
        self.0.take().expect("a runtime").shutdown_background();
        std::mem::forget(self.1); // its drop would say goodbye
    }
}

#[tokio::test]
async fn the_heaviest_leads_and_all_agree() {
    for (mine, theirs) in [(1.0, 2.0), (2.0, 1.0)] {
        let net = Net::new();
        // So long that all are there before the first election, two intervals after the start.
        let slow = Duration::from_secs(5);
        let peers: Vec<_> = (1..=3).map(|host| net.address(host)).collect();
        let options = json!({ "interval": 5000, "timeout": 15_000 });
        let mut node = Node::start(net.address(1), &peers, theirs, options).await;
        let start = |host, weight| {
            net.ours(host, weight).interval(slow).timeout(slow * 3).start().expect("a start")
        };
        let (ours, light) = (start(2, mine), start(3, 0.5));
        let leader = if mine > theirs { ours.id().to_owned() } else { node.id.clone() };
        for peer in [&ours, &light] {
            follows(peer, &leader).await;
            sees(peer, 3).await;
        }
        node.follows(&leader).await;
        assert_eq!(node.look().await["me"], json!(theirs > mine));
        assert_eq!(ours.is_leader(), mine > theirs);
    }
}

#[tokio::test]
async fn a_leader_keeps_leading_when_a_heavier_member_joins() {
    let net = Net::new();
    let first = net.ours(1, 1.0).start().unwrap();
    follows(&first, first.id()).await;
    let mut node = node(&net, 2, 9.0).await;
    node.follows(first.id()).await;

    let net = Net::new();
    let mut node = self::node(&net, 1, 1.0).await;
    node.event("elected").await;
    let second = net.ours(2, 9.0).start().unwrap();
    follows(&second, &node.id).await;
    node.follows(&node.id.clone()).await;
}

#[tokio::test]
async fn a_leader_of_nodes_that_crashes_is_replaced() {
    let net = Net::new();
    let mut leader = node(&net, 1, 9.0).await;
    leader.event("elected").await;
    let ours = net.ours(2, 5.0).start().unwrap();
    let mut other = node(&net, 3, 1.0).await;
    follows(&ours, &leader.id).await;
    other.follows(&leader.id).await;
    let (mut changes, gone) = (ours.changes(), leader.id.clone());
    leader.crash().await;
    elected(&mut changes).await;
    other.follows(ours.id()).await;
    assert!(ours.members().iter().all(|member| *member.id != *gone));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_of_ours_that_crashes_is_replaced() {
    let net = Net::new();
    let leader = Mortal::start(&net, 1, 9.0);
    follows(&leader.1, leader.1.id()).await;
    let mut node = node(&net, 2, 5.0).await;
    let other = net.ours(3, 1.0).start().unwrap();
    node.follows(leader.1.id()).await;
    follows(&other, leader.1.id()).await;
    let id = leader.1.id().to_owned();
    leader.crash();
    node.event_where("removed", |gone| gone["id"] == *id).await;
    node.event("elected").await;
    follows(&other, &node.id).await;
}

#[tokio::test]
async fn a_leader_of_ours_that_stops_is_replaced_before_it_is_missed() {
    let net = Net::new();
    let ours = net.ours(1, 9.0).start().unwrap();
    follows(&ours, ours.id()).await;
    let mut node = node(&net, 2, 5.0).await;
    let other = net.ours(3, 1.0).start().unwrap();
    node.follows(ours.id()).await;
    follows(&other, ours.id()).await;
    let mut changes = ours.changes();
    ours.stop().await;
    resigned(&mut changes).await;
    assert_eq!(changes.next().await, None);
    assert!(!ours.is_leader() && ours.leader().is_none());
    loop {
        let event = node.next().await;
        assert_ne!(event["event"], "removed", "it was told, and did not have to miss it");
        if event["event"] == "elected" {
            break;
        }
    }
    follows(&other, &node.id).await;
}

#[tokio::test]
async fn a_resigned_leader_is_replaced_by_a_heavier_member() {
    let net = Net::new();
    let mut node = node(&net, 1, 1.0).await;
    node.event("elected").await;
    let heavy = net.ours(2, 9.0).start().unwrap();
    follows(&heavy, &node.id).await;
    let mut changes = heavy.changes();
    node.order("resign", Value::Null).await;
    elected(&mut changes).await;
    node.event("resigned").await;
    node.follows(heavy.id()).await;

    let net = Net::new();
    let light = net.ours(1, 1.0).start().unwrap();
    follows(&light, light.id()).await;
    let mut node = self::node(&net, 2, 9.0).await;
    node.follows(light.id()).await;
    sees(&light, 2).await;
    let mut changes = light.changes();
    light.resign();
    resigned(&mut changes).await;
    node.event("elected").await;
    follows(&light, &node.id).await;
}

#[tokio::test]
async fn publications_reach_subscribers_only() {
    let net = Net::new();
    let mut node = node(&net, 1, 1.0).await;
    let reader = net.ours(2, 2.0).channel("news").start().unwrap();
    let stranger = net.ours(3, 3.0).channel("other").start().unwrap();
    for peer in [&reader, &stranger] {
        sees(peer, 3).await;
    }
    incumbent_test_support::eventually("Node's knows both", async || {
        (node.look().await["nodes"].as_array().map(Vec::len) == Some(3)).then_some(())
    })
    .await;
    let (mut read, mut strange) = (reader.changes(), stranger.changes());
    let said = |change: &Change| match change {
        Change::Message { event, data, .. } => Some((event.clone(), data.clone())),
        _ => None,
    };
    // In pieces, whose order is not that of the line, and with what is more than one byte a
    // character.
    let long = json!({ "text": "größer \"quoted\" \\ ".repeat(200) });
    node.order("publish", json!(["news", long])).await;
    assert_eq!(change(&mut read, "the news", said).await, ("news".to_owned(), long.clone()));
    node.order("publish", json!(["other", { "n": 1 }])).await;
    let only = change(&mut strange, "what it subscribes to", said).await;
    assert_eq!(only, ("other".to_owned(), json!({ "n": 1 })));
    node.order("send", json!(["ciao", { "hello": "world" }])).await;
    for changes in [&mut read, &mut strange] {
        let ciao = change(changes, "what is sent to all", said).await;
        assert_eq!(ciao, ("ciao".to_owned(), json!({ "hello": "world" })), "and nothing before it");
    }

    node.order("subscribe", json!("news")).await;
    let subscribed = |peer: &Peer| {
        peer.members().iter().any(|m| *m.id == *node.id && m.channels.contains("news"))
    };
    incumbent_test_support::eventually("ours hear of it", async || {
        (subscribed(&reader) && subscribed(&stranger)).then_some(())
    })
    .await;
    stranger.publish("news", long.clone()).unwrap();
    reader.send("ciao", json!({ "hello": "node" })).unwrap();
    let (mut news, mut ciao) = (None, None);
    while news.is_none() || ciao.is_none() {
        let event = node.next().await;
        match event["event"].as_str() {
            Some("news") => news = Some(event["data"].clone()),
            Some("ciao") => ciao = Some(event["data"].clone()),
            _ => {}
        }
    }
    assert_eq!((news, ciao), (Some(long), Some(json!({ "hello": "node" }))));
    for taken in ["", "hello", "error", "incumbent/lock"] {
        assert!(reader.send(taken, Value::Null).is_err(), "{taken:?}");
    }
}
