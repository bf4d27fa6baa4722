//! What the tests have in common.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use incumbent::peer::{Change, Changes, Peer, PeerBuilder};

use crate::conformance::{change, soon};

pub const INTERVAL: Duration = Duration::from_millis(100);
/// So long that no busy machine keeps a member silent for it.
pub const TIMEOUT: Duration = Duration::from_secs(15);

/// Addresses of one test, which no other process on this machine has.
pub struct Net([u8; 2]);

impl Net {
    pub fn new() -> Self {
        static COUNT: AtomicU8 = AtomicU8::new(1);
        let process = u8::try_from(std::process::id() % 200).expect("less than 200");
        Self([20 + process, COUNT.fetch_add(1, Ordering::Relaxed)])
    }

    pub fn address(&self, host: u8) -> SocketAddr {
        let [a, b] = self.0;
        (Ipv4Addr::new(127, a, b, host), 12345).into()
    }

    /// A member of ours that knows hosts 1 to 3.
    pub fn ours(&self, host: u8, weight: f64) -> PeerBuilder {
        let peers: Vec<_> = (1..=3).map(|host| self.address(host)).collect();
        quick(self.address(host), weight).peers(peers)
    }
}

pub fn quick(bind: SocketAddr, weight: f64) -> PeerBuilder {
    let id = format!("ours-{bind}");
    Peer::builder().bind(bind).id(id).weight(weight).interval(INTERVAL).timeout(TIMEOUT)
}

pub async fn elected(changes: &mut Changes) {
    change(changes, "ours is elected", |c| matches!(c, Change::Elected).then_some(())).await;
}

pub async fn resigned(changes: &mut Changes) {
    change(changes, "ours resigns", |c| matches!(c, Change::Resigned).then_some(())).await;
}

/// Waits until `peer` takes `id` for the leader.
pub async fn follows(peer: &Peer, id: &str) {
    let mut changes = peer.changes();
    if peer.leader().is_some_and(|leader| &*leader.id == id) {
        return;
    }
    change(&mut changes, &format!("{} follows {id}", peer.id()), |c| match c {
        Change::Leader(Some(leader)) => (&*leader.id == id).then_some(()),
        _ => None,
    })
    .await;
}

/// Waits until `peer` has this many members, itself included.
pub async fn sees(peer: &Peer, members: usize) {
    let mut changes = peer.changes();
    soon(&format!("{} sees {members} members", peer.id()), async {
        while peer.members().len() != members {
            changes.next().await.expect("it continues");
        }
    })
    .await;
}
