//! Members that share a key, and others that do not.

use std::time::Duration;

use incumbent::lock::{Lock, Reading};
use incumbent::new_election;
use incumbent::peer::{Change, Peer, PeerBuilder, PeerStartError, QuorumPeer};
use serde_json::json;
use tokio::net::UdpSocket;

use crate::conformance::soon;
use crate::env::{INTERVAL, Net, follows, quick, sees};
use crate::log::Log;
use crate::lossy_network::LossyNetwork;

const LEASE: Duration = Duration::from_secs(1);
const KEY: &str = "a key of the tests, of 32 bytes.";
const NEW: &str = "another of the tests, 32 bytes..";

fn keyed(net: &Net, host: u8, weight: f64) -> PeerBuilder {
    net.ours(host, weight).key(KEY)
}

/// Sends it to all members, and waits until each has looked at it.
async fn send_all(from: &UdpSocket, members: &[&Peer], datagrams: &[Vec<u8>]) {
    for datagram in datagrams {
        for member in members {
            let before = refused(member);
            from.send_to(datagram, member.local_address()).await.unwrap();
            soon("it is refused", async {
                while refused(member) == before {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
            .await;
        }
    }
}

fn refused(member: &Peer) -> u64 {
    member.refused_datagrams().unsigned
}

fn hello(id: &str, event: &str, state: &str) -> serde_json::Value {
    json!({
        "event": event, "id": id, "weight": 1e300, "state": state, "channels": [],
        "source": "127.0.0.1:9", "candidate": "x",
    })
}

#[tokio::test]
async fn a_stranger_without_the_key_changes_nothing() {
    let net = Net::new();
    let first = keyed(&net, 1, 2.0).start().unwrap();
    follows(&first, first.id()).await;
    let second = keyed(&net, 2, 1.0).start().unwrap();
    follows(&second, first.id()).await;
    sees(&first, 2).await;
    let mut changes = [first.changes(), second.changes()];
    let forger = UdpSocket::bind(net.address(9)).await.unwrap();
    let mut forged = Vec::new();
    for (id, event, state) in [
        ("forger", "leader", "leader"),
        ("forger", "hello", "leader"),
        (first.id(), "hello", "removed"),
        (second.id(), "hello", "leader"),
        (second.id(), "ciao", "citizen"),
    ] {
        forged.push(hello(id, event, state).to_string().into_bytes());
    }
    let vote = json!({ "event": "vote", "id": second.id(), "candidate": first.id(), "source": "127.0.0.1:9" });
    forged.push(vote.to_string().into_bytes());
    send_all(&forger, &[&first, &second], &forged).await;
    for member in [&first, &second] {
        assert_eq!(member.refused_datagrams().unsigned, 6);
    }
    // Nor does who has another key.
    let stranger = net.ours(3, 9.0).key(NEW).start().unwrap();
    follows(&stranger, stranger.id()).await;
    soon("it is refused", async {
        while first.refused_datagrams().forged == 0 || second.refused_datagrams().forged == 0 {
            tokio::time::sleep(INTERVAL).await;
        }
    })
    .await;
    let unkeyed = net.ours(4, 8.0).start().unwrap();
    follows(&unkeyed, unkeyed.id()).await;
    // What comes after all that shows that nothing came of it.
    for member in [&first, &second] {
        assert_eq!(member.members().len(), 2, "{:?}", member.members());
        assert_eq!(
            member.leader().map(|leader| leader.id.to_string()),
            Some(first.id().to_owned())
        );
    }
    first.send("end", json!(null)).unwrap();
    second.send("end", json!(null)).unwrap();
    for changes in &mut changes {
        let next = soon("what is signed comes", changes.next()).await;
        assert!(matches!(&next, Some(Change::Message { event, .. }) if event == "end"), "{next:?}");
    }
}

#[tokio::test]
async fn replayed_datagrams_change_nothing() {
    let net = Net::new();
    let network = LossyNetwork::between(&[net.address(1), net.address(2)], 7).await;
    let member = |host: u8, weight: f64| {
        quick(net.address(host), weight).peers(network.ports(usize::from(host - 1))).key(KEY)
    };
    let first = member(1, 2.0).start().unwrap();
    follows(&first, first.id()).await;
    let second = member(2, 1.0).start().unwrap();
    follows(&second, first.id()).await;
    sees(&first, 2).await;
    // Its goodbye is recorded too.
    first.stop().await;
    follows(&second, second.id()).await;
    let recorded = network.recorded();
    assert!(recorded.len() >= 8);

    let forger = UdpSocket::bind(net.address(9)).await.unwrap();
    let mut changes = second.changes();
    // Nor is a member taken in that knew nothing of it.
    let third = quick(net.address(3), 0.5).key(KEY).start().unwrap();
    for datagram in &recorded {
        forger.send_to(datagram, second.local_address()).await.unwrap();
        forger.send_to(datagram, third.local_address()).await.unwrap();
    }
    send_all(&forger, &[&second, &third], &[b"the end".to_vec()]).await;
    assert!(second.refused_datagrams().replayed > 0);
    follows(&third, third.id()).await;
    assert_eq!(third.members().len(), 1, "{:?}", third.members());
    assert_eq!(second.members().len(), 1, "{:?}", second.members());
    second.resign();
    let next = soon("nothing came of it", changes.next()).await;
    assert!(matches!(next, Some(Change::Resigned)), "{next:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quorum_with_a_key_elects_and_a_stranger_reads_nothing() {
    let net = Net::new();
    let member = |host: u8| -> QuorumPeer {
        keyed(&net, host, host.into()).quorum(3).lease(LEASE).start().unwrap()
    };
    let members = [member(1), member(2), member(3)];
    let election = new_election("my_app", members[0].lock()).start().unwrap();
    let won = soon("one leads", election.won()).await.unwrap();
    let stranger = net.ours(4, 1.0).quorum(3).lease(LEASE).read_only().start().unwrap();
    assert!(stranger.lock().read("my_app", LEASE).await.is_err());
    let looks = keyed(&net, 5, 1.0).quorum(3).lease(LEASE).read_only().start().unwrap();
    let lock = looks.lock();
    let read = async {
        loop {
            if let Ok(Reading::Found(found)) = lock.read("my_app", LEASE).await {
                return found;
            }
        }
    };
    soon("it is read", read).await;
    drop(won);
    election.stop().await;
}

#[tokio::test]
async fn a_key_is_replaced_while_the_group_runs() {
    let net = Net::new();
    let mut first = keyed(&net, 1, 2.0).start().unwrap();
    follows(&first, first.id()).await;
    let mut second = keyed(&net, 2, 1.0).start().unwrap();
    follows(&second, first.id()).await;
    for keys in [[KEY, NEW], [NEW, KEY], [NEW, NEW]] {
        for (host, weight) in [(2, 1.0), (1, 2.0)] {
            let member = if host == 1 { &mut first } else { &mut second };
            member.stop().await;
            let builder = keys.iter().fold(net.ours(host, weight), |peer, key| peer.key(*key));
            *member = builder.start().unwrap();
            sees(&first, 2).await;
            sees(&second, 2).await;
        }
    }
    follows(&second, second.id()).await;
    assert_eq!(first.refused_datagrams().forged + second.refused_datagrams().forged, 0);
}

#[tokio::test]
async fn invalid_keys_are_refused_without_being_shown() {
    let net = Net::new();
    let short = net.ours(1, 1.0).key("hunter2").start().unwrap_err();
    assert!(matches!(short, PeerStartError::Key { .. }) && !short.to_string().contains("hunter2"));
    let many = (0..9).fold(net.ours(1, 1.0), |peer, _| peer.key(KEY)).start().unwrap_err();
    assert!(many.to_string().contains("more than 8 keys"), "{many}");
    let small = keyed(&net, 1, 1.0).max_packet(191).start().unwrap_err();
    assert_eq!(small.to_string(), "datagrams of 191 bytes: 192 to 65507 can be sent");

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    let missing = net.ours(1, 1.0).key_file(&file).start().unwrap_err().to_string();
    assert!(missing.contains("cannot be read") && !missing.contains('\n'), "{missing}");
    std::fs::write(&file, "hunter2\n").unwrap();
    let unfit = net.ours(1, 1.0).key_file(&file).start().unwrap_err().to_string();
    assert!(unfit.contains("shorter than 16 bytes") && !unfit.contains("hunter2"), "{unfit}");
    std::fs::write(&file, format!("{KEY}\n{NEW}\n")).unwrap();
    let builder = net.ours(1, 1.0).key(NEW).key_file(&file);
    let shown = format!("{builder:?} {:?}", net.ours(2, 1.0).key(KEY).quorum(3));
    assert!(!shown.contains("tests") && !shown.contains("97, 32"), "{shown}");
    let peer = builder.start().unwrap();
    assert!(!format!("{peer:?}").contains("tests"));
}

/// Whatever is signed fits into the datagrams that may be sent.
#[tokio::test]
async fn signed_datagrams_are_no_longer_than_others() {
    let net = Net::new();
    let network = LossyNetwork::between(&[net.address(1), net.address(2)], 7).await;
    let member = |host: u8| {
        let member = quick(net.address(host), 2.0).peers(network.ports(usize::from(host - 1)));
        member.max_packet(192).key(KEY).start().unwrap()
    };
    let (first, second) = (member(1), member(2));
    sees(&second, 2).await;
    sees(&first, 2).await;
    let mut changes = second.changes();
    let text = "\"é".repeat(1000);
    first.send("long", json!(text)).unwrap();
    let came = async {
        loop {
            if let Some(Change::Message { event, data, .. }) = changes.next().await {
                assert_eq!((&*event, data), ("long", json!(text)));
                return;
            }
        }
    };
    soon("it comes", came).await;
    let recorded = network.recorded();
    assert!(recorded.len() > 20 && recorded.iter().all(|datagram| datagram.len() <= 192));
}

#[tokio::test]
async fn listening_addresses_and_ignored_datagrams_are_logged_once() {
    let log = Log::start();
    let net = Net::new();
    let first = keyed(&net, 1, 2.0).start().unwrap();
    let address = net.address(1);
    let listening = log.lines(&["listening"]);
    let [line] = &listening[..] else { panic!("{listening:?}") };
    assert!(line.contains(&format!("address={address}")) && line.contains("signed=true"), "{line}");
    assert!(line.contains(&net.address(3).to_string()), "{line}");
    let forger = UdpSocket::bind(net.address(9)).await.unwrap();
    let forged = hello("forger", "leader", "leader").to_string().into_bytes();
    send_all(&forger, &[&first, &first, &first], &[forged.clone(), forged]).await;
    assert_eq!(log.lines(&["without a signature"]).len(), 1, "{:?}", log.lines(&[]));
    assert!(log.lines(&["a key of"]).is_empty());
}
