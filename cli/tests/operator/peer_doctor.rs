//! `doctor` of elections by a quorum of peers.

use incumbent_test_support::Port;

use crate::doctor::{doctor, expect_line};
use crate::shell::{CommandOutput, Shell};

/// A report in which as many members respond: on a busy machine one may be late.
async fn doctor_of_all(shell: &Shell, lock: &str, all: &str, code: i32) -> CommandOutput {
    let text = format!("{all} respond: a majority");
    let report = shell.run_until(&["doctor", "--lock", lock], &text).await;
    assert_eq!((report.stderr.as_str(), report.code), ("", Some(code)), "{report:?}");
    report
}

#[tokio::test]
async fn peers_are_counted_without_disturbing_them() {
    let shell = Shell::bare();
    let ports = [Port::pick(), Port::pick(), Port::pick()].map(|port| port.number());
    let peers = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
    let lock = |at: usize| format!("peer:127.0.0.1:{}?quorum=3&lease=2s&peers={peers}", ports[at]);
    let report = doctor(&shell, &["--lock", &lock(0)], 1);
    expect_line(
        &report,
        "ok       address ",
        &format!("a member can listen on 127.0.0.1:{}", ports[0]),
    );
    expect_line(
        &report,
        "ok       signed ",
        "datagrams are not signed: 127.0.0.1 must be on a network of members",
    );
    expect_line(&report, "ok       quorum ", "of 3 voters 2 must run");
    expect_line(&report, "warning  peers ", "0 of 3 respond, and there is no leader without 2");

    let campaign = |at| shell.start(&["campaign", "my_app", "--lock", &lock(at)]);
    let mut members = [0, 1, 2].map(campaign);
    members.iter_mut().for_each(|member| drop(member.line_with("lead")));
    let report = doctor_of_all(&shell, &lock(0), "3 of 3", 0).await;
    expect_line(&report, "ok       address ", "already in use");
    expect_line(&report, "ok       peers ", "3 of 3 respond: a majority");
    for member in members {
        member.end_with("TERM");
    }
}

#[test]
fn foreign_address_and_unresolvable_name_are_errors() {
    let shell = Shell::bare();
    let lock = "peer:192.0.2.1:12345?quorum=4&dns=absent.invalid:12345&id=c&voters=a,b";
    let report = doctor(&shell, &["--lock", lock, "--timeout", "1s"], 2);
    expect_line(&report, "error    address ", "a member cannot listen on 192.0.2.1:12345");
    expect_line(&report, "error    peers ", "the peers' name absent.invalid cannot be resolved");
    expect_line(&report, "warning  quorum ", "of 4 voters 3 must run: 3 tolerate as many failures");
    expect_line(&report, "error    quorum ", "\"c\" is not one of the voters");
}

#[tokio::test]
async fn peers_are_counted_and_unsigned_datagrams_reported() {
    let shell = Shell::bare();
    let ports = [Port::pick(), Port::pick()].map(|port| port.number());
    let report = doctor(&shell, &["--lock", &format!("peer:{}?quorum=1", ports[0])], 1);
    expect_line(
        &report,
        "ok       address ",
        &format!("a member can listen on 0.0.0.0:{}", ports[0]),
    );
    expect_line(&report, "warning  signed ", "on every address of this machine");

    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    std::fs::write(&key, "a key of the tests, of 32 bytes.\n").unwrap();
    let peers = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
    let url = |at: usize| format!("peer:127.0.0.1:{}?quorum=2&lease=1s&peers={peers}", ports[at]);
    let signed = |at: usize| format!("{}&key-file={}", url(at), key.display());
    let campaign = |at| shell.start(&["campaign", "my_app", "--lock", &signed(at)]);
    let mut members = [0, 1].map(campaign);
    members.iter_mut().for_each(|member| drop(member.line_with("lead")));
    let report = doctor_of_all(&shell, &signed(0), "2 of 2", 1).await;
    expect_line(&report, "ok       signed ", "by the keys of ");
    expect_line(&report, "ok       peers ", "2 of 2 respond: a majority");
    let report = doctor(&shell, &["--lock", &url(0)], 1);
    expect_line(&report, "warning  peers ", "0 of 2 respond");
    for member in members {
        member.end_with("TERM");
    }
}

#[test]
fn missing_key_file_is_a_usage_error() {
    let shell = Shell::bare();
    let lock = "peer:127.0.0.1:0?quorum=3&key-file=/absent/key";
    let report = shell.run(&["campaign", "my_app", "--lock", lock]);
    assert_eq!(report.code, Some(2), "{report:?}");
    assert!(report.stderr.contains("the key file /absent/key cannot be used"), "{report:?}");
    assert_eq!(report.stderr.lines().count(), 1, "{report:?}");
}
