//! A quorum on real sockets, in partitions and beside Node's members.

use std::time::Duration;

use incumbent::lock::{Coverage, Hint, HintSink, Lock, LockAdmin, LockErrorKind, Revision};
use incumbent::peer::{Peer, PeerStartError, QuorumPeer, QuorumStartError};
use incumbent::{Cause, Change, CoolDown, Election, new_election};
use incumbent_test_support::eventually;
use serde_json::json;
use tokio::sync::mpsc;

use crate::conformance::{TIMEOUT, any_leads, change, leading, soon, working};
use crate::env::{self, Net, quick};
use crate::lossy_network::{Faults, LossyNetwork};
use crate::node::Node;

const LEASE: Duration = Duration::from_secs(1);

fn campaign(member: &QuorumPeer) -> Election {
    let builder = new_election("my_app", member.lock()).identity(member.id());
    working(builder).start().expect("a start")
}

async fn leader(elections: &[Election]) -> usize {
    eventually("one leads", async || elections.iter().position(Election::is_leader)).await
}

/// Three voters of ours, and two members of Node's in the same group that know them all.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_quorum_stops_before_its_successor_leads() {
    let net = Net::new();
    let addresses: Vec<_> = (1..=3).map(|host| net.address(host)).collect();
    let network = LossyNetwork::between(&addresses, 7).await;
    network.set(Faults { lost: 10, doubled: 10, late_ms: 20 });
    let node = Node::start(net.address(9), &addresses, 99.0, json!({})).await;
    let members: Vec<_> = (0..3)
        .map(|index| {
            let member = quick(addresses[index], 1.0 + index as f64).peers(network.ports(index));
            member.quorum(3).lease(LEASE).start().expect("a start")
        })
        .collect();
    let elections = [0, 1, 2].map(|index| campaign(&members[index]));
    for _ in 0..2 {
        let (first, leadership) = any_leads(&elections.each_ref()).await;
        let mut sides = [0; 3];
        sides[first] = 1;
        network.part(&sides);
        let next = soon("another leads", async {
            loop {
                let leading = leading(&elections);
                assert!(leading.len() < 2, "two lead at once: {leading:?}");
                let second = leading.into_iter().find(|index| *index != first);
                if let Some(token) = second.and_then(|second| elections[second].token()) {
                    return token;
                }
                tokio::time::sleep(LEASE / 100).await;
            }
        })
        .await;
        let lost = soon("the end", leadership.ended()).await.cause;
        assert!(matches!(lost, Cause::Expired { .. }), "{lost:?}");
        assert!(next > leadership.token());
        // Without a majority it cannot be evicted either.
        let alone = members[first].lock().evict("my_app", Revision(1), LEASE).await.unwrap_err();
        assert_eq!(alone.kind(), LockErrorKind::Unavailable, "{alone}");
        assert!(alone.to_string().starts_with("no quorum: "), "{alone}");
        network.heal();
    }
    drop(node);
}

