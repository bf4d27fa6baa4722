//! Quorums named by URLs.

use std::time::Duration;

use incumbent::{LockUrl, new_election};
use incumbent_test_support::Port;

use crate::behaviour::soon;

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
