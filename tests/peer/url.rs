//! Quorums named by URLs.

use std::sync::Arc;
use std::time::Duration;

use incumbent::lock::{Lock, Reading};
use incumbent::lock_url::{LockTarget, LockUrlErrorKind};
use incumbent::{LockUrl, new_election};
use incumbent_test_support::Port;

use crate::conformance::soon;

const LEASE: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_peers_named_by_urls_elect_one_and_another_after_it() {
    let ports = [Port::pick(), Port::pick(), Port::pick()];
    let numbers = ports.each_ref().map(Port::number);
    let peers = numbers.map(|port| format!("127.0.0.1:{port}")).join(",");
    drop(ports);
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    std::fs::write(&key, "a key of the tests, of 32 bytes.\n").unwrap();
    let key = key.display();
    let mut elections = Vec::new();
    for port in numbers {
        let url = format!("peer:127.0.0.1:{port}?peers={peers}&quorum=3&lease=1s&key-file={key}");
        let lock = url.parse::<LockUrl>().unwrap().open().await.unwrap();
        assert_eq!(lock.capabilities().max_lease, Duration::from_secs(1));
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
async fn an_observer_has_no_vote() {
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
        lookers.push(url.clone().without_create().open().await.expect("beside the member"));
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
    // A member that began late may have learned that it does not vote yet.
    for election in &elections {
        let refused =
            election.lock_failure().filter(|failure| failure.message.contains("more than"));
        assert!(refused.is_none(), "{refused:?}");
    }
}

/// A voter that nobody can be would leave the group without a quorum.
#[tokio::test]
async fn listed_voters_are_identifiers() {
    let url = |voters: &str| format!("peer:127.0.0.1:0?quorum=3&id=a&voters={voters}");
    let error = url("a,,b").parse::<LockUrl>().unwrap().open().await.unwrap_err();
    let reason = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(reason, "this cannot be the identifier of a member: it is empty");
    let spaced = url("a,%20b,%20c").parse::<LockUrl>().unwrap();
    let target = spaced.targets().remove(0).named.unwrap();
    let LockTarget::Peers(group) = target else { panic!("{target:?}") };
    assert_eq!(group.voters.unwrap(), ["a", "b", "c"]);
}

#[tokio::test]
async fn an_invalid_key_file_is_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, "hunter2\n").unwrap();
    for file in [file.clone(), directory.path().join("absent"), directory.path().to_owned()] {
        let url = format!("peer:127.0.0.1:0?quorum=3&key-file={}", file.display());
        let error = url.parse::<LockUrl>().unwrap().open().await.unwrap_err();
        assert_eq!(error.kind(), LockUrlErrorKind::Malformed, "{error}");
        let reason = std::error::Error::source(&error).unwrap().to_string();
        assert!(reason.starts_with("the key file ") && !reason.contains('\n'), "{reason}");
        assert!(!reason.contains("hunter2"), "{reason}");
    }
    let error = "peer:1?quorum=3&key-file=".parse::<LockUrl>().unwrap_err().to_string();
    assert!(error.ends_with("key-file names no file"), "{error}");
    let error = "peer:1?quorum=3&key=hunter2".parse::<LockUrl>().unwrap_err().to_string();
    assert!(error.contains("there is no option \"key\" here"), "{error}");
}