/// A StatefulSet's pod whose node is cut off, and the one that takes its place: two majorities by
/// name.
#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_has_no_vote_while_the_old_one_may_have_it() {
    let net = Net::new();
    let addresses: Vec<_> = (1..=4).map(|host| net.address(host)).collect();
    let network = LossyNetwork::between(&addresses, 7).await;
    let names = ["app-0", "app-1", "app-2"];
    let member = |index: usize| {
        let member = quick(addresses[index], 1.0 + index as f64).peers(network.ports(index));
        let member = member.id(names[index % 3]).quorum(3).voters(names).lease(LEASE);
        member.start().expect("a start")
    };
    let old: Vec<_> = (0..3).map(member).collect();
    let elections: Vec<_> = old.iter().map(campaign).collect();
    leader(&elections).await;
    network.part(&[0, 0, 1, 1]);
    let replacement = member(3);
    let began = tokio::time::Instant::now();
    let alone = [old[2].lock(), replacement.lock()];
    // For longer than it is silent at most.
    while began.elapsed() < env::TIMEOUT + LEASE {
        for lock in &alone {
            let read = lock.read("my_app", LEASE / 2).await;
            assert!(read.is_err(), "{read:?}");
        }
        assert!(!elections[2].is_leader());
    }
    let error = replacement.lock().read("my_app", LEASE / 2).await.unwrap_err();
    assert!(error.to_string().contains("no seat yet"), "{error}");
    leader(&elections[..2]).await;

    // It takes the seat when it receives from those that are left, and leads with them.
    old[0].stop().await;
    network.heal();
    // With one old voter less no group could give it the seat.
    eventually("the replacement votes", async || replacement.votes().then_some(())).await;
    let again = campaign(&replacement);
    elections[1].stop().await;
    old[1].stop().await;
    leader(&[again, elections.into_iter().nth(2).expect("three")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hints_come_while_a_member_hears_another() {
    let net = Net::new();
    let member = |host| net.ours(host, 1.0).quorum(3).lease(LEASE).start().unwrap();
    let (first, (sender, mut hints)) = (member(1), mpsc::unbounded_channel());
    let sink = HintSink::new(move |hint| drop(sender.send(hint)));
    let _subscription = first.lock().subscribe("my_app", sink);
    let mut next = async || soon("a hint", hints.recv()).await;
    let second = member(2);
    assert_eq!(next().await, Some(Hint::Coverage(Coverage::Full)));
    second.stop().await;
    assert_eq!(next().await, Some(Hint::Coverage(Coverage::None)));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_cool_down_ends() {
    for policy in [CoolDown::Strict, CoolDown::For(LEASE), CoolDown::For(LEASE * 2)] {
        let net = Net::new();
        let member = |host| net.ours(host, 1.0).quorum(3).lease(LEASE).start().unwrap();
        let members = [member(1), member(2), member(3)];
        let campaign = |member: &QuorumPeer| {
            new_election("my_app", member.lock()).cool_down(policy).start().unwrap()
        };
        leader(&members.iter().map(campaign).collect::<Vec<_>>()).await;
    }
}

/// As an operator's command is one.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_member_lists_earlier_leaders() {
    let net = Net::new();
    let member = |host| net.ours(host, 1.0).quorum(3).lease(LEASE).start().unwrap();
    let members = [member(1), member(2)];
    let elections: Vec<_> = members.iter().map(campaign).collect();
    leader(&elections).await;
    assert_eq!(member(3).lock().names(TIMEOUT).await.unwrap(), ["my_app"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_nodes_do_not_vote_and_are_not_disturbed() {
    let net = Net::new();
    let peers: Vec<_> = (1..=3).map(|host| net.address(host)).collect();
    let mut node = Node::start(net.address(1), &peers, 9.0, json!({})).await;
    node.event("elected").await;
    let first = net.ours(2, 1.0).quorum(3).lease(LEASE).start().unwrap();
    let alone = campaign(&first);
    let mut changes = alone.changes();
    // One of three answers, however many of Node's are there.
    let failure = change(&mut changes, "it is told", |change| match change {
        Change::LockFailing(failure) => Some(failure.message.to_string()),
        _ => None,
    });
    assert!(failure.await.starts_with("no quorum"));
    assert!(!alone.is_leader());
    let second = net.ours(3, 2.0).quorum(3).lease(LEASE).start().unwrap();
    let elections = [alone, campaign(&second)];
    leader(&elections).await;
    node.follows(&node.id.clone()).await;
    for election in &elections {
        election.stop().await;
    }
}

#[tokio::test]
async fn voters_with_another_group_size_do_not_count() {
    let net = Net::new();
    let first = net.ours(1, 1.0).quorum(2).lease(LEASE).start().unwrap();
    let _second = net.ours(2, 1.0).quorum(3).lease(LEASE).start().unwrap();
    let is_refused = async || {
        let refused = first.lock().read("my_app", LEASE).await.expect_err("no other vote counts");
        (refused.kind() == LockErrorKind::Misconfigured).then_some(())
    };
    eventually("the other one's refusal", is_refused).await;
}

#[tokio::test]
async fn more_members_than_the_quorum_has_are_refused() {
    let net = Net::new();
    let member = |host| net.ours(host, host.into()).quorum(2).lease(LEASE).start().unwrap();
    let members = [member(1), member(2), member(3)];
    let crowded = soon("it is found out", async {
        loop {
            for member in &members {
                let read = member.lock().read("my_app", LEASE).await;
                if let Err(error) = read.as_ref()
                    && error.kind() == LockErrorKind::Misconfigured
                {
                    return error.to_string();
                }
            }
        }
    });
    assert!(crowded.await.starts_with("more than 2 members vote"));

    // Unless the voters are given.
    let net = Net::new();
    let ids: Vec<_> = (1..=2).map(|host| format!("ours-{}", net.address(host))).collect();
    let member = |host| net.ours(host, host.into()).quorum(2).voters(&ids).lease(LEASE).start();
    let members = [member(1).unwrap(), member(2).unwrap(), member(3).unwrap()];
    for member in &members {
        soon("it is answered", async {
            while member.lock().read("my_app", LEASE).await.is_err() {}
        })
        .await;
    }
}

#[tokio::test]
async fn an_invalid_quorum_is_refused_with_the_reason() {
    let net = Net::new();
    let refused =
        |builder: incumbent::peer::QuorumBuilder| builder.start().unwrap_err().to_string();
    let member = || net.ours(1, 1.0);
    assert_eq!(
        refused(member().quorum(1)),
        "a quorum of 1: must be 2 to 31 voters, preferably an odd number"
    );
    assert_eq!(
        refused(member().quorum(3).lease(Duration::from_millis(199))),
        "a lease of 199ms is not between 200ms and 3600s"
    );
    assert_eq!(
        refused(member().quorum(3).voters(["a", "b"])),
        "2 voters are named for a quorum of 3"
    );
    assert_eq!(
        refused(Peer::builder().quorum(2).voters(["a", "b"])),
        "voters are named, so this member needs an id: set id"
    );
    assert_eq!(
        refused(Peer::builder().id("b").quorum(2).voters(["a", "b"]).read_only()),
        "\"b\" is one of the voters, so it cannot be read-only"
    );
    let weightless = member().weight(-1.0).quorum(3).start().unwrap_err();
    let QuorumStartError::Member(PeerStartError::Weight { .. }) = weightless else {
        panic!("{weightless}");
    };
}
