//! Members that find each other at a multicast address, on the loopback interface.

use std::net::{Ipv4Addr, SocketAddrV4};

use serde_json::json;

use crate::env::{Net, elected, follows, quick, sees};
use crate::node::Node;

fn group(net: &Net) -> SocketAddrV4 {
    match net.address(7) {
        std::net::SocketAddr::V4(address) => {
            let [_, a, b, _] = address.ip().octets();
            SocketAddrV4::new(Ipv4Addr::new(239, 255, a, b), 23456)
        }
        std::net::SocketAddr::V6(_) => unreachable!("it is IPv4"),
    }
}

#[tokio::test]
async fn members_without_addresses_find_each_other() {
    let net = Net::new();
    let group = group(&net);
    let first = quick(net.address(1), 3.0).multicast(group, Ipv4Addr::LOCALHOST).start().unwrap();
    follows(&first, first.id()).await;
    let second = quick(net.address(2), 2.0).multicast(group, Ipv4Addr::LOCALHOST).start().unwrap();
    let options = json!({ "multicast": group.to_string() });
    let mut node = Node::start(net.address(3), &[group.into()], 1.0, options).await;
    for peer in [&first, &second] {
        follows(peer, first.id()).await;
        sees(peer, 3).await;
    }
    node.follows(first.id()).await;
    let mut changes = second.changes();
    first.stop().await;
    elected(&mut changes).await;
    node.follows(second.id()).await;
}
