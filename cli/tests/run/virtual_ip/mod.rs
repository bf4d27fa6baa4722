//! An address that follows the leader: in all faults at most one host answers for it.

mod capabilities;
mod client;
mod measure;
mod network;

use std::env;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fastrand::Rng;
use incumbent_test_support::{LIMIT as TIMEOUT, Process, not_run};
use rustix::process::Signal;

use self::client::{Client, INTERVAL, serve};
use self::network::{ADDRESS, ADDRESS_V6, HOSTS, IS_LEADER, Network, PORT};

/// How soon a move that has failed is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How many faults there are, unless FAULTS says so.
const FAULTS: usize = Fault::ALL.len();

/// What ends the term of a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Kill,
    KillAll,
    Stop,
    Move,
    /// The network of the address.
    Unplug,
    /// The network of the lock: the host continues to answer until the address is removed.
    Partition,
    Suspend,
    SuspendAll,
    /// The process that has the address.
    KillTraffic,
    SuspendTraffic,
    /// Those of the standbys, before a move: the next leader cannot add the address.
    SuspendOthers,
}

impl Fault {
    const ALL: [Self; 11] = [
        Self::Kill,
        Self::KillAll,
        Self::Stop,
        Self::Move,
        Self::Unplug,
        Self::Partition,
        Self::Suspend,
        Self::SuspendAll,
        Self::KillTraffic,
        Self::SuspendTraffic,
        Self::SuspendOthers,
    ];

    fn ends_the_daemon(self) -> bool {
        matches!(self, Self::Kill | Self::KillAll | Self::Stop)
    }
}

fn begin(network: &Network, fault: Fault, leader: usize) {
    let host = &network.hosts[leader];
    let others = network.hosts.iter().filter(|host| host.number != leader);
    match fault {
        Fault::Kill => host.signal(Signal::KILL),
        Fault::KillAll => {
            host.signal_all(Signal::STOP); // none reacts to the death of another
            host.signal_all(Signal::KILL);
        }
        Fault::Stop => host.signal(Signal::TERM),
        Fault::Move => {}
        Fault::Unplug => network.set_cable('a', leader, false),
        Fault::Partition => network.set_cable('l', leader, false),
        Fault::Suspend => host.signal(Signal::STOP),
        Fault::SuspendAll => host.signal_all(Signal::STOP),
        Fault::KillTraffic => host.signal_traffic(Signal::KILL),
        Fault::SuspendTraffic => host.signal_traffic(Signal::STOP),
        Fault::SuspendOthers => others.for_each(|host| host.signal_traffic(Signal::STOP)),
    }
}

fn end(network: &Network, fault: Fault, leader: usize) {
    let host = &network.hosts[leader];
    let others = network.hosts.iter().filter(|host| host.number != leader);
    match fault {
        Fault::Kill | Fault::KillAll | Fault::Stop | Fault::Move | Fault::KillTraffic => {}
        Fault::Unplug => network.set_cable('a', leader, true),
        Fault::Partition => network.set_cable('l', leader, true),
        Fault::Suspend => host.signal(Signal::CONT),
        Fault::SuspendAll => host.signal_all(Signal::CONT),
        Fault::SuspendTraffic => host.signal_traffic(Signal::CONT),
        Fault::SuspendOthers => others.for_each(|host| host.signal_traffic(Signal::CONT)),
    }
}

/// Run by a leader, as its COMMAND.
#[test]
fn what_a_leader_serves() {
    if env::var_os(IS_LEADER).is_some() {
        serve(PORT);
    }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|number| number.parse().expect("a number"))
}

struct Test {
    network: Network,
    client: Client,
    /// `incumbent election move`.
    moving: Option<Process>,
}

impl Test {
    /// The host that answers and whose leader takes writes, once one does with a token of `least`
    /// or more.
    fn leader(&mut self, least: u64) -> usize {
        let end = Instant::now() + TIMEOUT;
        while Instant::now() < end {
            {
                let seen = self.client.seen();
                let answers = |mac| seen.answers == [mac] && seen.answers_v6 == [mac];
                let host = self.network.hosts.iter().find(|host| answers(host.mac));
                if let Some(host) = host
                    && seen.token >= least
                {
                    return host.number;
                }
            }
            self.move_again(least);
            sleep(INTERVAL);
        }
        panic!("no host answers with a token of {least}:\n{}", self.network.log());
    }

    /// Moves the leadership again if that has failed, as where a busy host answers too late, and no
    /// token of `least` or more was seen.
    fn move_again(&mut self, least: u64) {
        let failed = |moving: &mut Process| moving.ended().is_some_and(|status| !status.success());
        if self.moving.as_mut().is_some_and(failed) {
            sleep(RETRY);
            let is_the_same = self.client.seen().token < least;
            self.moving = is_the_same.then(|| self.network.move_leader());
        }
    }

    fn check(&self, doing: &str) {
        let seen = self.client.seen();
        assert!(seen.twice.is_empty(), "{doing}: two hosts answered: {:?}", seen.twice);
        assert!(seen.disorder.is_empty(), "{doing}: writes in disorder: {:?}", seen.disorder);
    }
}

#[test]
fn at_most_one_host_answers_for_the_address() {
    let network = match Network::create() {
        Ok(network) => network,
        Err(why) => return not_run("a virtual IP in all faults", &why),
    };
    let seed = number("SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let client = Client::start(&network.client, ADDRESS, ADDRESS_V6, Some(PORT));
    let mut test = Test { network, client, moving: None };
    (0..HOSTS).for_each(|number| test.network.campaign(number));
    test.leader(1);
    let count = number("FAULTS").map_or(FAULTS, |count| count as usize);
    let mut faults = Vec::new();
    while faults.len() < count {
        let mut all = Fault::ALL;
        rng.shuffle(&mut all);
        faults.extend(all);
    }
    for (number, fault) in faults.into_iter().take(count).enumerate() {
        let token = test.client.seen().token;
        let leader = test.leader(token);
        test.client.seen().silence = Duration::ZERO;
        let doing = format!("fault {number}: {fault:?} of host {leader}, the leader {token}");
        begin(&test.network, fault, leader);
        if matches!(fault, Fault::Move | Fault::SuspendOthers) {
            test.moving = Some(test.network.move_leader());
        }
        let next = test.leader(token + 1);
        let silence = test.client.seen().silence;
        println!("{doing}: host {next} answers after {} ms", silence.as_millis());
        // What was suspended or cut off comes back at a bad moment.
        sleep(Duration::from_millis(rng.u64(..300)));
        test.moving = None;
        if fault.ends_the_daemon() {
            test.network.campaign(leader);
        }
        end(&test.network, fault, leader);
        sleep(Duration::from_millis(rng.u64(..1000)));
        test.check(&doing);
    }
    let seen = test.client.seen();
    println!("{} writes in order, never two answers", seen.writes);
}
