//! A network between members that loses, duplicates and delays datagrams. Each member reaches each
//! other one at a port of the network.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// Of a hundred datagrams, how many.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    pub lost: u8,
    pub doubled: u8,
    /// Each is late by up to this many milliseconds, so they overtake each other.
    pub late_ms: u64,
}

pub struct LossyNetwork {
    members: Vec<SocketAddr>,
    /// By who sees whom.
    ports: BTreeMap<(usize, usize), Arc<UdpSocket>>,
    state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

struct State {
    random: fastrand::Rng,
    faults: Faults,
    /// The side on which each member is.
    sides: Vec<u8>,
    /// All that was sent.
    recorded: Vec<Vec<u8>>,
}

impl LossyNetwork {
    pub async fn between(members: &[SocketAddr], seed: u64) -> Self {
        println!("seed {seed}");
        let mut ports = BTreeMap::new();
        for viewer in 0..members.len() {
            for seen in (0..members.len()).filter(|seen| *seen != viewer) {
                let port = UdpSocket::bind("127.0.0.1:0").await.expect("a port");
                ports.insert((viewer, seen), Arc::new(port));
            }
        }
        let state = Arc::new(Mutex::new(State {
            random: fastrand::Rng::with_seed(seed),
            faults: Faults::default(),
            sides: vec![0; members.len()],
            recorded: Vec::new(),
        }));
        let mut tasks = JoinSet::new();
        for ((from, to), port) in &ports {
            let (out, target) = (Arc::clone(&ports[&(*to, *from)]), members[*to]);
            tasks.spawn(carry(Arc::clone(port), out, target, (*from, *to), Arc::clone(&state)));
        }
        Self { members: members.to_vec(), ports, state, _tasks: tasks }
    }

    /// Where `viewer` sees `seen`.
    pub fn port(&self, viewer: usize, seen: usize) -> SocketAddr {
        self.ports[&(viewer, seen)].local_addr().expect("an address")
    }

    /// Where a member sees the others.
    pub fn ports(&self, viewer: usize) -> Vec<SocketAddr> {
        let others = (0..self.members.len()).filter(|seen| *seen != viewer);
        others.map(|seen| self.port(viewer, seen)).collect()
    }

    pub fn set(&self, faults: Faults) {
        self.state.lock().expect("no panic").faults = faults;
    }

    /// Members on one side receive from each other only.
    pub fn part(&self, sides: &[u8]) {
        self.state.lock().expect("no panic").sides = sides.to_vec();
    }

    /// All datagrams that came here, as an eavesdropper would record them.
    pub fn recorded(&self) -> Vec<Vec<u8>> {
        self.state.lock().expect("no panic").recorded.clone()
    }

    pub fn heal(&self) {
        self.part(&vec![0; self.members.len()]);
    }
}

async fn carry(
    port: Arc<UdpSocket>,
    out: Arc<UdpSocket>,
    target: SocketAddr,
    (from, to): (usize, usize),
    state: Arc<Mutex<State>>,
) {
    let mut late = JoinSet::new();
    let mut buffer = vec![0; 65_536];
    loop {
        let Ok((length, _)) = port.recv_from(&mut buffer).await else { continue };
        let delays: Vec<u64> = {
            let state = &mut *state.lock().expect("no panic");
            state.recorded.push(buffer[..length].to_vec());
            let Faults { lost, doubled, late_ms } = state.faults;
            if state.sides[from] != state.sides[to] || state.random.u8(0..100) < lost {
                continue;
            }
            let copies = if state.random.u8(0..100) < doubled { 2 } else { 1 };
            (0..copies).map(|_| state.random.u64(0..=late_ms)).collect()
        };
        for delay in delays {
            let (bytes, out) = (buffer[..length].to_vec(), Arc::clone(&out));
            late.spawn(async move {
                tokio::time::sleep(Duration::from_millis(delay)).await;
                let _ = out.send_to(&bytes, target).await;
            });
        }
        while late.try_join_next().is_some() {}
    }
}
