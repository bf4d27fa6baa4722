//! Partitions and bad networks.

use std::net::SocketAddr;
use std::time::Duration;

use incumbent::peer::{Peer, PeerBuilder};
use serde_json::json;

use crate::conformance::soon;
use crate::env::{INTERVAL, Net, elected, follows, quick, resigned, sees};
use crate::lossy_network::{Faults, LossyNetwork};
use crate::node::Node;

fn addresses(net: &Net, count: u8) -> Vec<SocketAddr> {
    (1..=count).map(|host| net.address(host)).collect()
}

fn member(
    network: &LossyNetwork,
    members: &[SocketAddr],
    index: usize,
    weight: f64,
) -> PeerBuilder {
    quick(members[index], weight).peers(network.ports(index))
}

/// This is what the group promises, and does not promise.
#[tokio::test]
async fn two_partitions_have_two_leaders_until_they_meet() {
    let members = addresses(&Net::new(), 4);
    let network = LossyNetwork::between(&members, 1).await;
    let first = member(&network, &members, 0, 4.0).start().unwrap();
    follows(&first, first.id()).await; // whoever comes later lets it continue
    let later = |index: u8| {
        member(&network, &members, index.into(), f64::from(4 - index)).start().expect("a start")
    };
    let peers = [first, later(1), later(2), later(3)];
    for peer in &peers {
        follows(peer, peers[0].id()).await;
        sees(peer, 4).await;
    }
    let mut third = peers[2].changes();
    network.part(&[0, 0, 1, 1]);
    elected(&mut third).await;
    follows(&peers[3], peers[2].id()).await;
    assert!(peers[0].is_leader() && peers[2].is_leader(), "two leaders at once");
    network.heal();
    resigned(&mut third).await;
    for peer in &peers {
        follows(peer, peers[0].id()).await;
        sees(peer, 4).await;
    }
}

#[tokio::test]
async fn a_partition_from_node_heals_to_one_leader() {
    for (mine, theirs) in [(1.0, 2.0), (2.0, 1.0)] {
        let members = addresses(&Net::new(), 2);
        let network = LossyNetwork::between(&members, 2).await;
        // Node sends to the address that ours advertises, which is the network of the test.
        let ours =
            member(&network, &members, 0, mine).advertise(network.port(1, 0)).start().unwrap();
        let mut changes = ours.changes();
        network.part(&[0, 1]);
        let mut node = Node::start(members[1], &network.ports(1), theirs, json!({})).await;
        let mine_leads = mine > theirs;
        let leader = if mine_leads { ours.id().to_owned() } else { node.id.clone() };
        elected(&mut changes).await;
        node.event("elected").await;
        network.heal();
        if mine_leads {
            node.event("resigned").await;
        } else {
            resigned(&mut changes).await;
        }
        follows(&ours, &leader).await;
        node.follows(&leader).await;
    }
}

#[tokio::test]
async fn a_leader_is_found_and_replaced_on_a_bad_network() {
    let members = addresses(&Net::new(), 4);
    let network = LossyNetwork::between(&members, 3).await;
    network.set(Faults { lost: 30, doubled: 30, late_ms: 150 });
    // Members are counted out and come back, and a member elected meanwhile resigns to a heavier
    // one that it meets.
    let start = |index: usize| {
        let member = member(&network, &members, index, 4.0 - index as f64);
        member.timeout(Duration::from_millis(600)).start().unwrap()
    };
    let peers: Vec<Peer> = (0..4).map(start).collect();
    soon("all follow one of them", agree(&peers)).await;
    let leader = peers.iter().position(|peer| peer.is_leader()).unwrap_or(0);
    peers[leader].stop().await;
    let rest: Vec<_> =
        peers.into_iter().enumerate().filter_map(|(i, p)| (i != leader).then_some(p)).collect();
    soon("all others follow another", agree(&rest)).await;
}

#[tokio::test]
async fn node_and_ours_agree_on_a_bad_network() {
    let members = addresses(&Net::new(), 2);
    let network = LossyNetwork::between(&members, 4).await;
    network.set(Faults { lost: 25, doubled: 25, late_ms: 120 });
    let ours = member(&network, &members, 0, 2.0).advertise(network.port(1, 0)).start().unwrap();
    follows(&ours, ours.id()).await;
    let mut node = Node::start(members[1], &network.ports(1), 1.0, json!({})).await;
    follows(&ours, ours.id()).await;
    node.follows(ours.id()).await;
    ours.stop().await;
    node.follows(&node.id.clone()).await;
}

/// Waits until all take the same one of them for the leader, and it does too.
async fn agree(peers: &[Peer]) {
    loop {
        let leaders: Vec<_> = peers.iter().map(|peer| peer.leader().map(|l| l.id)).collect();
        let one = peers.iter().filter(|peer| peer.is_leader()).map(|peer| peer.id());
        if let (Some(Some(first)), [leads]) = (leaders.first(), &one.collect::<Vec<_>>()[..])
            && **first == **leads
            && leaders.iter().all(|leader| leader.as_ref() == Some(first))
        {
            return;
        }
        tokio::time::sleep(INTERVAL / 3).await;
    }
}
