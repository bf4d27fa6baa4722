//! `doctor` of elections by a quorum of peers.

use incumbent_test_support::Port;

use crate::doctor::{doctor, line};
use crate::shell::Shell;

#[tokio::test]
async fn peers_are_counted_without_being_disturbed() {
    let shell = Shell::bare();
    let ports = [Port::pick(), Port::pick(), Port::pick()].map(|port| port.number());
    let peers = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
    let lock = |at: usize| format!("peer:127.0.0.1:{}?quorum=3&lease=2s&peers={peers}", ports[at]);
    let told = doctor(&shell, &["--lock", &lock(0)], 1);
    line(&told, "ok       address ", &format!("a member can listen on 127.0.0.1:{}", ports[0]));
    line(
        &told,
        "ok       signed ",
        "datagrams are not signed: 127.0.0.1 must be on a network of members",
    );
    line(&told, "ok       quorum ", "of 3 voters 2 must run");
    line(&told, "warning  peers ", "0 of 3 respond, and there is no leader without 2");

    let campaign = |at| shell.start(&["campaign", "my_app", "--lock", &lock(at)]);
    let mut members = [0, 1, 2].map(campaign);
    members[0].line_with("lead");
    let told = doctor(&shell, &["--lock", &lock(0)], 0);
    line(&told, "ok       address ", "already in use");
    line(&told, "ok       peers ", "3 of 3 respond: a majority");
    for member in members {
        member.end_by("TERM");
    }
}

#[test]
fn an_address_of_another_machine_and_a_name_that_is_none_are_errors() {
    let shell = Shell::bare();
    let lock = "peer:192.0.2.1:12345?quorum=4&dns=absent.invalid:12345&id=c&voters=a,b";
    let told = doctor(&shell, &["--lock", lock, "--timeout", "1s"], 2);
    line(&told, "error    address ", "a member cannot listen on 192.0.2.1:12345");
    line(&told, "error    peers ", "the peers' name absent.invalid cannot be resolved");
    line(&told, "warning  quorum ", "of 4 voters 3 must run: 3 tolerate as many failures");
    line(&told, "error    quorum ", "\"c\" is not one of the voters");
}

#[tokio::test]
async fn members_with_a_key_are_counted_and_who_listens_everywhere_without_one_is_warned() {
    let shell = Shell::bare();
    let ports = [Port::pick(), Port::pick()].map(|port| port.number());
    let told = doctor(&shell, &["--lock", &format!("peer:{}?quorum=1", ports[0])], 1);
    line(&told, "ok       address ", &format!("a member can listen on 0.0.0.0:{}", ports[0]));
    line(&told, "warning  signed ", "on every address of this machine");

    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    std::fs::write(&key, "a key of the tests, of 32 bytes.\n").unwrap();
    let peers = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
    let url = |at: usize| format!("peer:127.0.0.1:{}?quorum=2&lease=1s&peers={peers}", ports[at]);
    let signed = |at: usize| format!("{}&key-file={}", url(at), key.display());
    let campaign = |at| shell.start(&["campaign", "my_app", "--lock", &signed(at)]);
    let mut members = [0, 1].map(campaign);
    members[0].line_with("lead");
    let told = doctor(&shell, &["--lock", &signed(0)], 1);
    line(&told, "ok       signed ", "by the keys of ");
    line(&told, "ok       peers ", "2 of 2 respond: a majority");
    let told = doctor(&shell, &["--lock", &url(0)], 1);
    line(&told, "warning  peers ", "0 of 2 respond");
    for member in members {
        member.end_by("TERM");
    }
}

#[test]
fn a_key_file_that_is_none_is_wrong_usage() {
    let shell = Shell::bare();
    let lock = "peer:127.0.0.1:0?quorum=3&key-file=/absent/key";
    let told = shell.run(&["campaign", "my_app", "--lock", lock]);
    assert_eq!(told.code, Some(2), "{told:?}");
    assert!(told.error.contains("the key file /absent/key cannot be used"), "{told:?}");
    assert_eq!(told.error.lines().count(), 1, "{told:?}");
}
