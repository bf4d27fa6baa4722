//! How long nobody answers for the address, and how often two do, beside keepalived.

use std::thread::sleep;
use std::time::{Duration, Instant};

use incumbent_test_support::not_run;

use super::client::Client;
use super::network::{ADDRESS, ADDRESS_V6, HOSTS, Network, PORT};
use super::{Fault, TIMEOUT, begin, end, number};

/// How many faults of each kind.
const ROUNDS: u64 = 10;
/// How long both are watched after another host has answered, and after the fault has ended.
const WATCH: Duration = Duration::from_secs(2);
/// For how long one host has to answer alone before the next fault.
const CALM: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Daemon {
    Incumbent,
    Keepalived,
}

/// What was seen of one fault.
struct Round {
    silence: Duration,
    /// Questions that two hosts answered, of about 100 per second.
    twice: usize,
}

/// Not a test: `scripts/bench-virtual-ip.sh` runs it.
#[test]
#[ignore = "a measurement of ten minutes"]
fn incumbent() {
    measure_all(Daemon::Incumbent);
}

/// Not a test either.
#[test]
#[ignore = "a measurement of ten minutes"]
fn keepalived() {
    measure_all(Daemon::Keepalived);
}

fn measure_all(daemon: Daemon) {
    let rounds = number("ROUNDS").unwrap_or(ROUNDS);
    let mut network = match Network::create() {
        Ok(network) => network,
        Err(why) => return not_run("a virtual IP beside keepalived", &why),
    };
    let port = (daemon == Daemon::Incumbent).then_some(PORT);
    let client = Client::start(&network.client, ADDRESS, ADDRESS_V6, port);
    (0..HOSTS).for_each(|number| start(&mut network, daemon, number));
    println!("\n{rounds} faults of each kind");
    println!("| {daemon:?} | silence: median / max, ms | with two answers | for, ms: max |");
    println!("|---|---|---|---|");
    for fault in [Fault::Kill, Fault::KillAll, Fault::Stop, Fault::Unplug, Fault::SuspendAll] {
        let rounds: Vec<_> =
            (0..rounds).map(|_| measure(&mut network, &client, daemon, fault)).collect();
        let mut silences: Vec<_> = rounds.iter().map(|round| round.silence).collect();
        silences.sort();
        println!(
            "| {fault:?} | {} / {} | {} of {} | {} |",
            silences[silences.len() / 2].as_millis(),
            silences[silences.len() - 1].as_millis(),
            rounds.iter().filter(|round| round.twice > 0).count(),
            rounds.len(),
            rounds.iter().map(|round| round.twice * 10).max().unwrap_or_default(),
        );
    }
    let seen = client.seen();
    assert!(seen.disorder.is_empty(), "{:?}", seen.disorder);
}

fn start(network: &mut Network, daemon: Daemon, number: usize) {
    match daemon {
        Daemon::Incumbent => network.campaign(number),
        Daemon::Keepalived => network.keepalived(number),
    }
}

fn measure(network: &mut Network, client: &Client, daemon: Daemon, fault: Fault) -> Round {
    let leader = calm(network, client);
    {
        let mut seen = client.seen();
        seen.silence = Duration::ZERO;
        seen.twice.clear();
    }
    begin(network, fault, leader);
    // Another one answers, or the same one again.
    let (begun, mut answers) = (Instant::now(), false);
    while !answers && begun.elapsed() < TIMEOUT {
        let seen = client.seen().answers.clone();
        let mut others = network.hosts.iter().filter(|host| host.number != leader);
        answers = others.any(|host| seen.contains(&host.mac));
        sleep(Duration::from_millis(5));
    }
    assert!(answers, "{daemon:?}, {fault:?}: no other host answers:\n{}", network.log());
    sleep(WATCH);
    if fault.ends_the_daemon() {
        network.hosts[leader].candidate = None;
        start(network, daemon, leader);
    } else {
        end(network, fault, leader);
    }
    sleep(WATCH);
    let seen = client.seen();
    let silence = seen.echo.map_or(TIMEOUT, |echo| seen.silence.max(echo.elapsed()));
    Round { silence, twice: seen.twice.len() }
}

/// Waits until one host alone answers, and returns it.
fn calm(network: &Network, client: &Client) -> usize {
    let (begun, mut since, mut host) = (Instant::now(), Instant::now(), None);
    let mut twice = 0;
    while begun.elapsed() < TIMEOUT {
        {
            let seen = client.seen();
            let answering = network.hosts.iter().find(|host| seen.answers == [host.mac]);
            let now = answering.map(|host| host.number);
            if now != host || now.is_none() || seen.twice.len() != twice {
                (since, host, twice) = (Instant::now(), now, seen.twice.len());
            }
        }
        if let (Some(host), true) = (host, since.elapsed() > CALM) {
            return host;
        }
        sleep(Duration::from_millis(5));
    }
    panic!("no host answers alone:\n{}", network.log());
}
