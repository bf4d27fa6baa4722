//! Quorums named by URLs.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{Lock, Reading};
use incumbent::{LockUrl, new_election};
use incumbent_test_support::Port;

use crate::behaviour::soon;

const LEASE: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_peers_named_by_urls_elect_one_and_another_after_it() {
    let ports = [Port::pick(), Port::pick(), Port::pick()];
    let numbers = ports.each_ref().map(Port::number);
    let peers = numbers.map(|port| format!("127.0.0.1:{port}")).join(",");
    drop(ports);
    let mut elections = Vec::new();
    for port in numbers {
        let url = format!("peer:127.0.0.1:{port}?peers={peers}&quorum=3&lease=1s");
        let lock = url.parse::<LockUrl>().unwrap().open().await.unwrap();
        assert_eq!(lock.capabilities().longest_lease, Duration::from_secs(1));
        elections.push(new_election("my_app", lock).start().unwrap());
    }
    let mut last = None;
    for turn in 0..2 {
        let wins = elections.iter().map(|election| Box::pin(election.won()));
        let (won, index, others) = soon("one leads", futures_util::future::select_all(wins)).await;
        drop(others);
        let token = won.unwrap().token();
        assert!(Some(token) > last, "turn {turn}: {token} after {last:?}");
        last = Some(token);
        elections.remove(index).stop().await;
    }
}

/// As an operator's command does, on the machine of a member.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_only_looks_has_no_vote() {
    let ports = [Port::pick(), Port::pick(), Port::pick()];
    let numbers = ports.each_ref().map(Port::number);
    let peers = numbers.map(|port| format!("127.0.0.1:{port}")).join(",");
    drop(ports);
    let urls = numbers.map(|port| {
        let url = format!("peer:127.0.0.1:{port}?peers={peers}&quorum=3&lease=1s&id=app-{port}");
        url.parse::<LockUrl>().unwrap()
    });
    let mut elections = Vec::new();
    for url in &urls {
        elections.push(new_election("my_app", url.open().await.unwrap()).start().unwrap());
    }
    let mut lookers = Vec::new();
    for url in &urls {
        lookers.push(url.clone().make_nothing().open().await.expect("beside the member"));
    }
    // For longer than a member is silent, and so would one more voter be.
    let sees = async |looker: &Arc<dyn Lock>| {
        matches!(looker.read("my_app", LEASE).await, Ok(Reading::Found(_)))
    };
    for _ in 0..8 {
        for looker in &lookers {
            soon("it sees the leader", async { while !sees(looker).await {} }).await;
        }
        tokio::time::sleep(LEASE / 4).await;
    }
    // A member that began late may have been told that it does not vote yet.
    for election in &elections {
        let refused = election.trouble().filter(|trouble| trouble.message.contains("more than"));
        assert!(refused.is_none(), "{refused:?}");
    }
}
